"""Exponentials, sums and laws: judged by decimal arithmetic and by sums in the written order."""

from __future__ import annotations

import math
from decimal import Decimal, getcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.core.softmax import exponential, log_normaliser, quick_exponential, softmax, total

pytestmark = pytest.mark.filterwarnings("error")

SEAMS = [m * math.log(2) / 32 for m in range(0, 32700, 47)]


def ulps_off(x: float) -> float:
    """Return how far our exponential of x is from the true one, in units of its last place."""
    getcontext().prec = 60
    exact = Decimal(x).exp()
    found = float(exponential(np.array([x]))[0])
    return abs(float((Decimal(found) - exact) / Decimal(math.ulp(float(exact)))))


@given(st.floats(-707, 0) | st.sampled_from(SEAMS).map(lambda x: max(-x, -707.0)))
def test_the_exponential_is_within_two_ulp(x: float) -> None:
    """Judged by 60 decimal digits, between and at the table's steps."""
    assert ulps_off(x) <= 2


@given(st.integers(0, 40), st.integers(0, 1000))
def test_the_exponential_beside_zero(bits: int, steps: int) -> None:
    """exp(0) is 1 exactly, and close to it nothing cancels."""
    assert exponential(np.zeros(1))[0] == 1
    assert ulps_off(-(steps * 2.0 ** -(bits + 10))) <= 2


def test_what_is_too_far_down_is_zero() -> None:
    """From -707 on, where the true value is below 10^-306, and at -inf; never NaN."""
    x = np.array([-707.0, np.nextafter(-707.0, -708), -1e300, -np.inf])
    assert exponential(x)[0] > 0
    assert exponential(x)[1:].tolist() == [0, 0, 0]


@given(st.floats(-87, 0, width=32))
def test_the_quick_exponential_is_off_by_little_where_it_weighs_much(x: float) -> None:
    """By 2 units of single precision, and 1 more for each unit of x; exp(0) is 1 exactly."""
    found = float(quick_exponential(np.array([x], np.float32))[0])
    assert abs(found / math.exp(x) - 1) <= (2 - x) * 2.0**-23
    assert quick_exponential(np.zeros(1, np.float32))[0] == 1


@given(st.lists(st.floats(0, 1), min_size=1, max_size=200))
def test_a_total_is_added_strand_by_strand(numbers: list[float]) -> None:
    """Number i in strand i mod 32, ascending; then halves: the same bits as in plain Python."""
    strands = [0.0] * 32
    for i, number in enumerate(numbers):
        strands[i % 32] += number
    while len(strands) > 1:
        half = len(strands) // 2
        strands = [a + b for a, b in zip(strands[:half], strands[half:], strict=True)]
    assert total(np.array(numbers)) == strands[0]


@pytest.mark.parametrize("size", [1, 31, 32, 33, 4096, 49152])
def test_a_total_of_many_is_added_strand_by_strand(size: int) -> None:
    """At no size does numpy add in an order of its own."""
    numbers = np.abs(np.sin(np.arange(size)))
    strands = [0.0] * 32
    for i, number in enumerate(numbers.tolist()):
        strands[i % 32] += number
    halves = np.array(strands)
    for half in (16, 8, 4, 2, 1):
        halves = halves[:half] + halves[half : 2 * half]
    assert total(numbers) == halves[0]


@given(st.lists(st.floats(-60, 60), min_size=1, max_size=40))
def test_a_softmax_is_a_law(scores: list[float]) -> None:
    """It sums to 1 and is proportional to the exponentials."""
    p = softmax(np.array(scores))
    assert abs(math.fsum(p) - 1) < 1e-14
    weights = [math.exp(s - max(scores)) for s in scores]
    assert p == pytest.approx([w / math.fsum(weights) for w in weights], rel=1e-13)


@given(st.lists(st.floats(-60, 60, width=32), min_size=1, max_size=40))
def test_the_normaliser_is_that_of_the_logits(logits: list[float]) -> None:
    """The highest, and the logarithm of the sum of what the others are to it: single precision."""
    highest, log_sum = log_normaliser(np.array(logits, np.float32))
    assert highest == max(logits)
    exact = math.log(math.fsum(math.exp(x - highest) for x in logits))
    assert log_sum == pytest.approx(exact, rel=3e-7, abs=3e-7)


@pytest.mark.parametrize("size", [1, 64, 4096, 4097, 49152, 128256])
def test_a_long_row_costs_the_normaliser_no_digit(size: int) -> None:
    """Errors of single numbers do not add up: the sums of many are in double precision."""
    logits = (9 * np.sin(np.arange(size) * 0.7)).astype(np.float32)
    highest, log_sum = log_normaliser(logits)
    exact = math.log(math.fsum(math.exp(x - highest) for x in logits.tolist()))
    assert log_sum == pytest.approx(exact, rel=0, abs=1e-7)


def test_what_is_far_below_weighs_nothing() -> None:
    """Nor does -inf, however many there are of them."""
    for far in (-87.5, -1e30, -np.inf):
        logits = np.full(49152, far, np.float32)
        logits[7] = 3
        assert log_normaliser(logits + np.float32(0)) == (3.0, 0.0)
