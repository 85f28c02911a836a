"""Costs that change in the middle of a text, so that every choice of draft is made somewhere."""

from __future__ import annotations

from itertools import count

from forerun.control.cost import MOST_ROWS, CostCurve
from forerun.core.noise import philox

__all__ = ["WaveringCosts"]

_SHAPES = 4


class WaveringCosts(CostCurve):
    """A pass that costs what it likes: next to nothing for a row more, or very much, or in steps.

    Each time it is asked it says something else, by its own address; what passes really take, it
    does not learn. So drafts are long, short, broad and absent in turn, and the same in every run.
    """

    def __init__(self) -> None:
        super().__init__({1: 1000.0, 32: 1000.0})
        self._asked = count()

    def seconds(self, context: int, first: int = 0, last: int = MOST_ROWS) -> list[float]:
        """Return 1000 seconds for one row, and who knows what for more."""
        shape, slope, *_ = philox((next(self._asked), 0, 0, 0), (0, 0))
        rise = (0.0, 30.0, 300.0, 3000.0)[shape % _SHAPES] * (1 + slope % 3)
        step = 1 + (slope >> 8) % 8
        passes = range(first, min(last, MOST_ROWS) + 1)
        return [1000.0 + rise * ((rows - 1) // step) for rows in passes]

    def observe(self, rows: int, context: int, seconds: float) -> None:
        """Learn nothing."""
