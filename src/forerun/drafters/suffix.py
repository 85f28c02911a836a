"""Guesses what followed the longest suffix of the text that has stood in it before.

As in SAM decoding (Hu et al., 2024) and suffix decoding (Oliaro et al., 2024), over prompt and
output of the text itself.
"""

from __future__ import annotations

from forerun.core.proposal import Point
from forerun.core.tree import Draft
from forerun.drafters.automaton import SuffixAutomaton
from forerun.drafters.comb import Comb
from forerun.drafters.memory import Follower
from forerun.drafters.protocol import DraftRequest
from forerun.drafters.table import DrafterKit

__all__ = ["Suffix"]


class Suffix(Follower[SuffixAutomaton]):
    """Follows the most frequent continuation of the longest match; at width w, the next w - 1 too.

    Where a continuation runs into the text's end it goes on from a shorter match, so a loop is
    continued at any length.
    """

    name = "suffix"

    def __init__(self, kit: DrafterKit) -> None:
        super().__init__(SuffixAutomaton)

    def guess(self, memory: SuffixAutomaton, request: DraftRequest) -> Draft:
        """Return a comb of points."""
        comb = Comb(request, self.name)
        state = memory.match
        while comb.grows:
            tokens = memory.continuations(state, request.width)
            comb.add([(token, Point(token)) for token in tokens])
            if tokens:
                state = memory.follow(state, tokens[0])
        return comb.draft()
