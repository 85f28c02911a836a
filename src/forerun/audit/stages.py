"""The stages of the identity check: toys of our own, endings in mid-draft, and the user's model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from forerun.audit.identity import ENDINGS, FILTERS, Cell, Stage, grid
from forerun.audit.worlds import Letters
from forerun.core.noise import Noise
from forerun.drafters.protocol import Drafter
from forerun.drafters.table import DRAFTERS, DrafterKit, make_drafter
from forerun.engine.request import Request
from forerun.models.model import Model
from forerun.targets.protocol import Target
from forerun.targets.reference import ReferenceTarget
from forerun.targets.toy import ToyTarget

__all__ = ["ending_cells", "model_stage", "toy_cells", "toy_stage"]

_VOCAB = 20
_EOS = _VOCAB - 1
_WIDTHS = (1, 3)
_MIXED = "lookup,bigram,random"  # the first that has a guess drafts


def drafters_of(kit: DrafterKit) -> Callable[[str], Drafter | None]:
    """Return a function that makes each named drafter once."""
    made: dict[str, Drafter | None] = {}

    def drafter_for(spec: str) -> Drafter | None:
        if spec not in made:
            made[spec] = make_drafter(spec, kit)
        return made[spec]

    return drafter_for


def toy_stage(
    seed: int = 0, *, max_tokens: int = 45, ends: bool = False, context: int = 4096
) -> Stage:
    """Return a stage over a toy that likes to repeat itself, with a similar toy as draft model.

    Args:
        seed: Of the toy's table.
        max_tokens: Length of the texts.
        ends: Whether one token ends a text.
        context: Most tokens of prompt and text.
    """
    size = (_VOCAB, _VOCAB)
    own, other = (
        np.array([Noise(seed, sample).gumbel(i, _VOCAB) for i in range(_VOCAB)])
        for sample in (1, 2)
    )
    target = ToyTarget(np.reshape(1.6 * own, size).astype(np.float32), context)
    guesser = ToyTarget(np.reshape(1.6 * own + 0.7 * other, size).astype(np.float32), context)
    kit = DrafterKit(_VOCAB, lambda: guesser)
    return Stage(
        name=f"toy {seed}",
        target=target,
        drafter_for=drafters_of(kit),
        decoder=lambda _: Letters(),
        prompts=((3, 1, 4, 1, 5, 3, 1, 4, 1, 5, 3), (2, 2, 6, 2, 2)),
        max_tokens=max_tokens,
        eos_ids=(_EOS,) if ends else (),
        judge=lambda request: _ending_problem(request, context),
    )


def toy_cells() -> list[Cell]:
    """Return the whole grid under match, and at temperature 0 under the other exact rules."""
    cells = list(grid((*DRAFTERS, _MIXED), _WIDTHS))
    for drafter, name in itertools.product(DRAFTERS, FILTERS):
        cells += [Cell(drafter, 0.0, name, rule=rule) for rule in ("speculative", "block")]
        cells += [Cell(drafter, 0.0, name, 3, "tree")]
    return cells


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


def model_stage(model: Model, max_tokens: int) -> Stage:
    """Return a stage over a real model, with its own first layers as draft model.

    Args:
        model: The user's.
        max_tokens: Length of the texts.
    """
    target = ReferenceTarget(model)
    layers = max(1, model.architecture.num_layers // 4)

    def open_draft_model() -> Target:
        return ReferenceTarget(model.cut(layers))

    prompt = tuple(model.tokenizer.encode("one two three one two three one two"))
    return Stage(
        name=model.name,
        target=target,
        drafter_for=drafters_of(DrafterKit(target.vocab_size, open_draft_model)),
        decoder=lambda tokens: model.tokenizer.detokenizer(after=tokens),
        prompts=(prompt,),
        max_tokens=max_tokens,
        draft_length=3,
    )
