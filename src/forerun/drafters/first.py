"""Several drafters in order: the first that has a guess drafts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.core.tree import Draft
from forerun.drafters.protocol import Drafter, DraftRequest, Outcome, Watcher, layers_of

__all__ = ["First"]


class First:
    """For each text the first drafter whose draft isn't empty; all follow and learn.

    Whether a drafter has a guess depends on the text alone, never on a number it drew: an empty
    draft has used no coin, so the next drafter may use the same addresses.

    Args:
        drafters: In the order they are asked.

    Attributes:
        layers: Those that any of them wants to see.
    """

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self._drafters = tuple(drafters)
        self.name = ",".join(drafter.name for drafter in drafters)
        self.layers = tuple(sorted({at for drafter in drafters for at in layers_of(drafter)}))
        self._watchers = [one for one in drafters if isinstance(one, Watcher) and one.layers]

    def open(self, sequence: int, tokens: Sequence[int]) -> None:
        """Follow a new text, all of them."""
        for drafter in self._drafters:
            drafter.open(sequence, tokens)

    def see(self, sequence: int, start: int, hidden: Mapping[int, NDArray[np.float32]]) -> None:
        """Show hidden states of the prompt to those that want to see any."""
        for drafter in self._watchers:
            drafter.see(sequence, start, hidden)

    def fork(self, sequence: int, new: int) -> None:
        """Follow text `new`, which has been `sequence` until now."""
        for drafter in self._drafters:
            drafter.fork(sequence, new)

    def rollback(self, sequence: int, length: int) -> None:
        """Forget all but the first `length` tokens of the text."""
        for drafter in self._drafters:
            drafter.rollback(sequence, length)

    def free(self, sequence: int) -> None:
        """Stop following the text."""
        for drafter in self._drafters:
            drafter.free(sequence)

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Ask each drafter for what those before it had no guess for."""
        drafts = [Draft()] * len(requests)
        for drafter in self._drafters:
            empty = [i for i, draft in enumerate(drafts) if not len(draft)]
            if empty:
                for i, draft in zip(
                    empty, drafter.draft([requests[i] for i in empty]), strict=True
                ):
                    drafts[i] = draft
        return drafts

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Tell all of them, whoever drafted."""
        for drafter in self._drafters:
            drafter.observe(outcomes)
