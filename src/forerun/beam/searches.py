"""Beam searches of one loaded model: from options to texts, a pass at a time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import count
from typing import Any

from forerun.beam.ask import ask_for_beams, stays_ahead
from forerun.beam.options import BeamGeneration
from forerun.beam.result import beam_result
from forerun.beam.search import BeamSearch
from forerun.control.cost import CostCurve
from forerun.drafters.protocol import Drafter
from forerun.events import BeamResult
from forerun.models.tokenizer import Tokenizer
from forerun.targets.protocol import Target

__all__ = ["Searches"]


class Searches:
    """Runs searches; others who use the target get their turns between two passes.

    Args:
        target: Whose beams are searched for.
        tokenizer: Says which tokens end a text, and what beams read like.
        drafter_for: Returns the drafter that a request names, or None.
        curve: Returns what passes cost; asked where the shape of drafts is to be chosen.
        lock: Held while the target or a drafter is used.
    """

    def __init__(
        self,
        target: Target,
        tokenizer: Tokenizer,
        drafter_for: Callable[[str], Drafter | None],
        curve: Callable[[], CostCurve],
        lock: AbstractContextManager[Any],
    ) -> None:
        self._target, self._tokenizer = target, tokenizer
        self._drafter_for, self._curve, self._lock = drafter_for, curve, lock
        self._names = count(-1, -1)  # what drafters call beams: other texts have names from 0

    def run(
        self, prompt: tuple[int, ...], options: BeamGeneration, prediction: tuple[int, ...] = ()
    ) -> BeamResult:
        """Search to the end and return the beams.

        Args:
            prompt: Tokens.
            options: What is asked for.
            prediction: The output that is expected, for drafters.

        Raises:
            UsageError: Prompt, options, drafter and target do not go together.
            StartError: The drafter can't be opened, or there is too little memory for so many rows.
        """
        target, tokenizer = self._target, self._tokenizer
        ask = ask_for_beams(target, prompt, options, tokenizer.eos_ids, prediction)
        with self._lock:
            drafter = self._drafter_for(options.drafter)
            search = BeamSearch(
                target,
                ask,
                None if ask.depth == 0 else drafter,
                names=self._names.__next__,
                seconds=lambda context: self._curve().seconds(context),
                ahead=drafter is None or stays_ahead(drafter.name.split(",")),
            )
        try:
            while not search.is_over:
                with self._lock:
                    search.advance()
        finally:
            with self._lock:
                search.close()
        kept = search.best[: options.beams_returned]
        decoder = tokenizer.detokenizer
        return beam_result(target, kept, ask, search.stats, lambda: decoder(after=prompt))
