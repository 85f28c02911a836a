"""Beam searches of one loaded model: from options to texts, a pass at a time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import count
from typing import Any

from forerun.beam.ask import ask_for_beams, stays_ahead
from forerun.beam.result import beam_result
from forerun.beam.search import BeamSearch
from forerun.control.cost import CostCurve
from forerun.drafters.protocol import Drafter
from forerun.engine.request import Ask
from forerun.events import BeamResult
from forerun.targets.protocol import Target

__all__ = ["Searches"]


class Searches:
    """Runs searches; others who use the target get their turns between two passes.

    Args:
        target: Whose beams are searched for.
        drafter_for: Returns the drafter that a request names, or None.
        curve: Returns what passes cost; asked where the shape of drafts is to be chosen.
        lock: Held while the target or a drafter is used.
    """

    def __init__(
        self,
        target: Target,
        drafter_for: Callable[[str], Drafter | None],
        curve: Callable[[], CostCurve],
        lock: AbstractContextManager[Any],
    ) -> None:
        self._target = target
        self._drafter_for, self._curve, self._lock = drafter_for, curve, lock
        self._names = count(-1, -1)  # what drafters call beams: other texts have names from 0

    def run(self, make: Callable[[], Ask]) -> BeamResult:
        """Search to the end and return the beams.

        Args:
            make: Makes what is asked for, each time with a decoder for one text.

        Raises:
            UsageError: Prompt, options, drafter and target do not go together.
            StartError: The drafter can't be opened, or there is too little memory for so many rows.
        """
        target, asked = self._target, make()
        ask = ask_for_beams(target, asked)
        with self._lock:
            drafter = self._drafter_for(asked.options.drafter)
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
        kept = search.best[: ask.returned]
        return beam_result(target, kept, ask, search.stats, lambda: make().decoder)
