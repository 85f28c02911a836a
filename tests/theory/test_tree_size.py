"""How many nodes pay: against every subset of small trees, and the chain's own formula."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.errors import OptionError
from forerun.theory import optimal_size, speedup_along, speedup_of_tree

falling = st.lists(st.floats(0, 1), max_size=7).map(lambda found: sorted(found, reverse=True))
rises = st.lists(st.floats(0, 0.7), min_size=8, max_size=8)


def test_a_chain_is_a_tree() -> None:
    """r_i = α_1 … α_i gives a chain's own factor."""
    acceptances = [0.9, 0.5, 0.7]
    cost = {1: 1.0, 2: 1.1, 3: 1.2, 4: 1.5}
    reached = [0.9, 0.45, 0.315]
    expected = speedup_along(acceptances, 0.05, cost)
    assert speedup_of_tree(reached, 0.05, cost) == pytest.approx(expected, rel=1e-12)


@given(falling, rises, st.floats(0, 0.5))
def test_no_subset_of_nodes_is_faster(reached: list[float], steps: list[float], c: float) -> None:
    """The likeliest nodes up to the best size beat every choice of nodes, however v rises."""
    v = {1: 1.0}
    for rows in range(2, 9):
        v[rows] = v[rows - 1] + steps[rows - 2]
    size = optimal_size(reached, c, v)
    best = speedup_of_tree(reached[:size], c, v)
    for count in range(len(reached) + 1):
        for subset in combinations(reached, count):
            assert speedup_of_tree(subset, c, v) <= best * (1 + 1e-12)


def test_where_nothing_pays_the_size_is_0() -> None:
    """Of equal factors the smallest tree wins, plain decoding included."""
    assert optimal_size([0.5, 0.25], 0.0, {1: 1.0, 2: 1.5, 3: 2.0}) == 0


def test_a_step_of_the_cost_is_crossed() -> None:
    """A size that is worse than the one before may lead to one that is better than both."""
    assert optimal_size([0.9, 0.8, 0.8], 0.0, {1: 1.0, 2: 2.0, 3: 2.0, 4: 2.0}) == 3


def test_rising_probabilities_are_refused() -> None:
    """They are no tree's: a node is never likelier than its parent."""
    with pytest.raises(OptionError, match="rises"):
        optimal_size([0.1, 0.2], 0.0, lambda rows: 1.0)
