"""Guesses what followed the longest suffix of the text that has stood in it before.

As in SAM decoding (Hu et al., 2024) and suffix decoding (Oliaro et al., 2024), over prompt and
output of the text itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from forerun.core.tree import Draft
from forerun.drafters.automaton import SuffixAutomaton
from forerun.drafters.grow import grow
from forerun.drafters.memory import Follower
from forerun.drafters.protocol import DraftRequest, Guess
from forerun.drafters.table import DrafterKit

__all__ = ["Suffix"]


class _Match:
    """A state of the automaton, as a place."""

    __slots__ = ("_automaton", "_state")

    def __init__(self, automaton: SuffixAutomaton, state: int) -> None:
        self._automaton, self._state = automaton, state

    def guesses(self, most: int) -> Sequence[Guess]:
        return [
            Guess(token, confidence, Suffix.name, rank)
            for rank, (token, confidence) in enumerate(self._automaton.weighed(self._state, most))
        ]

    def after(self, token: int) -> _Match:
        return _Match(self._automaton, self._automaton.follow(self._state, token))


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
        return grow(_Match(memory, memory.match), request)

    def place(self, request: DraftRequest) -> _Match:
        """Return the text's own longest match."""
        memory = self._in_step(request.sequence, request.tokens)
        return _Match(memory, memory.match)
