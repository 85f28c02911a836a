"""Guesses what followed the longest suffix of the text that has stood before.

Before: in the text itself, in what an encoder has read for it, in other texts of the same tenant,
or in files that the user gave. As in SAM decoding (Hu et al., 2024) and suffix decoding (Oliaro et
al., 2024). Confidence comes from how long a suffix matches, and from the share of its occurrences
that went on in this way.
"""

from __future__ import annotations

from collections.abc import Sequence

from forerun.core.tree import Draft
from forerun.drafters.automaton import SuffixAutomaton, discount
from forerun.drafters.grow import grow
from forerun.drafters.memory import BORDER, Leaving
from forerun.drafters.protocol import DraftRequest, Guess
from forerun.drafters.shelf import DEPTH, Copy, backwards
from forerun.drafters.table import DrafterKit

__all__ = ["Suffix"]

_COPIES = 12  # places in other texts that are followed
_ENOUGH = 8  # tokens that match in the text itself, behind which other texts are not asked
_SHORTER = 0.25  # weight of a place for each token that it matches less than the longest
# Sampled text repeats itself less: of first guesses .45 hold at temperature 0 and .13 at 1.
_DOUBT = 2.5
_Weighed = list[tuple[int, float]]


class _Match:
    """What the text's end has been followed by, in itself and in other texts."""

    __slots__ = ("_automaton", "_copies", "_state", "_trust")

    def __init__(
        self, automaton: SuffixAutomaton, state: int, copies: Sequence[Copy], trust: float
    ) -> None:
        self._automaton, self._state, self._copies = automaton, state, copies
        self._trust = trust

    def guesses(self, most: int) -> Sequence[Guess]:
        found = self._automaton.continuations(self._state, most + bool(self._automaton.before))
        if self._automaton.before:  # behind what an encoder has read there is nothing to copy
            found = [(token, sure) for token, sure in found if token != BORDER][:most]
        if self._copies:
            found = self._with_others(found, most)
        name, trust = Suffix.name, self._trust
        return [Guess(token, sure * trust, name, rank) for rank, (token, sure) in enumerate(found)]

    def after(self, token: int) -> _Match:
        state = self._automaton.follow(self._state, token)
        if not self._copies:
            return _Match(self._automaton, state, (), self._trust)
        character = chr(token + 1)
        copies = [
            (text, at - 1, matched + 1)
            for text, at, matched in self._copies
            if text[at] == character
        ]
        return _Match(self._automaton, state, copies, self._trust)

    def _with_others(self, own: _Weighed, most: int) -> _Weighed:
        """Merge the text's own continuations with others': the longer match shares out first."""
        others, matched = _shares(self._copies)
        first, second = own, others
        if matched > self._automaton.length(self._state):
            first, second = others, own
        left = 1.0 - sum([sure for _, sure in first])
        merged = dict(first)
        for token, sure in second:
            merged[token] = merged.get(token, 0.0) + left * sure
        return sorted(merged.items(), key=lambda pair: -pair[1])[:most]


def _shares(copies: Sequence[Copy]) -> tuple[_Weighed, int]:
    """Return how other texts go on, each token with its confidence, and the longest match.

    Another text's context counts as one token shorter than one's own.
    """
    longest = max([matched for _, _, matched in copies])
    weights: dict[str, float] = {}
    for text, at, matched in copies:
        token = text[at]
        weights[token] = weights.get(token, 0.0) + _SHORTER ** (longest - matched)
    ends = weights.pop("\0", 0.0)  # where a text ended nothing followed
    if not weights:
        return [], 0
    sure = (1.0 - discount(longest - 1)) / (sum(weights.values()) + ends)
    ranked = sorted(weights.items(), key=lambda pair: -pair[1])
    return [(ord(token) - 1, sure * weight) for token, weight in ranked], longest


class Suffix(Leaving[SuffixAutomaton]):
    """Follows the likeliest continuation of the longest match; at width w, the next w - 1 too.

    Where a continuation runs into the text's end it goes on from a shorter match, so a loop is
    continued at any length.

    A text goes into the store when it is freed, whole and as it was written. Under rules that draw
    coins the store is not asked: a seed would then give another text after other texts.

    Args:
        kit: The store, if other texts are to be searched.
    """

    name = "suffix"

    def __init__(self, kit: DrafterKit) -> None:
        super().__init__(SuffixAutomaton)
        self._store = kit.store

    def guess(self, memory: SuffixAutomaton, request: DraftRequest) -> Draft:
        """Return a comb of points."""
        return grow(self._match(memory, request), request)

    def place(self, request: DraftRequest) -> _Match:
        """Return the longest matches."""
        return self._match(self._in_step(request.sequence, request.tokens), request)

    def leave(self, tenant: str, memory: SuffixAutomaton) -> None:
        """Put the text into the store."""
        if self._store is not None:
            self._store.learn(tenant, [memory.text])

    def _match(self, memory: SuffixAutomaton, request: DraftRequest) -> _Match:
        memory.read(request.source, BORDER)
        store, state = self._store, memory.match
        copies: list[Copy] = []
        self.owned(request)
        asks = request.noise is not None and memory.length(state) < _ENOUGH
        if asks and store is not None and store.has(request.tenant):
            first = max(memory.before, len(memory.tokens) - DEPTH)
            copies = store.find(request.tenant, backwards(memory.tokens[first:]), _COPIES)
        return _Match(
            memory, state, copies, 1.0 / (1.0 + _DOUBT * request.warp.sampling.temperature)
        )
