"""The speed formulas against the paper's tables and the full tree of accept/reject outcomes."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.errors import OptionError
from forerun.theory import (
    measured_speedup,
    minimum_speedup,
    operations_factor,
    speedup,
    speedup_along,
    tokens_along,
    tokens_per_pass,
)

alphas = st.fractions(0, 1, max_denominator=12)
lengths = st.integers(0, 6)
costs = st.floats(0, 2)


def expected_by_tree(acceptances: list[Fraction]) -> Fraction:
    """E[tokens] summed over all 2^γ outcomes of the accept tests: accepted run plus one token."""
    total = Fraction(0)
    for outcome in product([True, False], repeat=len(acceptances)):
        weight = math.prod(
            (a if survived else 1 - a for a, survived in zip(acceptances, outcome, strict=True)),
            start=Fraction(1),
        )
        run = next((i for i, survived in enumerate(outcome) if not survived), len(outcome))
        total += weight * (run + 1)
    return total


# Leviathan et al. 2023, table 1: c = c-hat = 0.
TABLE_1 = [
    # alpha, draft length, operations, speed
    (0.6, 2, "1.53", "1.96"),
    (0.7, 3, "1.58", "2.53"),
    (0.8, 2, "1.23", "2.44"),
    (0.8, 5, "1.63", "3.69"),
    (0.9, 2, "1.11", "2.71"),
    (0.9, 10, "1.60", "6.86"),
]


@pytest.mark.parametrize(("alpha", "draft_length", "operations", "speed"), TABLE_1)
def test_table_1_to_the_printed_digits(
    alpha: float, draft_length: int, operations: str, speed: str
) -> None:
    """The six rows of the paper's table 1 come out to both printed digits."""
    assert f"{operations_factor(alpha, draft_length, 0):.2f}" == operations
    assert f"{speedup(alpha, draft_length, 0):.2f}" == speed


# Leviathan et al. 2023, table 4, column Exp (T5-XXL; drafter small, base, large). The last field
# says whether alpha and c as printed, with two digits, give the printed value. Three do not: the
# authors computed from unrounded inputs. `docs/explain/theory.md` names the same three.
TABLE_4 = [
    # task, T, drafter, draft length, alpha, c, printed, exact
    ("EnDe", 0, "small", 7, 0.75, 0.02, "3.2", True),
    ("EnDe", 0, "base", 7, 0.80, 0.04, "3.3", True),
    ("EnDe", 0, "large", 7, 0.82, 0.11, "2.5", True),
    ("EnDe", 1, "small", 7, 0.62, 0.02, "2.3", True),
    ("EnDe", 1, "base", 5, 0.68, 0.04, "2.4", False),  # 2.347
    ("EnDe", 1, "large", 3, 0.71, 0.11, "2.0", False),  # 1.934
    ("CNNDM", 0, "small", 5, 0.65, 0.02, "2.4", True),
    ("CNNDM", 0, "base", 5, 0.73, 0.04, "2.6", True),
    ("CNNDM", 0, "large", 3, 0.74, 0.11, "2.0", True),
    ("CNNDM", 1, "small", 5, 0.53, 0.02, "1.9", True),
    ("CNNDM", 1, "base", 3, 0.55, 0.04, "1.8", True),
    ("CNNDM", 1, "large", 3, 0.56, 0.11, "1.6", False),  # 1.541
]


@pytest.mark.parametrize("row", TABLE_4, ids=lambda row: "-".join(map(str, row[:3])))
def test_table_4_expected_speeds(row: tuple[str, int, str, int, float, float, str, bool]) -> None:
    """Nine of the twelve print as in the paper; the other three lie where rounding allows."""
    *_, draft_length, alpha, cost, printed, exact = row
    assert (f"{speedup(alpha, draft_length, cost):.1f}" == printed) is exact
    # The factor rises with alpha and falls with c, so the corners bound what they may have been.
    slowest = speedup(alpha - 0.005, draft_length, cost + 0.005)
    fastest = speedup(alpha + 0.005, draft_length, cost - 0.005)
    assert slowest <= float(printed) + 0.05
    assert fastest >= float(printed) - 0.05


def test_just_three_rows_of_table_4_need_the_rounding() -> None:
    """The documented exceptions are three, not more."""
    assert sum(not exact for *_, exact in TABLE_4) == 3


@given(alphas, lengths)
def test_tokens_per_pass_is_the_tree_of_all_outcomes(alpha: Fraction, draft_length: int) -> None:
    """Equation 1 equals the exact expectation over every accept/reject outcome."""
    exact = expected_by_tree([alpha] * draft_length)
    assert tokens_per_pass(float(alpha), draft_length) == pytest.approx(float(exact), rel=1e-14)


@given(st.lists(alphas, max_size=6))
def test_tokens_along_is_the_tree_of_all_outcomes(acceptances: list[Fraction]) -> None:
    """The product form equals the exact expectation where positions differ."""
    exact = expected_by_tree(acceptances)
    found = tokens_along([float(alpha) for alpha in acceptances])
    assert found == pytest.approx(float(exact), rel=1e-14)


@pytest.mark.parametrize("distance", [0.0, 1e-16, 1e-12, 1e-9, 1e-6, 1e-3])
@pytest.mark.parametrize("draft_length", [0, 1, 7, 1000])
def test_tokens_per_pass_keeps_its_digits_near_one(distance: float, draft_length: int) -> None:
    """α → 1 goes to γ + 1 without cancellation, judged in rational numbers."""
    alpha = 1.0 - distance
    exact = sum((Fraction(alpha) ** i for i in range(draft_length + 1)), Fraction(0))
    assert tokens_per_pass(alpha, draft_length) == pytest.approx(float(exact), rel=1e-13)


@given(alphas, lengths, costs)
def test_speedup_is_theorem_3_8_as_printed(alpha: Fraction, draft_length: int, cost: float) -> None:
    """(1 − α^(γ+1)) / ((1 − α)(γ c + 1)), computed exactly."""
    if alpha == 1:
        exact = Fraction(draft_length + 1) / (draft_length * Fraction(cost) + 1)
    else:
        exact = (1 - alpha ** (draft_length + 1)) / (
            (1 - alpha) * (draft_length * Fraction(cost) + 1)
        )
    assert speedup(float(alpha), draft_length, cost) == pytest.approx(float(exact), rel=1e-13)


@given(alphas, lengths, costs)
def test_operations_factor_is_theorem_3_11_as_printed(
    alpha: Fraction, draft_length: int, cost: float
) -> None:
    """(1 − α)(γ ĉ + γ + 1) / (1 − α^(γ+1)), computed exactly; never below 1."""
    work = draft_length * Fraction(cost) + draft_length + 1
    tokens = sum((alpha**i for i in range(draft_length + 1)), Fraction(0))
    found = operations_factor(float(alpha), draft_length, cost)
    assert found == pytest.approx(float(work / tokens), rel=1e-13)
    assert found >= 1.0 - 1e-15


@given(alphas, lengths, costs)
def test_free_rows_bring_the_measured_factor_back_to_the_theorem(
    alpha: Fraction, draft_length: int, cost: float
) -> None:
    """With v = 1 everywhere the extension is Theorem 3.8, also for a chain of equal positions."""
    theorem = pytest.approx(speedup(float(alpha), draft_length, cost), rel=1e-13)
    assert measured_speedup(float(alpha), draft_length, cost, lambda rows: 1.0) == theorem
    assert speedup_along([float(alpha)] * draft_length, cost, lambda rows: 1.0) == theorem


def test_measured_speedup_on_a_case_worked_by_hand() -> None:
    """α = 1/2, γ = 2, c = 1/8, v(3) = 1.5: (1 + 1/2 + 1/4) / (1.5 + 1/4) = 1."""
    curve = {1: 1.0, 2: 1.25, 3: 1.5}
    assert measured_speedup(0.5, 2, 0.125, curve) == pytest.approx(1.0)
    assert measured_speedup(0.5, 2, 0.125, lambda rows: curve[rows]) == pytest.approx(1.0)
    assert speedup_along([0.5, 0.25], 0.125, curve) == pytest.approx(1.625 / 1.75)


def test_no_draft_is_plain_decoding() -> None:
    """At γ = 0 every factor is 1, whatever α, c and v."""
    assert speedup(0.7, 0, 3.0) == 1.0
    assert operations_factor(0.7, 0, 3.0) == 1.0
    assert measured_speedup(0.7, 0, 3.0, {1: 1.0}) == 1.0
    assert speedup_along([], 3.0, {1: 1.0}) == 1.0


@given(st.floats(0.01, 1), st.floats(0, 1))
def test_minimum_speedup_is_reached_by_some_length(alpha: float, cost: float) -> None:
    """If α > c the factor (1+α)/(1+c) exceeds 1 and γ = 1 attains it (Corollary 3.9)."""
    if alpha <= cost:
        with pytest.raises(OptionError, match="not above"):
            minimum_speedup(alpha, cost)
    else:
        bound = minimum_speedup(alpha, cost)
        assert bound == pytest.approx((1 + alpha) / (1 + cost), rel=1e-13)
        assert bound >= 1.0
        assert max(speedup(alpha, length, cost) for length in range(4)) >= bound


BAD_NUMBERS = [math.nan, math.inf, -math.inf, -0.1, "0.5", None, True]


@pytest.mark.parametrize("bad", [*BAD_NUMBERS, 1.1])
def test_a_wrong_acceptance_is_refused(bad: float) -> None:
    """α outside [0, 1], NaN or no number is an error in every formula."""
    for call in (
        lambda: tokens_per_pass(bad, 3),
        lambda: tokens_along([0.5, bad]),
        lambda: speedup(bad, 3, 0.1),
        lambda: measured_speedup(bad, 3, 0.1, lambda rows: 1.0),
        lambda: speedup_along([bad], 0.1, lambda rows: 1.0),
        lambda: minimum_speedup(bad, 0.1),
        lambda: operations_factor(bad, 3, 0.1),
    ):
        with pytest.raises(OptionError):
            call()


@pytest.mark.parametrize("bad", BAD_NUMBERS)
def test_a_wrong_cost_is_refused(bad: float) -> None:
    """c or ĉ below 0, not finite or no number is an error in every formula."""
    for call in (
        lambda: speedup(0.5, 3, bad),
        lambda: measured_speedup(0.5, 3, bad, lambda rows: 1.0),
        lambda: speedup_along([0.5], bad, lambda rows: 1.0),
        lambda: minimum_speedup(0.5, bad),
        lambda: operations_factor(0.5, 3, bad),
    ):
        with pytest.raises(OptionError):
            call()


@pytest.mark.parametrize("bad", [-1, 1.5, 2.0, math.nan, True, "3", None, 10**7])
def test_a_wrong_draft_length_is_refused(bad: int) -> None:
    """γ that is negative, fractional, too long or no number is an error."""
    for call in (
        lambda: tokens_per_pass(0.5, bad),
        lambda: speedup(0.5, bad, 0.1),
        lambda: measured_speedup(0.5, bad, 0.1, lambda rows: 1.0),
        lambda: operations_factor(0.5, bad, 0.1),
    ):
        with pytest.raises(OptionError):
            call()


def test_numbers_too_large_to_print_are_refused_too() -> None:
    """Python neither prints an int of 5,000 digits nor makes a float of it."""
    with pytest.raises(OptionError, match="20 digits"):
        tokens_per_pass(0.5, 10**5000)
    with pytest.raises(OptionError, match="cost is inf"):
        speedup(0.5, 3, 10**5000)


@pytest.mark.parametrize(
    "curve", [{}, {1: 1.0}, {3: 1.5}, {1: 9.1, 3: 13.0}, {1: 1.0, 3: math.nan}, {1: 1.0, 3: 0.0}]
)
def test_a_wrong_pass_cost_is_refused(curve: dict[int, float]) -> None:
    """A curve in milliseconds, with a hole, or with a value that is no time, is an error."""
    with pytest.raises(OptionError, match="pass_cost"):
        measured_speedup(0.5, 2, 0.1, curve)
    with pytest.raises(OptionError, match="pass_cost"):
        speedup_along([0.5, 0.5], 0.1, curve)


@pytest.mark.parametrize("value", [1e101, 1e308])
def test_numbers_beyond_any_measurement_are_refused(value: float) -> None:
    """So that no result is infinite: neither from products nor from tiny divisors."""
    for cost, row in ((value, 1.0), (0.0, 1 / value)):
        with pytest.raises(OptionError):
            measured_speedup(0.5, 1, cost, {1: 1.0, 2: row})
    with pytest.raises(OptionError):
        operations_factor(0.5, 3, value)
    assert math.isfinite(operations_factor(1.0, 1_000_000, 1e100))
    assert math.isfinite(measured_speedup(1.0, 1_000_000, 0.0, lambda rows: 1.0))
