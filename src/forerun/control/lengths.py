"""How far a drafter should run ahead that can't be asked place by place, such as a draft model.

Its acceptance is counted by depth, its time per token is measured, and the length follows from
both and the cost of a pass (Leviathan et al., 2023, section 3.5). Where no length pays, a short
draft is tried now and then, ever less often, so that a text which becomes easy is noticed.
"""

from __future__ import annotations

from collections.abc import Sequence

from forerun.core.tree import Draft

__all__ = ["LONGEST", "Lengths"]

LONGEST = 16

_FADING = 0.97
_HOPE, _WORD = 0.6, 4.0  # acceptance expected of a drafter never seen, and what that counts as
_FIRST_PAUSE, _LONGEST_PAUSE = 8, 256


class Lengths:
    """One text's drafter: its acceptance by depth, and its time.

    Attributes:
        cost: Seconds it takes to draft a token.
    """

    def __init__(self) -> None:
        self.cost = 0.0
        self._right = [0.0] * LONGEST
        self._made = [0.0] * LONGEST
        self._pause, self._quiet = _FIRST_PAUSE, 0

    def choose(self, seconds: Sequence[float], most: int) -> int:
        """Return how many tokens to draft.

        Args:
            seconds: What the round takes by the text's drafted tokens, drafting left out.
            most: At most this many.
        """
        most = min(most, LONGEST, len(seconds) - 1)
        best, length = 1.0 / seconds[0], 0
        tokens = reached = 1.0
        for count in range(1, most + 1):
            reached *= self._acceptance(count - 1)
            tokens += reached
            rate = tokens / (seconds[count] + count * self.cost)
            if rate > best:
                best, length = rate, count
        return length or self._probe(most)

    def learn(self, draft: Draft, accepted: int, seconds: float) -> None:
        """Learn from a draft.

        Args:
            draft: As it was scored.
            accepted: Nodes of it that stay.
            seconds: What drafting took.
        """
        if not len(draft):
            return
        depth = draft.height
        cost = seconds / depth
        self.cost += (cost - self.cost) * (0.2 if self.cost else 1.0)
        for place in range(min(depth, accepted + 1, LONGEST)):
            self._right[place] = self._right[place] * _FADING + (place < accepted)
            self._made[place] = self._made[place] * _FADING + 1.0
        if accepted:
            self._pause = _FIRST_PAUSE

    def _acceptance(self, place: int) -> float:
        """Return α at a depth; where it was seldom tried, as at the depth before."""
        before = self._acceptance(place - 1) if place else _HOPE
        return (self._right[place] + before * _WORD) / (self._made[place] + _WORD)

    def _probe(self, most: int) -> int:
        """Return 1 after a pause, each twice as long as the one before; else 0."""
        self._quiet += 1
        if self._quiet < self._pause or most < 1:
            return 0
        self._quiet, self._pause = 0, min(2 * self._pause, _LONGEST_PAUSE)
        return 1
