"""How far ahead to guess, and how many texts a level: what brings the most steps a second.

A step is known beforehand only if every text that it keeps was guessed. How often that holds is
counted, by level and width, for all widths at once: a level's texts come in order, so it is seen
how many of them would have been enough. Costs are those of the target's passes, by rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from forerun.beam.tree import TextNode
from forerun.drafters.asking_price import AskingPrice

__all__ = ["FREE", "Shape", "ShapeChoice"]

DEEPEST = 6
_WIDTHS = (1.0, 1.5, 2.0)  # texts of a level over running beams
_HOPE = 0.5  # how often a level is held to be guessed before it was seen
_GAIN = 0.1
_PATIENCE = 8  # rounds without guesses before the next that are looked at
FREE = 1e-4
"""Seconds for a level below which guesses are looked at, though none is scored."""


class Shape(NamedTuple):
    """What is guessed in a round.

    Attributes:
        depth: Levels that are scored.
        width: Most texts of a level that are scored.
        looks: Levels that are guessed; those deeper than `depth` are only watched.
    """

    depth: int
    width: int
    looks: int


class ShapeChoice:
    """Chooses a shape each round.

    Args:
        beams: How many texts run.
        depth: Levels, if they are not to be chosen.
        width: Texts of a level over beams, if they are not.
        seconds: Returns what passes take by rows, 0 rows first, given the context.
    """

    def __init__(
        self,
        beams: int,
        depth: int | None,
        width: int | None,
        seconds: Callable[[int], Sequence[float]],
    ) -> None:
        self._beams, self._depth, self._seconds = beams, depth, seconds
        is_free = depth is None and width is None
        factors = _WIDTHS if is_free else (float(width or 1),)
        self._widths = [max(1, round(factor * beams)) for factor in factors]
        self._hits = [[_HOPE] * len(factors) for _ in range(DEEPEST)]
        self._price = AskingPrice()  # of a level of guesses
        self._idle = 0

    @property
    def widest(self) -> int:
        """Most texts of a level that any shape has."""
        return self._widths[-1]

    def choose(self, room: int, rows: int, context: int) -> Shape:
        """Return this round's shape.

        Args:
            room: Levels that there is room for before the texts end.
            rows: Of the pass without guesses.
            context: Tokens of a text.
        """
        if self._depth is not None:
            depth = min(self._depth, room)
            return Shape(depth, self._widths[-1], depth)
        seconds = self._seconds(context)
        best, rate = Shape(0, self._widths[0], 0), 1.0 / seconds[min(rows, len(seconds) - 1)]
        for at, width in enumerate(self._widths):
            steps = chance = 1.0
            for depth in range(1, min(DEEPEST, room) + 1):
                chance *= self._hits[depth - 1][at]
                steps += chance
                size = rows + depth * width
                if size >= len(seconds):
                    break
                found = steps / (seconds[size] + depth * self._price.seconds)
                if found > rate:
                    best, rate = Shape(depth, width, depth), found
        return best if best.depth else self._watching(best, room)

    def _watching(self, nothing: Shape, room: int) -> Shape:
        """Return a shape without drafts that is looked at all the same, now and then."""
        self._idle += 1
        if room and (self._price.seconds < FREE or self._idle % _PATIENCE == 0):
            return nothing._replace(looks=1)
        return nothing

    def learn(
        self, levels: Sequence[Sequence[TextNode]], kept: Sequence[Collection[TextNode]]
    ) -> None:
        """Learn from a round.

        Args:
            levels: What was guessed.
            kept: The texts that its steps really kept, one step after the other.
        """
        for level, (guessed, real) in enumerate(zip(levels, kept, strict=False)):
            if level >= DEEPEST or not real:
                return
            places = {node: place for place, node in enumerate(guessed)}
            needed = max(places.get(node, len(guessed)) for node in real)
            for at, width in enumerate(self._widths):
                hit = needed < min(width, len(guessed))
                self._hits[level][at] += _GAIN * (hit - self._hits[level][at])

    def clock(self, levels: int, seconds: float) -> None:
        """Learn what guessing took."""
        if levels:
            self._price.count(seconds, levels)
            self._price.end_round()
