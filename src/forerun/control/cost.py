"""What a pass costs by its rows: measured on this machine, and corrected by every pass since.

v(M), a pass of M rows over a pass of one, decides how much to draft (DESIGN of the choice:
`forerun.control.choice`). It belongs to a machine, a model and a number of threads, grows with the
context, and drifts with the machine's load.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from forerun.errors import NotEnoughMemoryError
from forerun.targets.protocol import Row, Target

__all__ = ["KNOTS", "MOST_ROWS", "CostCurve", "measure"]

KNOTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Rows whose passes are timed; between them the curve is straight."""

MOST_ROWS = 256
"""Rows up to which a pass's cost is told; a pass that has more gets no drafts besides."""

_ROWS = np.arange(MOST_ROWS + 1)
_LEVEL_GAIN = 0.1  # how much of a pass's surprise is held to be the machine's or the context's
_SHAPE_GAIN = 0.04  # and how much to be that of its number of rows
_CALM = 1.6  # a pass that took more than this times what was expected was disturbed
_PATIENCE = 16  # passes after which the shape is looked at anew
_DISAGREES = 1.2  # a shape this far from the measured one is worth measuring again
_STEADY = 1.15  # times of the same rows that differ by more than this were disturbed


class CostCurve:
    """Seconds of a pass, by rows and context.

    Between two measurements passes teach it: each moves the level of its own context, and the
    shape at its own number of rows.

    Args:
        measured: Seconds of a pass, by rows; 1 is among them.
        is_steady: Whether the machine was quiet enough for others to believe it, too.
    """

    def __init__(self, measured: Mapping[int, float], *, is_steady: bool = True) -> None:
        self.is_steady = is_steady
        self._levels: dict[int, float] = {}  # by context
        self._unheard = 0  # passes that have moved the shape since
        self._shape: dict[int, float] = {}
        self._take(measured)

    def _take(self, measured: Mapping[int, float]) -> None:
        """Reckon with these times."""
        self.measured = dict(sorted(measured.items()))
        self._knots = list(self.measured)
        self._shape = {rows: self._shape.get(rows, 1.0) for rows in self._knots}
        knots = np.array(self._knots)
        self._nearest = knots[np.abs(_ROWS[:, None] - knots).argmin(axis=1)].tolist()
        self._table: list[float] | None = None  # of level 1
        self._base = np.interp(_ROWS, self._knots, list(self.measured.values()))
        if len(self._knots) > 1:  # beyond the last knot it goes on as it last rose
            (low, before), (high, last) = list(self.measured.items())[-2:]
            slope = max(last - before, 0.0) / (high - low)
            self._base += slope * np.maximum(_ROWS - high, 0)

    def seconds(self, context: int, first: int = 0, last: int = MOST_ROWS) -> list[float]:
        """Return what passes over that context take, by rows.

        Args:
            context: Most tokens that one of the sequences holds.
            first: Rows of the first that is told.
            last: And of the last one, if MOST_ROWS are not too few for it.
        """
        level = self._level(_bucket(context))
        return [level * seconds for seconds in self._shaped()[first : last + 1]]

    def curve(self, context: int = 256) -> dict[int, float]:
        """Return v of the measured numbers of rows, as it is believed now."""
        seconds = self.seconds(context)
        return {rows: seconds[rows] / seconds[1] for rows in self._knots}

    def observe(self, rows: int, context: int, seconds: float) -> None:
        """Learn from one pass.

        Args:
            rows: How many it scored.
            context: Most tokens that one of its sequences held.
            seconds: What it took.
        """
        if not 1 <= rows <= MOST_ROWS:
            return
        bucket = _bucket(context)
        level = self._level(bucket)
        if self._knots[-1] < KNOTS[-1] and rows > 1.2 * self._knots[-1]:
            # A slow target's: nobody had the time to try it. It costs no more than rows one by one.
            most = rows * self._shaped()[1]
            self._take({**self.measured, rows: min(seconds / level, most)})
            return
        ratio = seconds / (level * self._shaped()[rows])
        surprise = math.log(min(max(ratio, 1 / _CALM), _CALM))
        self._levels[bucket] = level * math.exp(_LEVEL_GAIN * surprise)
        nearest = self._nearest[rows]
        if nearest > 1:
            self._shape[nearest] *= math.exp(_SHAPE_GAIN * surprise)
            self._unheard += 1
        if self._unheard >= _PATIENCE:  # a table takes as long to make as a row of a small model
            self._unheard, self._table = 0, None

    @property
    def is_stale(self) -> bool:
        """Whether the shape that passes show is far from the one that was measured."""
        factors = self._shape.values()
        return max(*factors, 1.0) > _DISAGREES or min(*factors, 1.0) < 1 / _DISAGREES

    def _shaped(self) -> list[float]:
        if self._table is None:
            shape = np.interp(_ROWS, self._knots, list(self._shape.values()))
            self._table = (self._base * shape).tolist()
        return self._table

    def _level(self, bucket: int) -> float:
        """Return a context's level; of one never seen, the nearest one's."""
        if not self._levels:
            return 1.0
        if bucket in self._levels:
            return self._levels[bucket]
        return self._levels[min(self._levels, key=lambda seen: abs(seen - bucket))]


def _bucket(context: int) -> int:
    return max(context, 128).bit_length()


def measure(
    target: Target,
    seconds: float = 0.8,
    clock: Callable[[], float] = time.perf_counter,
) -> CostCurve:
    """Time passes of every number of rows, several times in turn, and take the lower quartile.

    Args:
        target: Whose passes.
        seconds: About how long this may take. A slow target's larger passes are left out, and
            estimated from the ones before until they occur.
        clock: For tests.
    """
    ends = clock() + seconds
    sequence = _sequence(target, seconds / 4, clock)
    timed: dict[int, list[float]] = {}
    try:
        most = min(KNOTS[-1], target.context_length - target.length(sequence))
        knots = [rows for rows in KNOTS if rows <= max(most, 1)]
        while len(timed.get(1, ())) < 7:
            for rows in knots:
                worst = max((max(times) for times in timed.values()), default=0.0)
                if 1 in timed and clock() + 2 * worst > ends:
                    return _curve(timed)
                try:
                    taken = _one_pass(target, sequence, rows, clock)
                except NotEnoughMemoryError:
                    if rows == 1:
                        raise
                    knots = [fewer for fewer in knots if fewer < rows]
                    break
                timed.setdefault(rows, []).append(taken)
        return _curve(timed)
    finally:
        target.free(sequence)


def _curve(timed: Mapping[int, Sequence[float]]) -> CostCurve:
    # Whoever else uses the machine only adds to a time, and not to all of them.
    spread = [statistics.median(times) / min(times) for times in timed.values()]
    return CostCurve(
        {rows: sorted(times)[len(times) // 4] for rows, times in timed.items()},
        is_steady=statistics.median(spread) < _STEADY,
    )


def _sequence(target: Target, seconds: float, clock: Callable[[], float]) -> int:
    """Open a text of up to 256 tokens, shorter where reading that would take long."""
    most = min(256, target.context_length // 2)
    begun = clock()
    sequence = target.open([0] * min(16, most))
    pace = max(clock() - begun, 1e-9) / 16
    length = min(most, int(seconds / pace))
    if length <= 16:
        return sequence
    target.free(sequence)
    return target.open([0] * length)


def _one_pass(target: Target, sequence: int, rows: int, clock: Callable[[], float]) -> float:
    start = target.length(sequence)
    chain = [Row(sequence, 0, start + i, i - 1) for i in range(rows)]
    begun = clock()
    target.score(chain)
    return max(clock() - begun, 1e-9)  # a coarse clock may not have moved
