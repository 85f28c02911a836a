"""The compiled likeliest tokens, and the noise of a few tokens, are numpy's to the bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from forerun.core.likeliest import likeliest_of_rows
from forerun.core.noise import Noise
from forerun.core.warp import likeliest
from forerun.native import NativeNoise, fast_likeliest

pytestmark = pytest.mark.usefixtures("each_instruction_set")

SIZES = [1, 2, 7, 15, 16, 17, 63, 64, 65, 127, 130, 1000, 4097]


def rows_of(size: int, seed: int) -> NDArray[np.float32]:
    """Return rows of many kinds: plain, with ties, spread widely, with holes, nearly empty."""
    rows = np.random.default_rng(seed).normal(0, 3, (6, size)).astype(np.float32)
    rows[1] = np.round(rows[1])
    rows[2] *= 40
    rows[3, ::2] = -np.inf
    rows[4] = -np.inf
    rows[4, size // 2] = 1.0
    rows[5, :: max(size // 5, 1)] = np.nan
    return rows


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("most", [1, 3, 8, 20])
@pytest.mark.parametrize("threads", [1, 3])
def test_both_twins_agree(size: int, most: int, threads: int) -> None:
    """Tokens, logits and the rest's weight, on any row, however many threads share the work."""
    for seed in range(3):
        rows = rows_of(size, seed)
        for ours, fast in zip(
            likeliest_of_rows(rows, most), fast_likeliest(rows, most, threads), strict=True
        ):
            assert ours.dtype == fast.dtype
            assert ours.tobytes() == fast.tobytes()


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from([-math.inf, -2.0, 0.0, 0.5, 0.5, 3.0]), min_size=1, max_size=200),
    st.integers(1, 12),
)
def test_the_order_is_that_of_likeliest(row: list[float], most: int) -> None:
    """Best first, of equals the lowest id; what is impossible is never named."""
    found = fast_likeliest(np.array([row], np.float32), most)
    expected = likeliest(np.array(row), most)
    assert found.tokens[0].tolist() == expected + [-1] * (most - len(expected))


@pytest.mark.parametrize("spread", [0.0, 1.0, 4.0, 20.0])
def test_the_rest_is_right_within_5_percent(spread: float) -> None:
    """Against exponentials summed in float64."""
    row = np.random.default_rng(3).normal(0, spread, (1, 5000)).astype(np.float32)
    found = fast_likeliest(row, 8)
    rest = np.sort(row[0].astype(np.float64) - row.max())[:-8]
    assert found.rest[0] == pytest.approx(np.exp(rest).sum(), rel=0.05, abs=1e-5)


def test_a_few_tokens_noise_is_the_rows() -> None:
    """Of both twins, at any position and in any order, repeats included."""
    for noise in (Noise(2**63 + 5, 3), NativeNoise(2**63 + 5, 3)):
        for position in (0, 1, 4096):
            row = noise.gumbel(position, 5000)
            for tokens in ([], [0], [4999, 3, 2, 1, 0, 3], list(range(5000))):
                assert noise.at(position, tokens) == row[tokens].tolist()
                found = noise.among(position, np.array(tokens, np.uint32))
                np.testing.assert_array_equal(found, row[tokens])


@pytest.mark.parametrize("temperature", [1.0, 0.7, 3.0, 1e-300])
@pytest.mark.parametrize("size", [1, 7, 8, 9, 31, 2048])
def test_tokens_rank_with_their_noise_as_in_the_slow_twin(size: int, temperature: float) -> None:
    """Places and scores to the last bit: what a bound leaves out is not among the best."""
    random = np.random.default_rng(size)
    tokens = np.sort(random.choice(49152, size, replace=False)).astype(np.uint32)
    logits = random.normal(0, 3, size).astype(np.float32)
    logits[3:6] = -np.inf
    logits[7:] = np.where(random.random(len(logits[7:])) < 0.2, logits[0], logits[7:])
    logits[0] = 1.0
    for position in range(20):
        for most in (1, 4, 72):
            args = position, tokens, logits, temperature, most
            ranked = Noise(11, 2).ranked(*args)
            assert NativeNoise(11, 2).ranked(*args) == ranked
            scores = [score for _, score in ranked]
            assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("temperature", [1.0, 1e-9])
def test_a_token_that_ranks_by_a_hair_is_found(temperature: float) -> None:
    """No bound leaves out a token whose score is next to the last one that is kept."""
    tokens = np.arange(64, dtype=np.uint32)
    found = 0
    for seed in range(200):
        g = Noise(seed).gumbel(0, len(tokens))
        logits = np.full(len(tokens), -np.inf, np.float32)
        logits[0] = 0.0
        token = 32 + seed % 32
        if g[token] > g[0]:
            close = np.float32((g[0] - g[token]) * temperature)
            logits[token] = np.nextafter(close, np.float32(0))
        args = 0, tokens, logits, temperature, 1
        ranked = Noise(seed).ranked(*args)
        assert NativeNoise(seed).ranked(*args) == ranked
        found += ranked[0][0] == token
    assert found > 50


def test_a_head_ranks_as_the_target_draws() -> None:
    """The best token of log q + g over the whole vocabulary is the one that q's own law draws."""
    logits = np.random.default_rng(3).normal(0, 2, 500).astype(np.float32)
    every = np.arange(500, dtype=np.uint32)
    for position in range(50):
        ((best, _),) = NativeNoise(5).ranked(position, every, logits, 1.0, 1)
        assert best == Noise(5).draw(logits.astype(np.float64), position)


def test_ranks_are_refused_that_mean_nothing() -> None:
    """Logits of another number than tokens, and no temperature."""
    tokens, logits = np.zeros(3, np.uint32), np.zeros(3, np.float32)
    for wrong in ((logits[:2], 1.0), (logits, 0.0), (logits, float("nan"))):
        with pytest.raises(ValueError, match=r"must be above 0|for each token"):
            NativeNoise(1).ranked(0, tokens, *wrong, 1)
