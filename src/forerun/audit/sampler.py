"""The plain sampler's law, by statistics with both error rates declared.

`target_token` with production noise is asked at many addresses and its answers are counted. By
Hoeffding's inequality a cell's share strays by t with probability at most 2 exp(-2 n t^2); a
Bonferroni bound over the cells gives the threshold for the declared false-fail rate, and n is the
smallest sample for which an error of the declared size in any cell escapes with at most the
declared false-pass rate. The noise's own distribution is tested by the inequality of Dvoretzky,
Kiefer, Wolfowitz (1956) with Massart's constant (1990). Addresses are fixed, so is the outcome.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import numpy as np

from forerun.audit.twin import law_after
from forerun.config import Generation
from forerun.core.noise import Noise
from forerun.core.rules.match import target_token
from forerun.core.warp import Scores, Warp

__all__ = ["Power", "SamplerFinding", "sampler_tests"]

_LOGITS = np.array([0.4, -0.6, 1.1, 0.1], dtype=np.float32)
_OPTIONS = Generation.make(temperature=0.8, top_k=3)  # one token may never come
_FIRST_SEED = 20_000


@dataclass(frozen=True, slots=True)
class Power:
    """How strong a test is, declared before it is run.

    Attributes:
        smallest_error: The smallest error of a probability that must be noticed.
        false_fail: Most probability that a right sampler fails.
        false_pass: Most probability that a sampler with such an error passes.
    """

    smallest_error: float
    false_fail: float = 1e-6
    false_pass: float = 1e-6

    def sample_size(self, cells: int) -> int:
        """Return the smallest sample that gives this power over so many cells."""
        root = math.sqrt(math.log(2 * cells / self.false_fail))
        root += math.sqrt(math.log(1 / self.false_pass))
        return math.ceil(root**2 / (2 * self.smallest_error**2))

    def threshold(self, cells: int, sample: int) -> float:
        """Return how far a cell's share may stray."""
        return math.sqrt(math.log(2 * cells / self.false_fail) / (2 * sample))


@dataclass(frozen=True, slots=True)
class SamplerFinding:
    """One test and its outcome.

    Attributes:
        name: What was counted.
        sample: How many times.
        power: As declared.
        largest_error: The farthest that any share strayed.
        allowed: How far it might.
        problem: What is wrong; empty if nothing is.
    """

    name: str
    sample: int
    power: Power
    largest_error: float
    allowed: float
    problem: str = ""

    def as_json(self) -> dict[str, object]:
        """Return the record as one JSON object."""
        return asdict(self)


_CHUNK = 2000

Tick = Callable[[float], None]

Draw = Callable[[int], tuple[int, ...]]
"""From the number of a trial to the tokens it drew."""


def sampler_tests(
    smallest_error: float, first_seed: int = _FIRST_SEED
) -> Iterator[Callable[[Tick], SamplerFinding]]:
    """Yield the tests, each to be called with what is told the share that is done.

    Args:
        smallest_error: What must be noticed in the law of a pair of neighbours, or of one token
            over samples or seeds; the noise's own law is held to a tenth of it.
        first_seed: Where the addresses begin.
    """
    warp = Warp(_OPTIONS, len(_LOGITS))
    scores = warp.scores(_LOGITS, warp.start(()))
    power = Power(smallest_error)
    text = Noise(first_seed)

    def neighbours(i: int) -> tuple[int, ...]:
        return _draw(scores, text, 2 * i), _draw(scores, text, 2 * i + 1)

    def samples(i: int) -> tuple[int, ...]:
        return (_draw(scores, Noise(first_seed + 1, i), 0),)

    def seeds(i: int) -> tuple[int, ...]:
        return (_draw(scores, Noise(first_seed + 2 + i), 7),)

    yield lambda tick: _count("pairs of neighbouring positions", neighbours, 2, power, tick)
    yield lambda tick: _count("samples of one prompt", samples, 1, power, tick)
    yield lambda tick: _count("seeds", seeds, 1, power, tick)
    yield lambda _: _noise_law(first_seed, Power(smallest_error / 10))


def _draw(scores: Scores, noise: Noise, position: int) -> int:
    return target_token(scores, noise, position)


def _count(name: str, draw: Draw, size: int, power: Power, tick: Tick) -> SamplerFinding:
    """Compare the shares of all texts of `size` tokens with the product of the twin's law."""
    law = law_after(list(map(float, _LOGITS)), (), (), _OPTIONS)
    cells = {
        tokens: math.prod(law[token] for token in tokens)
        for tokens in itertools.product(range(len(law)), repeat=size)
    }
    sample = power.sample_size(len(cells))
    counts: Counter[tuple[int, ...]] = Counter()
    for start in range(0, sample, _CHUNK):
        tick(start / sample)
        counts.update(draw(i) for i in range(start, min(sample, start + _CHUNK)))
    errors = {tokens: abs(counts[tokens] / sample - p) for tokens, p in cells.items()}
    worst = max(errors, key=errors.__getitem__)
    allowed = power.threshold(len(cells), sample)
    problem = ""
    if errors[worst] > allowed:
        problem = f"{worst} comes {counts[worst] / sample:.4f} of the time, not {cells[worst]:.4f}"
    impossible = [tokens for tokens, p in cells.items() if p == 0 and counts[tokens]]
    if impossible:
        problem = f"{impossible[0]} came, which has probability 0"
    return SamplerFinding(name, sample, power, errors[worst], allowed, problem)


def _noise_law(seed: int, power: Power) -> SamplerFinding:
    """Compare the noise's distribution with Gumbel's, exp(-exp(-g))."""
    roots = math.sqrt(math.log(2 / power.false_fail) / 2)
    roots += math.sqrt(math.log(2 / power.false_pass) / 2)
    sample = math.ceil((roots / power.smallest_error) ** 2)
    width = 4096
    noise = Noise(seed)
    rows = [noise.gumbel(i, width) for i in range(math.ceil(sample / width))]
    shares = np.exp(-np.exp(-np.sort(np.concatenate(rows))))
    steps = np.arange(len(shares) + 1) / len(shares)
    error = float(max((steps[1:] - shares).max(), (shares - steps[:-1]).max()))
    allowed = math.sqrt(math.log(2 / power.false_fail) / (2 * len(shares)))
    problem = f"the noise is {error:.4f} away from Gumbel's law" if error > allowed else ""
    return SamplerFinding("the noise's own law", len(shares), power, error, allowed, problem)
