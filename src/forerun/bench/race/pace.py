"""How long a race will still take, as far as is known."""

from __future__ import annotations

import time

from forerun.bench.race.protocol import Written
from forerun.printable import counted

__all__ = ["Pace"]


class Pace:
    """Texts done, and the time for the others.

    Before the first ones are done it follows from the warm-up, as though each text had all of its
    tokens: rather too long than too short.

    Args:
        max_tokens: Of a text.

    Attributes:
        done: Texts.
    """

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._guessed: list[float] = []  # seconds of a text, a side each
        self._whole = 1
        self._begun = 0.0
        self.done = 0

    def learn(self, written: Written) -> None:
        """Take note of a side's warm-up."""
        pace = written.seconds / max(1, written.later)
        self._guessed.append(written.first_seconds + pace * self._max_tokens)

    def start(self, texts: int) -> None:
        """Begin to write so many."""
        self._whole, self._begun = max(1, texts), time.perf_counter()

    @property
    def share(self) -> float:
        """Of the texts, those that are done."""
        return self.done / self._whole

    def told(self) -> str:
        """Return how many texts are done, and about how long the others take."""
        return f"{self.done} of {counted(self._whole, 'text')}, about {_spoken(self._left())} left"

    def _left(self) -> float:
        rest = self._whole - self.done
        if self.done:
            return (time.perf_counter() - self._begun) / self.done * rest
        return rest * sum(self._guessed) / max(1, len(self._guessed))


def _spoken(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"
