"""What a beam search is asked for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from forerun.beam.options import BeamGeneration
from forerun.core.beams import BeamRule, EarlyStopping
from forerun.core.warp import Warp
from forerun.engine.request import Ask
from forerun.errors import OptionError, PromptError
from forerun.native import fast_warp
from forerun.printable import counted
from forerun.targets.checks import check_prompt, check_source
from forerun.targets.protocol import Target

__all__ = ["BeamAsk", "ask_for_beams", "stays_ahead"]

_STOPPING: dict[str, EarlyStopping] = {"false": False, "true": True, "never": "never"}


@dataclass(frozen=True, slots=True)
class BeamAsk:
    """What is asked for.

    Attributes:
        prompt: At least one token, and fewer than the context.
        rule: What is searched for; its limit leaves room in the context.
        warp: Masks, bias and penalties.
        depth: Levels that are guessed; None is what pays.
        width: Texts of a level, over beams; None is what pays.
        tenant: Whose text it is, for drafters.
        prediction: The output that is expected, for drafters.
        limited_by: What the rule's limit is: "max_tokens" or "context".
        source: What the target's encoder reads; None for a target without one.
        returned: How many of the texts found are returned; None is all.
    """

    prompt: tuple[int, ...]
    rule: BeamRule
    warp: Warp
    depth: int | None = None
    width: int | None = None
    tenant: str = ""
    prediction: tuple[int, ...] = ()
    limited_by: str = "max_tokens"
    source: tuple[int, ...] | None = None
    returned: int | None = None


def ask_for_beams(target: Target, asked: Ask) -> BeamAsk:
    """Return what is asked of a target; what can't be is refused here.

    Args:
        target: Whose beams are searched for.
        asked: As for one text; its options are of `BeamGeneration`.

    Raises:
        PromptError: The prompt is empty, fills the context or holds an unknown token.
        OptionError: There are fewer tokens to go on with than beams.
    """
    prompt, options = asked.prompt, asked.options
    assert isinstance(options, BeamGeneration)
    assert options.beams is not None
    if not prompt:
        raise PromptError("The prompt is empty.", "Give at least one token.")
    room = target.context_length - len(prompt)
    if room < 1:
        size = counted(len(prompt), "token")
        raise PromptError(
            f"The prompt has {size}, the context {target.context_length}.",
            "Shorten the prompt, so that at least one token can follow.",
        )
    check_prompt(prompt, None, target.vocab_size, target.context_length)
    if asked.source is not None:
        check_source(asked.source, target.capabilities.encoder)
    ends = frozenset(() if options.ignore_eos else asked.eos_ids)
    least, threads = options.min_tokens, target.capabilities.threads
    warp = fast_warp(options, target.vocab_size, ends, least, threads)
    beams = options.beams
    _check_enough(warp, prompt, ends, beams)
    return BeamAsk(
        prompt=prompt,
        rule=BeamRule(
            beams=beams,
            ends=frozenset(token for token in ends if 0 <= token < target.vocab_size),
            limit=min(options.max_tokens, room),
            length_penalty=options.length_penalty,
            early_stopping=_STOPPING[options.early_stopping],
        ),
        warp=warp,
        depth=None if options.draft_length == "auto" else options.draft_length,
        width=None if options.draft_width == "auto" else options.draft_width,
        tenant=options.tenant,
        prediction=asked.prediction,
        source=asked.source,
        returned=options.beams_returned,
        limited_by="max_tokens" if options.max_tokens <= room else "context",
    )


def _check_enough(warp: Warp, prompt: tuple[int, ...], ends: Collection[int], beams: int) -> None:
    """Check that as many beams can go on after the first token, and so after each."""
    zeros = np.zeros(warp.vocab_size, np.float32)
    may_follow = warp.weigh(zeros, warp.start(prompt)) > -np.inf
    may_follow[[token for token in ends if 0 <= token < warp.vocab_size]] = False
    count = int(may_follow.sum())
    if count < beams:
        raise OptionError(
            f"beams = {beams}: {counted(count, 'token')} may be written that "
            f"{'does' if count == 1 else 'do'} not end the text.",
            "Search with fewer beams, or allow more tokens.",
        )


def stays_ahead(drafters: Collection[str]) -> bool:
    """Return whether, with drafters of these names, drafts may stay in the target's sequences.

    Not with those that run the target itself: they must find all of a text but its last token.
    """
    return not {"early_exit", "exit"}.intersection(drafters)
