"""The acceptance formulas against exact enumeration of Algorithm 1 in rational numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.errors import OptionError
from forerun.theory import (
    acceptance,
    kl_divergence,
    lk_divergence,
    mean_acceptance,
    rejection_sampling_acceptance,
)

Weights = list[int]


def law(weights: Weights) -> list[Fraction]:
    return [Fraction(weight, sum(weights)) for weight in weights]


def floats(values: list[Fraction]) -> list[float]:
    return [float(value) for value in values]


@st.composite
def pairs(draw: st.DrawFn) -> tuple[list[Fraction], list[Fraction]]:
    """Two laws over 1 to 5 tokens with small rational masses, zeros among them."""
    size = draw(st.integers(1, 5))
    weights = st.lists(st.integers(0, 6), min_size=size, max_size=size).filter(any)
    return law(draw(weights)), law(draw(weights))


@given(pairs())
def test_acceptance_is_what_enumerating_the_accept_test_gives(
    pair: tuple[list[Fraction], list[Fraction]],
) -> None:
    """β is the sum over drafted tokens of q(x) min(1, p(x)/q(x)) (Theorem 3.5)."""
    p, q = pair
    exact = sum((b * min(Fraction(1), a / b) for a, b in zip(p, q, strict=True) if b), Fraction(0))
    assert acceptance(floats(p), floats(q)) == pytest.approx(float(exact), abs=1e-15)


@given(pairs())
def test_divergence_is_the_definition_and_complements_acceptance(
    pair: tuple[list[Fraction], list[Fraction]],
) -> None:
    """D_LK = Σ|p − (p+q)/2| (Definition 3.3) = 1 − Σ min(p, q) (Lemma 3.4), symmetric."""
    p, q = pair
    exact = sum((abs(a - (a + b) / 2) for a, b in zip(p, q, strict=True)), Fraction(0))
    found = lk_divergence(floats(p), floats(q))
    assert found == pytest.approx(float(exact), abs=1e-15)
    assert found == pytest.approx(1 - acceptance(floats(p), floats(q)), abs=1e-15)
    assert found == lk_divergence(floats(q), floats(p))
    assert (found < 1e-12) == (p == q)
    disjoint = not any(a and b for a, b in zip(p, q, strict=True))
    assert (found > 1 - 1e-12) == disjoint


@given(pairs())
def test_rejection_sampling_accepts_one_over_m_and_never_more_than_speculation(
    pair: tuple[list[Fraction], list[Fraction]],
) -> None:
    """One-shot rejection sampling accepts 1/max(p/q), at most Σ min(p, q) (appendix A.2)."""
    p, q = pair
    kept = [(a, b) for a, b in zip(p, q, strict=True) if a]
    exact = Fraction(0)
    if all(b for _, b in kept):
        largest = max(a / b for a, b in kept)
        exact = sum((b * a / (largest * b) for a, b in kept), Fraction(0))
    found = rejection_sampling_acceptance(floats(p), floats(q))
    assert found == pytest.approx(float(exact), abs=1e-15)
    assert found <= acceptance(floats(p), floats(q)) + 1e-15


def test_rejection_sampling_is_strictly_worse_on_a_case_worked_by_hand() -> None:
    """p = (1/2, 1/2), q = (3/4, 1/4): M = 2, so 1/2 against β = 3/4."""
    assert rejection_sampling_acceptance([0.5, 0.5], [0.75, 0.25]) == 0.5
    assert acceptance([0.5, 0.5], [0.75, 0.25]) == 0.75


def test_mean_acceptance_weighs_positions_alike() -> None:
    """α over positions with β = 1, 3/4 and 0 is their plain mean (Corollary 3.6)."""
    positions = [([0.5, 0.5], [0.5, 0.5]), ([0.5, 0.5], [0.75, 0.25]), ([1.0, 0.0], [0.0, 1.0])]
    assert mean_acceptance(iter(positions)) == pytest.approx(1.75 / 3)


@given(pairs())
def test_kl_is_its_definition(pair: tuple[list[Fraction], list[Fraction]]) -> None:
    """KL(p ‖ q) = Σ p ln(p/q): infinite where q misses a token of p, 0 iff p = q."""
    p, q = pair
    found = kl_divergence(floats(p), floats(q))
    if any(a and not b for a, b in zip(p, q, strict=True)):
        assert found == math.inf
    else:
        terms = (float(a) * math.log(a / b) for a, b in zip(p, q, strict=True) if a)
        assert found == pytest.approx(max(0.0, math.fsum(terms)), abs=1e-14)
        assert (found < 1e-14) == (p == q)


def test_kl_has_a_direction() -> None:
    """The expectation is taken under the first law."""
    p, q = [0.5, 0.5], [0.75, 0.25]
    assert kl_divergence(p, q) == pytest.approx(0.5 * math.log(4 / 3))
    assert kl_divergence(q, p) == pytest.approx(0.75 * math.log(1.5) + 0.25 * math.log(0.5))


def test_a_float32_softmax_over_a_real_vocabulary_is_a_law() -> None:
    """The tolerance on a law's sum has room for float32 over 49,152 tokens."""
    logits = np.linspace(-12, 9, 49152, dtype=np.float32)
    masses = np.exp(logits)
    p = masses / masses.sum()
    assert acceptance(p, p) == pytest.approx(1.0, abs=1e-6)
    assert acceptance(p, p) <= 1.0


@pytest.mark.parametrize(
    ("p", "q"),
    [
        ([0.5, 0.5], [1.0]),
        ([], []),
        ([0.5, 0.4], [0.5, 0.5]),
        ([0.5, 0.5], [0.6, 0.6]),
        ([math.nan, 1.0], [0.5, 0.5]),
        ([0.5, 0.5], [math.nan, 0.5]),
        ([math.inf, 0.0], [0.5, 0.5]),
        ([1.5, -0.5], [0.5, 0.5]),
        (["0.5", "0.5"], [0.5, 0.5]),
        ([True, False], [0.5, 0.5]),
        ([[0.5], [0.5]], [0.5, 0.5]),
    ],
)
@pytest.mark.parametrize(
    "formula", [acceptance, lk_divergence, kl_divergence, rejection_sampling_acceptance]
)
def test_what_is_no_law_is_refused(formula, p, q) -> None:  # type: ignore[no-untyped-def]
    """Unequal, empty, unnormalised, negative, infinite, NaN or non-numeric laws are errors."""
    with pytest.raises(OptionError):
        formula(p, q)


def test_no_position_is_refused() -> None:
    """The mean over nothing is an error, not 0."""
    with pytest.raises(OptionError, match="no position"):
        mean_acceptance([])
