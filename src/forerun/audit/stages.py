"""The stages of the identity check: toys of our own, endings in mid-draft, and the user's model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from forerun.audit.heads import random_head, random_readout
from forerun.audit.identity import CHOSEN, ENDINGS, Cell, Stage, exact_cells, grid
from forerun.audit.worlds import Letters
from forerun.core.noise import Noise
from forerun.drafters.protocol import Drafter
from forerun.drafters.store import Store
from forerun.drafters.table import DRAFTERS, DrafterKit, make_drafter
from forerun.engine.request import Request
from forerun.models.model import Model
from forerun.targets.protocol import Target
from forerun.targets.table import HEADS, open_target
from forerun.targets.toy import ToyTarget
from forerun.targets.toy_head import ToyHead
from forerun.targets.toy_readout import ToyReadout

__all__ = [
    "MERGED",
    "PROMPTS",
    "chosen_cells",
    "ending_cells",
    "ending_stage",
    "model_cells",
    "model_stage",
    "random_stage",
    "toy_cells",
    "toy_stage",
]

_VOCAB, _SMALL_VOCAB = 20, 8  # in the small one, stop strings come soon
_EOS = _SMALL_VOCAB - 1
_KEPT = 10_000  # tokens of texts that drafters keep: less than a stage writes, so some are dropped
_WIDTHS = (1, 3)
PROMPTS = (
    "one two three one two three one two",
    "The tide is full. The moon is fair. " * 8 + "The tide",  # several pages of keys
    "red, green, blue, red, green, blue, red, green,",
    "a = 1\nb = 2\na = 1\nb = 2\na = 1\nb",
    "To be, or not to be, that is the question: to be, or not to be, that",
    "0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1",
    "She said yes. He said no. She said yes. He said no. She said",
    "Once upon a time there was a time, and once upon that time",
)
"""What a real model goes on with: texts that drafters have something to copy from."""

_MIXED = "lookup,bigram,random"  # the first that has a guess drafts
MERGED = "prediction,suffix,recycle,bigram,lookup,eagle,medusa"  # all guess at each place


def drafters_of(kit: DrafterKit) -> Callable[[str], Drafter | None]:
    """Return a function that makes each named drafter once."""
    made: dict[str, Drafter | None] = {}

    def drafter_for(spec: str) -> Drafter | None:
        if spec not in made:
            made[spec] = make_drafter(spec, kit)
        return made[spec]

    return drafter_for


def toy_stage(seed: int = 0, *, max_tokens: int = 45) -> Stage:
    """Return a stage over a toy of 20 tokens, whose texts have full length.

    Args:
        seed: Of the toy's table.
        max_tokens: Length of the texts.
    """
    prompts = ((3, 1, 4, 1, 5, 3, 1, 4, 1, 5, 3), (2, 2, 6, 2, 2))
    return _toy_stage(f"toy {seed}", _toys(seed, _VOCAB, 1.0, 4096), prompts, max_tokens)


def ending_stage(seed: int = 0, *, max_tokens: int = 25, context: int = 4096) -> Stage:
    """Return a stage over a toy of 8 tokens, whose texts end early, of which one ends a text.

    Args:
        seed: Of the toy's table.
        max_tokens: Length of the texts.
        context: Most tokens of prompt and text.
    """
    prompts = tuple((i, 1, 2, i, 1, 2, i) for i in range(_EOS))
    stage = _toy_stage(
        f"ending toy {seed}", _toys(seed, _SMALL_VOCAB, 0.6, context), prompts, max_tokens
    )
    return replace(stage, eos_ids=(_EOS,), judge=lambda text: _ending_problem(text, context))


def _toys(
    seed: int, vocab_size: int, sharpness: float, context: int
) -> tuple[ToyTarget, ToyTarget]:
    """Return a target and a draft model that is often right."""
    last, before, other = (
        np.array([Noise(seed, sample).gumbel(i, vocab_size) for i in range(vocab_size)])
        for sample in (1, 2, 3)
    )
    # Of order 2, so that a row that sees the wrong ancestors scores wrongly.
    table = sharpness * (1.6 * last[None, :, :] + 0.8 * before[:, None, :])
    guess = table + 0.4 * sharpness * other
    return (
        ToyTarget(table.astype(np.float32), context),
        ToyTarget(guess.astype(np.float32), context),
    )


def _toy_stage(
    name: str,
    toys: tuple[ToyTarget, ToyTarget],
    prompts: Sequence[tuple[int, ...]],
    max_tokens: int,
) -> Stage:
    target, guesser = toys
    head = ToyHead(guesser, range(1, target.vocab_size))  # a token is not in its vocabulary
    readout = ToyReadout(target, range(1, target.vocab_size))
    kit = DrafterKit(
        target.vocab_size,
        lambda: guesser,
        target=target,
        open_head=lambda: head,
        open_readout=lambda _: readout,
    )
    return Stage(
        name=name,
        target=target,
        drafter_for=drafters_of(kit),
        decoder=lambda _: Letters(),
        prompts=prompts,
        max_tokens=max_tokens,
        top_logprobs=2,
    )


def toy_cells() -> list[Cell]:
    """Return the whole grid of exact rules, with mixes of drafters, and drafts that are chosen."""
    whole = exact_cells(tuple(DRAFTERS), _WIDTHS)
    return [*whole, *grid((_MIXED, MERGED), _WIDTHS), *chosen_cells()]


def chosen_cells() -> list[Cell]:
    """Return cells in which each round chooses what is drafted: nothing, a chain or a tree."""
    return list(grid((*DRAFTERS, MERGED), (CHOSEN,)))


def ending_cells(drafters: Sequence[str] = tuple(DRAFTERS)) -> Iterator[Cell]:
    """Yield cells whose texts end somewhere in a draft, for every reason there is."""
    for drafter, width, ending in itertools.product(drafters, _WIDTHS, ENDINGS):
        for temperature, name in ((0.0, "penalties"), (0.7, "no filter"), (1.0, "top-p")):
            yield Cell(drafter, temperature, name, width, ending=ending)


def _ending_problem(request: Request, context: int) -> str:
    """Return what is wrong with the end of a finished text of letters, found without `Stop`."""
    result, options = request.result(), request.options
    most = min(options.max_tokens, context - len(request.prompt))
    text = ""
    for count, token in enumerate(result.token_ids, 1):
        if token == _EOS and not options.ignore_eos and count > options.min_tokens:
            break
        text += Letters().push(token)
        ended = [s for s in options.stop if text.endswith(s) and count >= options.min_tokens]
        if ended:
            text = text.removesuffix(max(ended, key=len))
            break
        if count == most:
            break
    else:
        return f"the text {text!r} ends after {len(result.token_ids)} tokens for no reason"
    if count < len(result.token_ids):
        return f"the text goes on after its end, {result.token_ids[:count]}"
    return "" if text == result.text else f"the text is {result.text!r}, its tokens say {text!r}"


def model_stage(
    model: Model, max_tokens: int, *, prompts: int = 1, target: Target | None = None
) -> Stage:
    """Return a stage over a real model, with its own first layers as draft model.

    Args:
        model: The user's.
        max_tokens: Length of the texts.
        prompts: How many of PROMPTS are gone on with.
        target: What runs it; None is the native target, where that does.
    """
    encode = model.tokenizer.encode
    texts = [tuple(encode(text)) for text in PROMPTS[:prompts]]
    return _stage_of(model, max_tokens, texts, target)


def model_cells(target: Target) -> list[Cell]:
    """Return the cells of a real model: drafters and shapes that its target has."""
    widths = (1, 2) if target.capabilities.trees else (1,)
    if target.capabilities.name in HEADS:
        return [*exact_cells(tuple(DRAFTERS), widths), *grid((MERGED,), (CHOSEN,))]
    beside = {"eagle", "medusa", "exit", "model"}  # heads, and a part of the target as a model
    beside |= set() if target.capabilities.layers else {"early_exit"}
    drafters = tuple(name for name in DRAFTERS if name not in beside)
    merged = ",".join(name for name in MERGED.split(",") if name not in beside)
    return [*exact_cells(drafters, widths), *grid((merged,), (CHOSEN,))]


def random_stage(model: Model, max_tokens: int) -> Stage:
    """Return a stage over a random model, likewise; its prompts are tokens that repeat.

    Args:
        model: Whose file must be there until its texts are written.
        max_tokens: Length of the texts.
    """
    return _stage_of(model, max_tokens, [(3, 1, 4, 1, 5) * 3, (2, 7) * 20])


def _stage_of(
    model: Model,
    max_tokens: int,
    prompts: Sequence[tuple[int, ...]],
    opened: Target | None = None,
) -> Stage:
    target = opened or open_target("auto", model).target
    layers = max(1, model.architecture.num_layers // 4)

    def open_draft_model() -> Target:
        return open_target("auto", model.cut(layers)).target

    kit = DrafterKit(
        target.vocab_size,
        open_draft_model,
        target=target,
        store=Store(_KEPT),  # later texts may guess from earlier ones
        open_head=lambda: random_head(model, target),
        open_readout=lambda kind: random_readout(kind, model, target),
    )
    return Stage(
        name=model.name,
        target=target,
        drafter_for=drafters_of(kit),
        decoder=lambda tokens: model.tokenizer.detokenizer(after=tokens),
        prompts=prompts,
        max_tokens=max_tokens,
        draft_length=2,
    )
