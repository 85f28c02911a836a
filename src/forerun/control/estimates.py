"""What a guess is worth: how often guesses like it were right.

A drafter says how sure it is. What that means in this text is found by counting: guesses of one
drafter, rank and confidence are alike, and each stands in for those not seen yet with what it says
itself. Counts fade, for a text's character changes.

A place is judged whenever the target's own token there becomes known, whether or not anything was
drafted: so a drafter that is switched off is still being watched, and no pass is spent on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from forerun.drafters.protocol import Guess

__all__ = ["Estimates", "Kind", "kind_of"]

Kind = tuple[str, int, int]
"""Drafter, rank (3 stands for all beyond), class of confidence: guesses alike."""

_OWN_WORD = 6.0  # guesses that a drafter's own word counts as
_OTHERS_WORD = 12.0  # guesses that the experience of earlier texts counts as
_FADING = 0.995
_EDGES = 16  # classes of confidence, equally wide in log-odds


def kind_of(guess: Guess) -> Kind:
    """Return which guesses this one is like."""
    odds = math.log((guess.confidence + 1e-3) / (1.0 - guess.confidence + 1e-3))
    return guess.drafter, min(guess.rank, 3), round(odds * (_EDGES / 14))


class _Tally:
    """Guesses right and guesses made, faded."""

    __slots__ = ("made", "right")

    def __init__(self) -> None:
        self.right = self.made = 0.0

    def add(self, right: bool) -> None:
        self.right = self.right * _FADING + right
        self.made = self.made * _FADING + 1.0

    def rate(self, prior: float, weight: float) -> float:
        return (self.right + prior * weight) / (self.made + weight)


class Estimates:
    """Probabilities for one text's guesses, learned from it, from texts before it, and by asking.

    Args:
        before: The experience of all texts; None makes this one the experience.
    """

    def __init__(self, before: Estimates | None = None) -> None:
        self._before = before
        self._tallies: dict[Kind, _Tally] = {}

    def probability(self, guess: Guess, kind: Kind | None = None) -> float:
        """Return how likely the guess is to be the target's token, in (0, 1)."""
        kind = kind or kind_of(guess)
        if self._before is None:
            prior, weight = min(max(guess.confidence, 1e-3), 1.0 - 1e-3), _OWN_WORD
        else:
            prior, weight = self._before.probability(guess, kind), _OTHERS_WORD
        tally = self._tallies.get(kind)
        return prior if tally is None else tally.rate(prior, weight)

    def learn(self, guesses: Iterable[Guess], token: int) -> None:
        """Count guesses made at a place whose token is known now."""
        for guess in guesses:
            kind = kind_of(guess)
            tally = self._tallies.get(kind)
            if tally is None:
                tally = self._tallies[kind] = _Tally()
            tally.add(guess.token == token)
        if self._before is not None:
            self._before.learn(guesses, token)
