"""The target's hidden states at the last tokens of a text, as a drafter was shown them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["LastStates"]

Array = NDArray[np.float32]

_KEPT = 64  # should the text be rolled back to one of them


class LastStates:
    """One text's.

    Attributes:
        seen: Position behind the last token whose state is known; 0 before there is one.
    """

    def __init__(self) -> None:
        self.seen = 0
        self._states: list[Array] = []

    def fork(self) -> LastStates:
        """Return those of a text that goes its own way from here."""
        twin = LastStates()
        twin.seen, twin._states = self.seen, self._states.copy()
        return twin

    def cut(self, length: int) -> None:
        """Forget all but the first `length` tokens; nothing is known of the last."""
        left = max(length - 1, 0)
        if self.seen > left:
            del self._states[max(len(self._states) - (self.seen - left), 0) :]
            self.seen = left

    def show(self, start: int, states: Array, rows: Sequence[int] | slice) -> None:
        """Take some rows of a pass, of which the first stands at `start`; known ones stay."""
        if start < self.seen:
            return
        if start > self.seen:  # some were missed: what lies before them is of no use
            self._states.clear()
        # Copied, or the whole pass's states would stay for the sake of the last.
        taken = [row.copy() for row in states[rows][-_KEPT:]]
        self.seen = start + len(states[rows])
        self._states = [*self._states, *taken][-_KEPT:]

    def at(self, position: int) -> Array | None:
        """Return the state of the token at a position, float32 [width], if it is the last known."""
        return self._states[-1] if self._states and self.seen == position + 1 else None
