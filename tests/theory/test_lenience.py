"""The lenient rule's law against exact enumeration of its one step in rational numbers."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.errors import OptionError
from forerun.theory import (
    acceptance,
    kl_divergence,
    lenient_acceptance,
    lenient_distance,
    lenient_kl,
    lenient_law,
    lk_divergence,
)

lenience_values = st.fractions(Fraction(1, 20), 1, max_denominator=20)


def floats(values: list[Fraction]) -> list[float]:
    return [float(value) for value in values]


@st.composite
def pairs(draw: st.DrawFn) -> tuple[list[Fraction], list[Fraction]]:
    """Two laws over 1 to 5 tokens with small rational masses, zeros among them."""
    size = draw(st.integers(1, 5))
    masses = st.lists(st.integers(0, 6), min_size=size, max_size=size).filter(any)
    p, q = draw(masses), draw(masses)
    return [Fraction(x, sum(p)) for x in p], [Fraction(x, sum(q)) for x in q]


def one_step(
    p: list[Fraction], q: list[Fraction], lenience: Fraction
) -> tuple[Fraction, list[Fraction]]:
    """Draft x ~ q, accept with min(1, p/(l q)), else draw from norm(max(0, p − q))."""
    emitted = [Fraction(0)] * len(p)
    accepted = Fraction(0)
    residual = [max(Fraction(0), a - b) for a, b in zip(p, q, strict=True)]
    for drafted, mass in enumerate(q):
        if not mass:
            continue
        keep = min(Fraction(1), p[drafted] / (lenience * mass))
        accepted += mass * keep
        emitted[drafted] += mass * keep
        if keep < 1:
            for token, weight in enumerate(residual):
                emitted[token] += mass * (1 - keep) * weight / sum(residual)
    return accepted, emitted


@given(pairs(), lenience_values)
def test_acceptance_and_law_are_what_enumerating_the_step_gives(
    pair: tuple[list[Fraction], list[Fraction]], lenience: Fraction
) -> None:
    """α_l and the emitted law equal the exact enumeration over every drafted token."""
    p, q = pair
    accepted, emitted = one_step(p, q, lenience)
    found = lenient_acceptance(floats(p), floats(q), float(lenience))
    assert found == pytest.approx(float(accepted), abs=1e-14)
    law = lenient_law(floats(p), floats(q), float(lenience))
    assert law == pytest.approx(floats(emitted), abs=1e-14)
    assert math.fsum(law) == pytest.approx(1.0, abs=1e-14)


@given(pairs())
def test_lenience_one_is_the_exact_rule(pair: tuple[list[Fraction], list[Fraction]]) -> None:
    """At l = 1 the law is the target's and the acceptance is β."""
    p, q = floats(pair[0]), floats(pair[1])
    assert lenient_law(p, q, 1) == pytest.approx(p, abs=1e-15)
    assert lenient_acceptance(p, q, 1) == pytest.approx(acceptance(p, q), abs=1e-15)
    assert lenient_distance(p, q, 1) == pytest.approx(0, abs=1e-15)
    assert lenient_kl(p, q, 1) == pytest.approx(0, abs=1e-14)


@given(pairs(), lenience_values)
def test_no_token_exceeds_p_over_l_and_the_distances_are_bounded(
    pair: tuple[list[Fraction], list[Fraction]], lenience: Fraction
) -> None:
    """Law ≤ p/l, distance = α_l − α ≤ min(D_LK, 1 − l), KL ≤ ln(1/l) (appendix A.5)."""
    p, q, loose = floats(pair[0]), floats(pair[1]), float(lenience)
    law = lenient_law(p, q, loose)
    assert all(mass <= a / loose + 1e-12 for mass, a in zip(law, p, strict=True))
    distance = lenient_distance(p, q, loose)
    assert distance == lk_divergence(law, p)
    gained = lenient_acceptance(p, q, loose) - acceptance(p, q)
    assert distance == pytest.approx(gained, abs=1e-12)
    assert distance <= min(lk_divergence(p, q), 1 - loose) + 1e-12
    assert lenient_kl(p, q, loose) == kl_divergence(law, p)
    assert lenient_kl(p, q, loose) <= math.log(1 / loose) + 1e-12


@given(pairs())
def test_more_lenience_accepts_more(pair: tuple[list[Fraction], list[Fraction]]) -> None:
    """α_l never falls as l falls, and reaches the share of q on tokens p can emit."""
    p, q = floats(pair[0]), floats(pair[1])
    values = [lenient_acceptance(p, q, loose) for loose in (1, 0.5, 0.3, 0.1, 1e-6)]
    assert all(a <= b + 1e-12 for a, b in pairwise(values))
    support = math.fsum(b for a, b in zip(p, q, strict=True) if a)
    assert values[-1] == pytest.approx(support, abs=1e-12)


def test_a_case_worked_by_hand() -> None:
    """p = (1/4, 3/4), q = (3/4, 1/4), l = 1/2.

    Accepted (1/2, 1/4), so α_l = 3/4; residual (0, 1/2); law (1/2, 1/2), 1/4 away from p.
    """
    p, q = [0.25, 0.75], [0.75, 0.25]
    assert lenient_acceptance(p, q, 0.5) == 0.75
    assert lenient_law(p, q, 0.5) == [0.5, 0.5]
    assert lenient_distance(p, q, 0.5) == 0.25
    assert lenient_kl(p, q, 0.5) == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3))


def test_tiny_lenience_neither_overflows_nor_leaves_the_law() -> None:
    """l = 1e-300 accepts what p can emit and still sums to 1."""
    law = lenient_law([0.5, 0.5, 0.0], [0.2, 0.2, 0.6], 1e-300)
    assert law == pytest.approx([0.5, 0.5, 0.0])


@pytest.mark.parametrize("bad", [0, -0.5, 1.0001, math.nan, math.inf, "0.5", None, True])
@pytest.mark.parametrize("formula", [lenient_acceptance, lenient_law, lenient_distance, lenient_kl])
def test_a_wrong_lenience_is_refused(formula, bad) -> None:  # type: ignore[no-untyped-def]
    """l outside (0, 1], NaN or no number is an error."""
    with pytest.raises(OptionError, match="lenience"):
        formula([0.5, 0.5], [0.5, 0.5], bad)


@pytest.mark.parametrize("formula", [lenient_acceptance, lenient_law, lenient_distance, lenient_kl])
def test_what_is_no_law_is_refused(formula) -> None:  # type: ignore[no-untyped-def]
    """The laws are checked as everywhere."""
    for p, q in (([0.5, 0.4], [0.5, 0.5]), ([0.5, 0.5], [1.0]), ([math.nan, 1.0], [0.5, 0.5])):
        with pytest.raises(OptionError):
            formula(p, q, 0.5)
