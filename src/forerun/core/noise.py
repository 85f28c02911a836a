"""Noise with an address: the same numbers wherever and whenever they are asked for.

There is no generator with a state. A number is a pure function of the seed and of where it is used
(Philox-4x32-10: Salmon et al., 2011, "Parallel random numbers: as easy as 1, 2, 3"). The logarithm
is our own, made of IEEE additions, multiplications and divisions only, so that a seed gives the
same noise on every machine, and a compiled twin can give the same bits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.errors import OptionError

__all__ = ["Domain", "Noise", "key_of", "logarithm", "philox", "uniform"]

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
# Tokens at a time: what fits into a processor's cache is made in a third of the time.
_PART = 16384


class Domain(IntEnum):
    """What a number is for: the last word of its counter, so that no two uses share a number."""

    NOISE_HIGH = 0
    NOISE_LOW = 1
    DRAFT = 2
    ACCEPT = 3
    RESIDUAL = 4
    BONUS = 5


def key_of(seed: int, sample: int) -> tuple[int, int]:
    """Return the key of a text's numbers: the seed's low and high 32 bits.

    Raises:
        OptionError: The seed has not 64 bits, or the sample not 32; cut to them, two texts would
            share their numbers.
    """
    if not 0 <= sample < 2**32:
        raise OptionError(f"The sample is {sample}.", "Give a whole number from 0 to 2^32 - 1.")
    if not 0 <= seed < 2**64:
        raise OptionError(f"The seed is {seed}.", "Give a whole number from 0 to 2^64 - 1.")
    return seed & _MASK, seed >> 32


def philox(counter: tuple[Any, Any, Any, Any], key: tuple[int, int]) -> tuple[Any, Any, Any, Any]:
    """Return the four 32-bit words of Philox-4x32-10 at `counter` under `key`.

    Args:
        counter: Four 32-bit words, each an int or a uint64 array (all broadcast together).
        key: Two 32-bit words.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        left, right = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (right >> 32) ^ c1 ^ k0,
            right & _MASK,
            (left >> 32) ^ c3 ^ k1,
            left & _MASK,
        )
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return c0, c1, c2, c3


def uniform(high: Any, low: Any) -> Any:
    """Turn two 32-bit words into an odd multiple of 2^-53: uniform, and never 0 or 1."""
    return ((((high << 32) | low) >> 12) + 0.5) * 2.0**-52


# Coefficients of the even polynomial of log((1+s)/(1-s)) on |s| < 0.1716 (error under 2^-58),
# as in Ng's fdlibm, `e_log.c`; ln 2 is split so that k * LN2_HIGH is exact.
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_POLYNOMIAL = (
    6.666666666666735130e-01,
    3.999999999940941908e-01,
    2.857142874366239149e-01,
    2.222219843214978396e-01,
    1.818357216161805012e-01,
    1.531383769920937332e-01,
    1.479819860511658591e-01,
)


def logarithm(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the natural logarithm of positive finite `x` (float64), within 2 ulp, portably."""
    mantissa, exponent = np.frexp(x)
    small = mantissa < np.sqrt(0.5)
    f = np.where(small, mantissa * 2.0, mantissa) - 1.0
    k = (exponent - small).astype(np.float64)
    s = f / (2.0 + f)
    z = s * s
    series = np.full_like(z, _POLYNOMIAL[-1])
    for coefficient in _POLYNOMIAL[-2::-1]:
        series = series * z + coefficient
    half = 0.5 * f * f
    rest = s * (half + series * z) + k * _LN2_LOW
    return np.asarray(k * _LN2_HIGH - ((half - rest) - f))


def _gumbel(u: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return -log(-log(1 - u)): standard Gumbel, finest where it is large."""
    y = 1.0 - u
    # log1p by Kahan's correction: 1 - u is rounded, and u / (1 - y) repairs it.
    exponential = np.where(y == 1.0, u, -logarithm(y) * (u / np.where(y == 1.0, 1.0, 1.0 - y)))
    return -logarithm(exponential)


class Noise:
    """Gumbel noise g(seed, sample, position, token) of one text.

    Args:
        seed: 64 bits.
        sample: Which of several samples of one prompt, 32 bits.
    """

    # Positions: drafter, verification and the next draft look at the same few. At 49,152 tokens
    # one is 400 kB, and a batch has many texts.
    _KEPT = 16

    def __init__(self, seed: int, sample: int = 0) -> None:
        self.seed = seed
        self.sample = sample
        self._key = key_of(seed, sample)
        self._cache: OrderedDict[tuple[int, int], NDArray[np.float64]] = OrderedDict()

    def gumbel(self, position: int, vocab_size: int) -> NDArray[np.float64]:
        """Return the noise of the token at `position`, float64 [vocab_size]; do not write to it.

        The target's token at `position` is argmax(log p + g) (Gumbel-max).
        """
        key = (position, vocab_size)
        if key not in self._cache:
            self._cache[key] = self._make(position, vocab_size)
            if len(self._cache) > self._KEPT:
                self._cache.popitem(last=False)
        return self._cache[key]

    def at(self, position: int, tokens: Sequence[int]) -> list[float]:
        """Return the noise of some tokens at `position`: what `gumbel` has for them.

        Only their own numbers are made, so it is cheap for a few tokens of a large vocabulary.
        """
        noise: list[float] = self.among(position, np.array(tokens, dtype=np.uint32)).tolist()
        return noise

    def among(self, position: int, tokens: NDArray[np.uint32]) -> NDArray[np.float64]:
        """Return what `at` does for more of them, float64 [tokens]."""
        ids = tokens.astype(np.uint64)
        place = np.array([position], np.uint64), np.array([self.sample], np.uint64)
        domains = np.array([[Domain.NOISE_HIGH], [Domain.NOISE_LOW]], dtype=np.uint64)
        words = np.stack(philox((ids // 4, *place, domains), self._key), axis=-1)
        high, low = words[:, np.arange(len(ids)), (ids % 4).astype(np.intp)]
        noise: NDArray[np.float64] = _gumbel(uniform(high, low))
        return noise

    def ranked(
        self,
        position: int,
        tokens: NDArray[np.uint32],
        logits: NDArray[np.float32],
        temperature: float,
        most: int,
    ) -> list[tuple[int, float]]:
        """Return the best tokens by log q + g, the best first, of equals the one that stands first.

        Args:
            position: Where the token would stand.
            tokens: Which there are to choose from, uint32 [n].
            logits: Of q, float32 [n].
            temperature: Above 0.
            most: How many, at most; -inf is not among them.

        Returns:
            Their places in `tokens`, and their scores: log q + g, up to a constant.
        """
        below = logits.astype(np.float64) - float(logits.max())
        with np.errstate(over="ignore"):  # at a tiny temperature all but one fall
            scores = below / temperature + self.among(position, tokens)
        best = np.argsort(-scores, kind="stable")[:most].tolist()
        return [(at, float(scores[at])) for at in best if scores[at] > -np.inf]

    def draw(self, scores: NDArray[np.float64], position: int) -> int:
        """Return argmax(scores + g), ties to the lowest id: the token at `position`.

        A faster twin of this class overrides `draw` and `_make`; core itself knows numpy only.

        Args:
            scores: Warped log-weights, float64 [vocabulary].
            position: Of the token to be chosen.
        """
        if np.count_nonzero(scores > -np.inf) == 1:  # one token left: noise can't change it
            return int(np.argmax(scores))
        return int(np.argmax(scores + self.gumbel(position, len(scores))))

    def _make(self, position: int, vocab_size: int) -> NDArray[np.float64]:
        noise = np.empty(vocab_size)
        domains = np.array([[Domain.NOISE_HIGH], [Domain.NOISE_LOW]], dtype=np.uint64)
        # Arrays, not scalars: numpy 1 would make a uint64 scalar times an int a float.
        place = np.array([position], np.uint64), np.array([self.sample], np.uint64)
        for start in range(0, vocab_size, _PART):
            stop = min(start + _PART, vocab_size)
            # Token x reads word x mod 4 of block x // 4, so that a wide machine makes four at once.
            blocks = np.arange(start // 4, (stop + 3) // 4, dtype=np.uint64)
            words = np.stack(philox((blocks, *place, domains), self._key), axis=-1)
            high, low = words.reshape(2, -1)[:, : stop - start]
            noise[start:stop] = _gumbel(uniform(high, low))
        noise.setflags(write=False)
        return noise
