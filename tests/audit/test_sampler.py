"""The sampler's statistics: right samplers pass, wrong ones of the declared size fail."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from forerun.audit.sampler import Power, SamplerFinding, sampler_tests
from forerun.core.noise import Noise
from forerun.core.warp import Scores, law

Sampler = Callable[[Scores, Noise, int], int]
ERROR = 0.15
PAIRS, SAMPLES, SEEDS, NOISE = range(4)  # the order of the tests


def _finding(number: int) -> SamplerFinding:
    return list(sampler_tests(ERROR))[number](lambda share: None)


def test_production_passes() -> None:
    """The production sampler strays no farther than chance allows."""
    findings = [test(lambda share: None) for test in sampler_tests(ERROR)]
    assert [finding for finding in findings if finding.problem] == []
    assert all(f.largest_error <= f.allowed < f.power.smallest_error for f in findings)
    assert len({finding.name for finding in findings}) == 4


def _greedy(scores: Scores, noise: Noise, position: int) -> int:
    return int(np.argmax(scores))


def _half_noise(scores: Scores, noise: Noise, position: int) -> int:
    return int(np.argmax(scores + 0.5 * noise.gumbel(position, len(scores))))


def _one_position(scores: Scores, noise: Noise, position: int) -> int:
    return int(np.argmax(scores + noise.gumbel(0, len(scores))))


def _one_pair(scores: Scores, noise: Noise, position: int) -> int:
    return int(np.argmax(scores + noise.gumbel(position // 2, len(scores))))


def _filter_forgotten(scores: Scores, noise: Noise, position: int) -> int:
    return int(np.argmax(np.where(np.isfinite(scores), scores, -1.0) + noise.gumbel(position, 4)))


def _moved(scores: Scores, noise: Noise, position: int) -> int:
    p = law(scores)
    best, worst = int(np.argmax(p)), int(np.argmin(np.where(p > 0, p, 1)))
    p[best] -= ERROR
    p[worst] += ERROR
    with np.errstate(divide="ignore"):
        return int(np.argmax(np.log(p) + noise.gumbel(position, len(p))))


@pytest.mark.parametrize(
    ("wrong", "noticed"),
    [
        (_greedy, SEEDS),
        (_half_noise, SAMPLES),
        (_one_position, PAIRS),
        (_one_pair, PAIRS),
        (_filter_forgotten, SEEDS),
        (_moved, SAMPLES),
    ],
)
def test_wrong_samplers_fail(wrong: Sampler, noticed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sampler that is wrong by the declared error is noticed."""
    monkeypatch.setattr("forerun.audit.sampler.target_token", wrong)
    assert _finding(noticed).problem


def test_a_wrong_noise_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise of another law is noticed, though it lies close to Gumbel's."""
    own = Noise.gumbel
    monkeypatch.setattr(Noise, "gumbel", lambda *place: own(*place) * 1.1)
    assert _finding(NOISE).problem


@pytest.mark.parametrize("cells", [1, 4, 16])
@pytest.mark.parametrize("error", [0.02, 0.1])
def test_samples_are_as_large_as_the_rates_ask(cells: int, error: float) -> None:
    """Both declared rates follow from the sample size, and from no smaller one."""
    power = Power(error, false_fail=1e-6, false_pass=1e-4)
    sample = power.sample_size(cells)
    allowed = power.threshold(cells, sample)
    assert 2 * cells * math.exp(-2 * sample * allowed**2) == pytest.approx(1e-6)
    assert math.exp(-2 * sample * (error - allowed) ** 2) <= 1e-4
    assert error - power.threshold(cells, sample - 1) < math.sqrt(
        math.log(1e4) / (2 * (sample - 1))
    )
