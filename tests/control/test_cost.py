"""What a pass costs: the curve between its knots, what passes teach it, and how it is measured."""

from __future__ import annotations

import numpy as np
import pytest

from forerun.control.cost import KNOTS, CostCurve, measure
from forerun.errors import NotEnoughMemoryError
from forerun.targets.toy import ToyTarget


class Clock:
    """Time that passes only when a target works."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return it."""
        return self.now


class Slow(ToyTarget):
    """A target whose passes take `base` seconds and `each` for every row after the first."""

    def __init__(self, clock: Clock, base: float, each: float) -> None:
        super().__init__(np.zeros((7, 7), np.float32))
        self.clock, self.base, self.each, self.passes = clock, base, each, 0

    def open(self, prompt=(), source=None):  # type: ignore[no-untyped-def]
        """Reading a token takes as long as a row."""
        self.clock.now += self.each * len(prompt)
        return super().open(prompt, source)

    def score(self, rows, *, logits=None, layers=(), until=None):  # type: ignore[no-untyped-def]
        """Take the time."""
        self.passes += 1
        self.clock.now += self.base + self.each * (len(rows) - 1)
        return super().score(rows, logits=logits, layers=layers)


def test_between_knots_the_curve_is_straight_and_goes_on_as_it_last_rose() -> None:
    """By hand."""
    seconds = CostCurve({1: 1.0, 4: 1.6, 8: 4.0}).seconds(256)
    assert seconds[1:5] == pytest.approx([1.0, 1.2, 1.4, 1.6])
    assert seconds[6] == pytest.approx(2.8)
    assert seconds[10] == pytest.approx(5.2)


def test_a_target_is_timed() -> None:
    """Within the time allowed, every number of rows; the medians are the target's times."""
    clock = Clock()
    target = Slow(clock, 0.004, 0.0003)
    curve = measure(target, 0.8, clock)
    assert list(curve.measured) == [k for k in KNOTS if k <= target.context_length]
    for rows, seconds in curve.measured.items():
        assert seconds == pytest.approx(0.004 + 0.0003 * (rows - 1))
    assert clock.now < 0.9
    assert not target._sequences


def test_a_slow_target_is_not_timed_for_long() -> None:
    """Of a pass that takes half a second few are made, and larger ones are estimated."""
    clock = Clock()
    target = Slow(clock, 0.5, 0.02)
    curve = measure(target, 0.8, clock)
    assert 1 in curve.measured
    assert target.passes <= 2
    assert len(curve.seconds(256)) == len(CostCurve({1: 1.0}).seconds(256))


def test_passes_move_the_level_of_their_own_context() -> None:
    """A long text's passes that take twice as long say so for long texts; the shape stays."""
    curve = CostCurve({1: 1.0, 8: 2.0})
    for _ in range(200):
        for rows in (1, 8):
            curve.observe(rows, 4000, 2.0 if rows == 1 else 4.0)
    assert curve.seconds(4000)[1] == pytest.approx(2.0, rel=0.02)
    assert curve.seconds(4000)[8] == pytest.approx(4.0, rel=0.02)
    for _ in range(200):
        curve.observe(1, 200, 1.0)
        curve.observe(8, 200, 2.0)
    assert curve.seconds(200)[8] == pytest.approx(2.0, rel=0.05)
    assert curve.seconds(4000)[8] == pytest.approx(4.0, rel=0.05)
    assert not curve.is_stale


def test_passes_that_disagree_with_the_shape_make_the_curve_stale() -> None:
    """Eight rows that cost what one does, where twice as much was measured."""
    curve = CostCurve({1: 1.0, 8: 2.0})
    for _ in range(200):
        curve.observe(1, 200, 1.0)
        curve.observe(8, 200, 1.0)
    assert curve.seconds(200)[8] == pytest.approx(1.0, rel=0.05)
    assert curve.is_stale


def test_one_disturbed_pass_changes_little() -> None:
    """A pass that took a hundred times as long is not believed."""
    curve = CostCurve({1: 1.0, 8: 2.0})
    curve.observe(1, 200, 100.0)
    assert curve.seconds(200)[1] < 1.06


def test_rows_that_nobody_had_the_time_to_try_are_measured_when_they_occur() -> None:
    """A slow target's: else all that was never tried would be held to be free."""
    curve = CostCurve({1: 1.0})
    assert curve.seconds(200)[16] == 1.0
    curve.observe(16, 200, 4.0)
    assert curve.seconds(200)[16] == pytest.approx(4.0)
    assert 1.0 < curve.seconds(200)[8] < 4.0
    curve.observe(32, 200, 1000.0)  # disturbed: one by one they would take 32
    assert curve.seconds(200)[32] == pytest.approx(32.0)
    assert curve.seconds(200)[1] == 1.0


def test_rows_beyond_the_table_teach_nothing() -> None:
    """And break nothing."""
    curve = CostCurve({1: 1.0, 8: 2.0})
    curve.observe(0, 1, 1.0)
    curve.observe(100_000, 1, 1.0)
    assert curve.curve() == {1: 1.0, 8: 2.0}


def test_times_that_differ_are_told_as_unsteady() -> None:
    """A machine that others use gives other times each time."""
    clock = Clock()
    steady = measure(Slow(clock, 0.004, 0.0003), 0.8, clock)

    class Disturbed(Slow):
        def score(self, rows, *, logits=None, layers=()):  # type: ignore[no-untyped-def]
            self.clock.now += 0.003 * (self.passes // 3 % 3)
            return super().score(rows, logits=logits, layers=layers)

    shaky = measure(Disturbed(clock, 0.004, 0.0003), 0.8, clock)
    assert (steady.is_steady, shaky.is_steady) == (True, False)


def test_passes_that_memory_refuses_are_left_out() -> None:
    """The curve goes on from those that fit; where not even one row fits, that is said."""
    clock = Clock()

    class Small(Slow):
        most = 8

        def score(self, rows, *, logits=None, layers=()):  # type: ignore[no-untyped-def]
            if len(rows) > self.most:
                raise NotEnoughMemoryError("So many rows need more memory.", "Score fewer.")
            return super().score(rows, logits=logits, layers=layers)

    target = Small(clock, 0.004, 0.0003)
    assert list(measure(target, 0.8, clock).measured) == [1, 2, 3, 4, 6, 8]
    assert not target._sequences
    target.most = 0
    with pytest.raises(NotEnoughMemoryError):
        measure(target, 0.8, clock)
    assert not target._sequences
