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
from forerun.errors import EngineError

__all__ = ["Estimates", "Kind", "kind_of"]

Kind = tuple[str, int, int]
"""Drafter, rank (3 stands for all beyond), class of confidence: guesses alike."""

_OWN_WORD = 6.0  # guesses that a drafter's own word counts as
_OTHERS_WORD = 12.0  # guesses that the experience of earlier texts counts as
_FADING = 0.995
_CLASSES = 1.15  # classes of confidence to a unit of log-odds
_CERTAIN = 1.0 + 1e-9  # sums of shares may be rounded up
_LEAST = 1e-3  # nothing is impossible, and nothing certain


def kind_of(guess: Guess) -> Kind:
    """Return which guesses this one is like."""
    odds = math.log((guess.confidence + _LEAST) / (1.0 - guess.confidence + _LEAST))
    return guess.drafter, min(guess.rank, 3), round(odds * _CLASSES)


class _Tally:
    """Guesses right and guesses made, faded."""

    __slots__ = ("made", "right")

    def __init__(self) -> None:
        self.right = self.made = 0.0


class Estimates:
    """Probabilities for one text's guesses, learned from it, from texts before it, and by asking.

    Args:
        before: The experience of all texts; None makes this one the experience.
    """

    def __init__(self, before: Estimates | None = None) -> None:
        self._before = before
        self._tallies: dict[Kind, _Tally] = {}

    def probability(self, guess: Guess) -> float:
        """Return how likely the guess is to be the target's token, in (0, 1)."""
        ((probability, _),) = self.judge([guess])
        return probability

    def judge(self, guesses: Iterable[Guess]) -> list[tuple[float, Kind]]:
        """Return how likely each guess is to be the target's token, in (0, 1), and its kind.

        Raises:
            EngineError: A guess's confidence is no probability.
        """
        own = self._tallies
        others = {} if self._before is None else self._before._tallies
        judged = []
        for guess in guesses:
            belief = guess.confidence
            if not 0.0 <= belief <= _CERTAIN:  # nor is NaN
                raise EngineError(f"Drafter {guess.drafter!r} guesses with confidence {belief}.")
            kind = kind_of(guess)
            belief = (
                _LEAST if belief < _LEAST else 1.0 - _LEAST if belief > 1.0 - _LEAST else belief
            )
            weight = _OWN_WORD
            if (tally := others.get(kind)) is not None:
                belief = (tally.right + belief * weight) / (tally.made + weight)
                weight = _OTHERS_WORD
            if (tally := own.get(kind)) is not None:
                belief = (tally.right + belief * weight) / (tally.made + weight)
            judged.append((belief, kind))
        return judged

    def learn(self, guesses: Iterable[Guess], kinds: Iterable[Kind], token: int) -> None:
        """Count guesses made at a place whose token is known now.

        Args:
            guesses: All that were made there.
            kinds: Theirs.
            token: The target's.
        """
        rooms = [self._tallies]
        if self._before is not None:
            rooms.append(self._before._tallies)
        for guess, kind in zip(guesses, kinds, strict=True):
            right = guess.token == token
            for tallies in rooms:
                tally = tallies.get(kind)
                if tally is None:
                    tally = tallies[kind] = _Tally()
                tally.right = tally.right * _FADING + right
                tally.made = tally.made * _FADING + 1.0
