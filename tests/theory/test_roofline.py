"""The roofline against its definition and cases worked by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.errors import OptionError
from forerun.theory import Roofline, bytes_per_token, measured_speedup, speedup, tokens_per_pass

# 100 MB a pass at 20 GB/s: 5 ms. 250 MFLOP a row at 200 GFLOP/s: 1.25 ms. Four rows are free.
LAPTOP = Roofline(100e6, 250e6, 20e9, 200e9)


def test_a_machine_worked_by_hand() -> None:
    """Four rows wait for memory, the fifth for arithmetic."""
    assert LAPTOP.pass_time(1) == pytest.approx(5e-3)
    assert LAPTOP.free_rows == 4
    assert LAPTOP.v(4) == pytest.approx(1.0)
    assert LAPTOP.v(5) == pytest.approx(1.25)
    assert LAPTOP.v(8) == pytest.approx(2.0)


def test_a_machine_bound_by_arithmetic_has_no_free_row() -> None:
    """Where even one row waits for arithmetic, v(M) = M: speculation cannot pay."""
    slow = Roofline(100e6, 250e6, 20e9, 10e9)
    assert slow.free_rows == 0
    assert slow.v(7) == pytest.approx(7.0)


sizes = st.floats(1e3, 1e12)


@given(sizes, sizes, sizes, sizes, st.integers(1, 64))
def test_a_pass_takes_the_slower_of_memory_and_arithmetic(
    size: float, work: float, bandwidth: float, speed: float, rows: int
) -> None:
    """v starts at 1, never falls, and the time is one of the two bounds."""
    roof = Roofline(size, work, bandwidth, speed)
    assert roof.pass_time(rows) in (size / bandwidth, rows * work / speed)
    assert roof.pass_time(rows) >= size / bandwidth
    assert roof.pass_time(rows) >= rows * work / speed
    assert roof.v(1) == 1.0
    assert roof.v(rows + 1) >= roof.v(rows) >= 1.0


def test_v_serves_as_a_pass_cost() -> None:
    """Within the free rows the measured factor is Theorem 3.8; beyond them it is less."""
    assert measured_speedup(0.8, 3, 0.05, LAPTOP.v) == pytest.approx(speedup(0.8, 3, 0.05))
    assert measured_speedup(0.8, 7, 0.05, LAPTOP.v) < speedup(0.8, 7, 0.05)


def test_bytes_per_token_shrink_by_the_tokens_per_pass() -> None:
    """Section 3.4: the target's reads are divided by E[tokens]; the drafter's come on top."""
    tokens = tokens_per_pass(0.8, 5)
    assert bytes_per_token(98e6, tokens) == pytest.approx(98e6 / tokens)
    assert bytes_per_token(98e6, 1.0) == 98e6
    assert bytes_per_token(100.0, 2.0, drafter_bytes=10.0, draft_length=4) == 70.0


@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf, "1", None])
def test_wrong_machines_are_refused(bad: float) -> None:
    """Every figure of a machine is finite and above 0."""
    for index in range(4):
        figures = [1.0, 1.0, 1.0, 1.0]
        figures[index] = bad
        with pytest.raises(OptionError):
            Roofline(*figures)


@pytest.mark.parametrize("bad", [0, -1, 1.5, math.nan, True])
def test_wrong_rows_are_refused(bad: int) -> None:
    """A pass has at least one row, and whole ones."""
    for formula in (LAPTOP.pass_time, LAPTOP.v):
        with pytest.raises(OptionError, match="rows"):
            formula(bad)


def test_wrong_bytes_are_refused() -> None:
    """Negative or NaN bytes, no tokens, a negative draft."""
    for arguments in (
        (-1.0, 1.0),
        (math.nan, 1.0),
        (1.0, 0.0),
        (1.0, 1.0, -1.0),
        (1.0, 1.0, 0, -1),
    ):
        with pytest.raises(OptionError):
            bytes_per_token(*arguments)
