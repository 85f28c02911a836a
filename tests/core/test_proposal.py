"""Proposals: only laws are proposals, and each says the same in all three forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.core.proposal import Dense, Point, Sparse
from forerun.errors import EngineError


def sparse(tokens: list[int], probabilities: list[float]) -> Sparse:
    return Sparse(np.array(tokens, np.int64), np.array(probabilities))


@pytest.mark.parametrize(
    "probabilities",
    [
        [],
        [0.5, 0.4],
        [0.5, 0.6],
        [1 + 1e-8],
        [1.5, -0.5],
        [-1e-300, 1.0],
        [math.nan, 1.0],
        [math.inf, 0.0],
        [0.0, 0.0],
    ],
)
def test_what_is_no_law_is_no_proposal(probabilities: list[float]) -> None:
    """Negative, not summing to 1, empty, NaN or infinite: refused, dense and sparse alike."""
    with pytest.raises(EngineError, match="must be a law"):
        Dense(np.array(probabilities))
    with pytest.raises(EngineError, match="must be a law"):
        sparse(list(range(len(probabilities))), probabilities)


def test_rounding_of_a_sum_is_forgiven() -> None:
    """Ten tenths do not sum to 1 in floating point, and are a law all the same."""
    assert Dense(np.full(10, 0.1)).probability(3) == 0.1


@pytest.mark.parametrize("tokens", [[1, 1], [0, 1, 1], [0], [0, 1, 2]])
def test_a_sparse_proposal_names_each_token_once_with_one_probability(tokens: list[int]) -> None:
    """Two halves need two tokens, distinct: a third, repeated one is not overlooked."""
    with pytest.raises(EngineError, match="each of its tokens once"):
        sparse(tokens, [0.5, 0.5])


@pytest.mark.parametrize("tokens", [[0, 4], [-1, 0]])
def test_a_sparse_proposal_outside_of_the_vocabulary_is_an_error(tokens: list[int]) -> None:
    """Token -1 is not the last token."""
    with pytest.raises(EngineError, match="outside"):
        sparse(tokens, [0.5, 0.5]).dense(4)


@pytest.mark.parametrize("size", [2, 4])
def test_a_dense_proposal_over_another_vocabulary_is_an_error(size: int) -> None:
    """Neither filled up nor cut."""
    with pytest.raises(EngineError, match="over 3 tokens"):
        Dense(np.array([0.5, 0.25, 0.25])).dense(size)


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
    st.randoms(use_true_random=False),
)
def test_sparse_dense_and_probability_agree(weights: list[int], random: object) -> None:
    """For every token of the vocabulary, whatever order a sparse proposal names them in."""
    vocab = 8
    tokens = list(range(vocab))
    random.shuffle(tokens)  # type: ignore[attr-defined]
    q = np.array(weights) / sum(weights)
    few = Sparse(np.array(tokens[: len(q)], np.int64), q)
    all_ = Dense(few.dense(vocab))
    assert [few.probability(t) for t in range(vocab)] == few.dense(vocab).tolist()
    assert [all_.probability(t) for t in range(vocab)] == all_.dense(vocab).tolist()
    assert few.probability(vocab) == all_.probability(vocab) == all_.probability(-1) == 0


def test_a_point_is_the_law_of_a_deterministic_guess() -> None:
    """All on one token, in a vocabulary of any size."""
    assert Point(2).dense(4).tolist() == [0, 0, 1, 0]
    assert [Point(2).probability(t) for t in range(4)] == [0, 0, 1, 0]
