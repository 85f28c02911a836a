"""A draft's shape: a trunk, with the other children of its nodes as leaves.

At width 1 a comb is a chain. At width w every node of the trunk has w children; the first, the
drafter's best guess, carries the trunk on. A comb of `length` levels costs a drafter what a chain
costs, and catches a miss of the trunk at any depth; the leaves' own futures are left to the next
round. Which child goes on is settled before any is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.core.proposal import Proposal
from forerun.core.tree import ROOT, Draft, Node
from forerun.drafters.choose import choose
from forerun.drafters.protocol import DraftRequest

__all__ = ["Comb", "grow_together"]


class Comb:
    """Grows a draft for one request, level by level.

    Args:
        request: Gives length and width, and chance.
        drafter: Whose guesses they are.
    """

    def __init__(self, request: DraftRequest, drafter: str) -> None:
        self.request = request
        self.trunk: list[int] = []
        self._drafter = drafter
        self._nodes: list[Node] = []
        self._tip = ROOT
        self._state = request.state
        self._ended = False

    @property
    def grows(self) -> bool:
        """Whether another level may follow."""
        return not self._ended and len(self.trunk) < self.request.length

    def grow(self, logits: NDArray[np.float32]) -> None:
        """Add the level that follows from the drafter's logits at the tip, float32 [vocabulary]."""
        children = choose(self.request, logits, self._state, len(self.trunk), len(self._nodes))
        self.add(children)
        if children:
            self._state = self._state.advance(children[0][0])

    def add(self, children: Sequence[tuple[int, Proposal]]) -> None:
        """Add a level of children below the tip; none of them ends the draft."""
        if not children:
            self._ended = True
            return
        tip = len(self._nodes)
        self._nodes += [Node(token, self._tip, q, self._drafter) for token, q in children]
        self._tip = tip
        self.trunk.append(children[0][0])

    def draft(self) -> Draft:
        """Return the draft as it stands."""
        return Draft(tuple(self._nodes))


def grow_together(
    combs: Sequence[Comb],
    context: int,
    score: Callable[[Sequence[Comb]], NDArray[np.float32]],
) -> list[Draft]:
    """Grow the drafts of many texts, a level at a time, and return them.

    Args:
        combs: Bare ones.
        context: Most tokens of text and trunk that can be scored; there a comb's growth ends.
        score: Returns the logits at the combs' tips, float32 [combs, vocabulary].
    """

    def grows(comb: Comb) -> bool:
        return comb.grows and 0 < len(comb.request.tokens) + len(comb.trunk) <= context

    growing = [comb for comb in combs if grows(comb)]
    while growing:
        for comb, logits in zip(growing, score(growing), strict=True):
            comb.grow(logits)
        growing = [comb for comb in growing if grows(comb)]
    return [comb.draft() for comb in combs]
