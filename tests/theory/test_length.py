"""The choice of a draft length against exact search, and the oracle against simulation by tree."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.errors import OptionError
from forerun.theory import (
    measured_speedup,
    optimal_length,
    optimal_length_along,
    optimal_length_measured,
    oracle_speedup,
    oracle_tokens,
    speedup,
    speedup_along,
)


@given(st.fractions(0, 1, max_denominator=20), st.fractions(0, 1, max_denominator=20))
def test_optimal_length_is_the_argmax_in_rational_numbers(alpha: Fraction, cost: Fraction) -> None:
    """No length up to the limit has a larger exact factor, nor a shorter one an equal factor."""
    limit = 12
    exact = [
        sum((alpha**i for i in range(length + 1)), Fraction(0)) / (length * cost + 1)
        for length in range(limit + 1)
    ]
    found = optimal_length(float(alpha), float(cost), limit)
    assert float(exact[found]) == pytest.approx(float(max(exact)), rel=1e-13)
    if alpha <= cost:
        assert float(max(exact)) == 1.0  # Corollary 3.9's other side: nothing pays


def test_ties_go_to_the_shortest_draft() -> None:
    """A drafter that is always wrong and free gains nothing at any length: length 0."""
    assert optimal_length(0.0, 0.0, 9) == 0
    assert optimal_length_measured(0.0, 0.0, lambda rows: 1.0, 9) == 0
    assert optimal_length_along([0.0] * 9, 0.0, lambda rows: 1.0) == 0


def test_a_free_drafter_drafts_as_far_as_it_may() -> None:
    """With c = 0 the factor rises with every length."""
    assert optimal_length(0.5, 0.0, 9) == 9


def test_search_jumps_over_a_bump_of_the_pass_cost() -> None:
    """v is not monotone on real machines: 8 rows cheaper than 4 must be found past the bump."""
    curve = {1: 1.0, 2: 1.9, 3: 2.0, 4: 1.9, 5: 1.8, 6: 1.7, 7: 1.5, 8: 1.36}
    assert measured_speedup(0.7, 1, 0.0, curve) < 1.0  # the first step is downhill
    assert optimal_length_measured(0.7, 0.0, curve, 7) == 7
    assert optimal_length_along([0.7] * 7, 0.0, curve) == 7


def test_of_a_mapping_only_measured_passes_are_considered() -> None:
    """A curve at 1, 2, 4 and 8 rows offers the lengths 0, 1, 3 and 7, within the limit."""
    curve = {1: 1.0, 2: 1.0, 4: 1.1, 8: 1.2}
    assert optimal_length_measured(0.9, 0.0, curve, 7) == 7
    assert optimal_length_measured(0.9, 0.0, curve, 6) == 3
    assert optimal_length_along([0.9] * 2, 0.0, curve) == 1


def test_drafting_that_does_not_pay_is_off() -> None:
    """A dear drafter or dear rows lead to length 0."""
    assert optimal_length(0.5, 0.9, 16) == 0
    assert optimal_length_measured(0.5, 0.0, lambda rows: float(rows), 16) == 0
    assert optimal_length_along([0.5] * 16, 0.9, lambda rows: 1.0) == 0


@given(
    st.lists(st.floats(0, 1), max_size=6),
    st.floats(0, 1),
    st.lists(st.floats(0.5, 4), min_size=6, max_size=6),
)
def test_the_chosen_cut_beats_every_other(
    acceptances: list[float], cost: float, times: list[float]
) -> None:
    """`optimal_length_along` is the argmax over all prefixes, the empty one included."""
    curve = dict(enumerate([1.0, *times], start=1))
    factors = [
        speedup_along(acceptances[:length], cost, curve) for length in range(len(acceptances) + 1)
    ]
    found = optimal_length_along(acceptances, cost, curve)
    assert factors[found] == max(factors)
    assert found == factors.index(max(factors))


def test_oracle_on_cases_worked_by_hand() -> None:
    """α = 3/4 gives 4 tokens a pass; with c = 1/5 a round takes 1 + 3/5 passes: factor 2.5."""
    assert oracle_tokens(0.75) == 4.0
    assert oracle_speedup(0.75, 0.2) == pytest.approx(2.5)
    assert oracle_speedup(0.75, 0.0) == 4.0
    assert oracle_speedup(1.0, 0.25) == pytest.approx(4.0)


@given(st.floats(0, 0.9), st.floats(0, 1))
def test_oracle_is_the_expectation_over_runs(alpha: float, cost: float) -> None:
    """Runs of n accepted tokens have probability α^n (1−α): tokens n + 1, time 1 + c n."""
    runs = [(n, alpha**n * (1 - alpha)) for n in range(600)]
    tokens = math.fsum(weight * (n + 1) for n, weight in runs)
    time = math.fsum(weight * (1 + cost * n) for n, weight in runs)
    assert oracle_tokens(alpha) == pytest.approx(tokens, rel=1e-12)
    assert oracle_speedup(alpha, cost) == pytest.approx(tokens / time, rel=1e-12)


@given(st.floats(0, 0.99), st.floats(0, 0.99))
def test_no_fixed_length_beats_the_oracle(alpha: float, cost: float) -> None:
    """The oracle's factor bounds every fixed draft length's if the drafter pays at all."""
    best = max(speedup(alpha, length, cost) for length in range(40))
    assert best <= max(1.0, oracle_speedup(alpha, cost)) * (1 + 1e-12)


@pytest.mark.parametrize(("alpha", "cost", "gain"), [(0.5, 0.01, 0.06), (0.95, 0.02, 0.46)])
def test_oracle_gains_what_section_3_5_says(alpha: float, cost: float, gain: float) -> None:
    """Up to about 60 % over the best fixed length; two corners of that range, to a percent."""
    best = speedup(alpha, optimal_length(alpha, cost, 100), cost)
    assert oracle_speedup(alpha, cost) / best - 1 == pytest.approx(gain, abs=0.005)


def test_endless_oracles_are_refused() -> None:
    """α = 1 has no expected run, and with c = 0 no factor."""
    with pytest.raises(OptionError, match="never stops"):
        oracle_tokens(1.0)
    with pytest.raises(OptionError, match="no bound"):
        oracle_speedup(1.0, 0.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -0.1, "0.5", None])
def test_wrong_numbers_are_refused(bad: float) -> None:
    """α or c outside its domain, or NaN, is an error; never a length."""
    for call in (
        lambda: optimal_length(bad, 0.1, 4),
        lambda: optimal_length(0.5, bad, 4),
        lambda: optimal_length_measured(bad, 0.1, lambda rows: 1.0, 4),
        lambda: optimal_length_measured(0.5, bad, lambda rows: 1.0, 4),
        lambda: optimal_length_along([bad], 0.1, lambda rows: 1.0),
        lambda: optimal_length_along([0.5], bad, lambda rows: 1.0),
        lambda: oracle_tokens(bad),
        lambda: oracle_speedup(bad, 0.1),
        lambda: oracle_speedup(0.5, bad),
    ):
        with pytest.raises(OptionError):
            call()


@pytest.mark.parametrize("bad", [-1, 2.5, 10**9])
def test_a_wrong_limit_is_refused(bad: int) -> None:
    """The longest length is a whole number within reason."""
    with pytest.raises(OptionError, match="max_length"):
        optimal_length(0.5, 0.1, bad)
    with pytest.raises(OptionError, match="max_length"):
        optimal_length_measured(0.5, 0.1, {1: 1.0}, bad)


def test_a_curve_without_one_row_is_refused() -> None:
    """Without v(1) there is nothing to compare with, so "off" could not be chosen."""
    with pytest.raises(OptionError, match="pass_cost"):
        optimal_length_measured(0.5, 0.1, {2: 1.0}, 4)
