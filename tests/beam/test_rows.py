"""The likeliest tokens of many rows: the compiled twin against the slow one."""

from __future__ import annotations

import numpy as np
import pytest

from forerun.beam.rows import ranked_rows
from forerun.config import Sampling
from forerun.core.beams import ranked
from forerun.core.noise import Noise
from forerun.core.warp import Warp
from forerun.errors import EngineError
from forerun.native import fast_warp


@pytest.mark.parametrize(
    "sampling",
    [Sampling(), Sampling(logit_bias={3: 2.0}), Sampling(repetition_penalty=1.5)],
    ids=["plain", "bias", "penalty"],
)
@pytest.mark.parametrize("size", [2, 17, 5000])
def test_twins_agree_to_the_bit(sampling: Sampling, size: int) -> None:
    """Tokens and log-probabilities are the same, with ties and without, and with -inf."""
    size = max(size, 4 if sampling.logit_bias else 2)
    logits = np.array([Noise(5).gumbel(i, size) for i in range(6)], np.float32) * 3
    logits[1] = np.round(logits[1])
    logits[2] = 1.25
    logits[3, 1:] = -np.inf
    slow, fast = Warp(sampling, size), fast_warp(sampling, size)
    states = [slow.start([1, 0]).advance(i % size) for i in range(6)]
    for most in (1, 5, 40):
        truth = [ranked(slow, row, state, most) for row, state in zip(logits, states, strict=True)]
        assert ranked_rows(fast, logits, states, most, threads=2) == truth


def test_a_row_that_is_no_law_is_refused() -> None:
    """NaN, infinity, and nothing at all."""
    for value in (np.nan, np.inf, -np.inf):
        logits = np.zeros((2, 9), np.float32)
        logits[1] = value
        warp = fast_warp(Sampling(), 9)
        with pytest.raises(EngineError):
            ranked_rows(warp, logits, [warp.start([1])] * 2, 3)
