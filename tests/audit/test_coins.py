"""The exact coins against hand-computed laws, and production's coins against their definition."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.audit.coins import ExactCoins, FixedCoins, coin_problems, enumerate_outcomes
from forerun.core.coins import Address, Coins
from forerun.core.noise import Domain
from forerun.errors import EngineError

A = Address(0, 1, Domain.ACCEPT)
B = Address(0, 1, Domain.RESIDUAL)


def test_independent_questions_multiply() -> None:
    """Two addresses are independent: probabilities are products."""

    def run(coins: Coins) -> tuple[bool, int]:
        return coins.accept(A, 0.25), coins.draw(B, np.array([1.0, 0.0, 3.0]))

    law = dict(enumerate_outcomes(run))
    assert law == {
        (True, 0): 0.0625,
        (True, 2): 0.1875,
        (False, 0): 0.1875,
        (False, 2): 0.5625,
    }


def test_an_address_asked_again_answers_given_what_it_said() -> None:
    """One number cannot be below a quarter and above a half."""

    def run(coins: Coins) -> tuple[bool, bool]:
        return coins.accept(A, 0.5), coins.accept(A, 0.25)

    assert sorted(enumerate_outcomes(run)) == [
        ((False, False), 0.5),
        ((True, False), 0.25),
        ((True, True), 0.25),
    ]


def test_accepting_and_drawing_may_share_a_number_and_then_depend() -> None:
    """A draw at an accepting address falls into what acceptance left of the line."""

    def run(coins: Coins) -> tuple[bool, int]:
        return coins.accept(A, 0.5), coins.draw(A, np.array([0.25, 0.25, 0.5]))

    assert sorted(enumerate_outcomes(run)) == [
        ((False, 2), 0.5),
        ((True, 0), 0.25),
        ((True, 1), 0.25),
    ]


def test_certain_answers_are_no_choices() -> None:
    """Probabilities 0, 1, above 1 and NaN leave one outcome each."""

    def run(coins: Coins) -> tuple[bool, ...]:
        return tuple(coins.accept(A, p) for p in (0.0, 1.0, 7.5, math.nan, -0.5))

    assert list(enumerate_outcomes(run)) == [((False, True, True, False, False), 1.0)]


def test_nothing_can_be_drawn_from_no_weights() -> None:
    """No weight at all, or a negative one, is an error and not a token."""
    for weights in ([0.0, 0.0], [1.5, -0.5]):
        with pytest.raises(EngineError, match="weights"):
            ExactCoins().draw(A, np.array(weights))


def _program(coins: Coins, steps: list[tuple[int, float, float]]) -> tuple[int, ...]:
    """Ask as the steps say; later questions depend on earlier answers."""
    told: list[int] = []
    for node, first, second in steps:
        address = Address(0, node + (told[-1] if told else 0) % 2, Domain.DRAFT)
        if first < 0.5:
            told.append(int(coins.accept(address, second)))
        else:
            told.append(coins.draw(address, np.array([first, second, 0.25])))
    return tuple(told)


_STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.floats(0, 1), st.floats(0.01, 1)), min_size=1, max_size=4
)


@given(_STEPS)
def test_probabilities_sum_to_one_and_outcomes_are_walked_once(
    steps: list[tuple[int, float, float]],
) -> None:
    """Whatever a program asks, its outcomes exhaust chance."""
    law = list(enumerate_outcomes(lambda coins: _program(coins, steps)))
    assert math.fsum(p for _, p in law) == pytest.approx(1.0, abs=1e-14)
    assert all(p > 0 for _, p in law)
    assert len({told for told, _ in law}) == len(law)


def test_the_walk_meets_production_number_by_number() -> None:
    """With one number put through production's coins, shares of the line are the probabilities."""
    many = 5000

    def run(coins: Coins) -> tuple[int, bool, int]:
        first = coins.draw(A, np.array([0.2, 0.5, 0.3]))
        return first, coins.accept(A, 0.35), coins.draw(A, np.array([0.05, 0.9, 0.05]))

    shares = Counter(run(FixedCoins((i + 0.5) / many)) for i in range(many))
    law = dict(enumerate_outcomes(run))
    assert shares.keys() == law.keys()
    for told, probability in law.items():
        assert shares[told] / many == pytest.approx(probability, abs=2 / many)


def test_production_coins_are_what_they_say() -> None:
    """Thresholds, cells, range and addresses of production's coins hold."""
    assert coin_problems() == []
