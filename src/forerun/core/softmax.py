"""Exponentials, their sums and laws, made of IEEE operations in a written order.

numpy's own exponential and sum differ by processor and version in their last bits, which may decide
what top-p keeps. These have the same bits on every machine, and a compiled twin can give them too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from forerun.core.noise import logarithm

__all__ = ["exponential", "log_normaliser", "quick_exponential", "softmax", "total"]

Numbers = NDArray[np.float64]
Floats = NDArray[np.float32]

# exp(x) = 2^(n/16) exp(r) with |r| <= ln 2 / 32; ln 2 / 16 is split so that n times its first part
# is exact.
_STEPS = float.fromhex("0x1.71547652b82fep+4")
_STEP_HIGH = float.fromhex("0x1.62e42fefa0000p-5")
_STEP_LOW = float.fromhex("0x1.cf79abc9e3b3ap-44")
_LEAST = -707.0
"""Below this the exponential is 0: what is lost is less than 10^-306."""

_DIGITS = """
0000000000000 0b5586cf9890f 172b83c7d517b 2387a6e756238
306fe0a31b715 3dea64c123422 4bfdad5362a27 5ab07dd485429
6a09e667f3bcd 7a11473eb0187 8ace5422aa0db 9c49182a3f090
ae89f995ad3ad c199bdd85529c d5818dcfba487 ea4afa2a490da
"""
_ROOTS = np.array([float.fromhex(f"0x1.{digits}p+0") for digits in _DIGITS.split()])
"""2^(i/16)."""

# (exp(r) - 1 - r) / r^2, interpolated at Chebyshev's points: exp(r) is off by 2^-55 at most.
_SERIES = tuple(
    float.fromhex(x)
    for x in (
        "0x1.6c17bb51f236dp-10",
        "0x1.11120af701debp-7",
        "0x1.55555555194d2p-5",
        "0x1.55555554dd44dp-3",
        "0x1p-1",
    )
)

_STRANDS = 32

# 2^r for |r| <= 1/2, (2^r - 1) / r interpolated at Chebyshev's points: off by 3e-7 at most, and by
# 1e-8 on average.
_QUICK_SERIES = tuple(
    np.float32(float.fromhex(x))
    for x in (
        "0x1.5ec866p-10",
        "0x1.3cbf60p-7",
        "0x1.c6afeep-5",
        "0x1.ebfa4cp-3",
        "0x1.62e430p-1",
        "0x1p+0",
    )
)
_MAGIC = np.float32(1.5 * 2**23 + 127)
"""What is added to it is rounded to a whole number."""

_CHUNK = 4096
"""Numbers of a row that are added up by themselves, by whichever thread."""


def exponential(x: Numbers) -> Numbers:
    """Return exp(x) of numbers up to 0, -inf included: within 2 ulp, or 0 below -707."""
    kept = np.maximum(x, _LEAST)
    n = np.rint(kept * _STEPS)
    r = (kept - n * _STEP_HIGH) - n * _STEP_LOW
    series = np.full_like(r, _SERIES[0])
    for coefficient in _SERIES[1:]:
        series = series * r + coefficient
    rest = series * (r * r) + r
    steps = n.astype(np.int32)
    root = _ROOTS[steps & 15]
    return np.where(x < _LEAST, 0.0, np.ldexp(root + root * rest, steps >> 4))


def total(numbers: Numbers) -> float:
    """Return the sum of float64 [n], in an order that machines of any width can keep.

    Number i goes to strand i mod 32, in ascending order; the strands are then added by halves.
    """
    rows = np.zeros((-(-len(numbers) // _STRANDS), _STRANDS))
    rows.reshape(-1)[: len(numbers)] = numbers
    sums = np.add.reduce(rows, axis=0)  # row by row: numpy adds pairwise along rows only
    while len(sums) > 1:
        half = len(sums) // 2
        sums = sums[:half] + sums[half:]
    return float(sums[0])


def softmax(scores: Numbers) -> Numbers:
    """Return exp(scores) over their sum, float64 [n]; the highest score must be finite."""
    weights = exponential(scores - scores.max())
    return weights / total(weights)


def log_normaliser(logits: NDArray[np.float32]) -> tuple[float, float]:
    """Return the highest logit, and the logarithm of the sum of exp(logit - highest).

    log p of a token is (its logit - the first) - the second. The exponentials are of single
    precision, as logits are: the logarithm is off by some 1e-7, and by less than a logit of 8 is
    from its neighbours.
    """
    highest = np.float32(logits.max()) + np.float32(0)  # no -0, which depends on the order
    parts = -(-len(logits) // _CHUNK)
    below = np.full((parts, _CHUNK // 64, 4, 16), -np.inf, np.float32)
    with np.errstate(over="ignore"):  # what is too far below for a number weighs nothing
        below.reshape(-1)[: len(logits)] = logits - highest
    fours = quick_exponential(below)
    weights = (fours[:, :, 0] + fours[:, :, 1]) + (fours[:, :, 2] + fours[:, :, 3])
    sums = np.add.reduce(weights.astype(np.float64), axis=1)
    while sums.shape[1] > 1:
        half = sums.shape[1] // 2
        sums = sums[:, :half] + sums[:, half:]
    whole = 0.0
    for chunk in sums[:, 0].tolist():
        whole += chunk
    return float(highest), float(logarithm(np.array([whole]))[0])


def quick_exponential(x: Floats) -> Floats:
    """Return exp(x), float32, of numbers up to 0; below -87, exp(-87).

    2^n * 2^r with n + r = x / ln 2, and a polynomial. That quotient is rounded, which takes from
    exp(x) up to 6e-8 x of itself: little from those that weigh much.
    """
    twos = np.maximum(x, np.float32(-87)) * np.float32(1.44269504)
    shifted = twos + _MAGIC
    r = twos - (shifted - _MAGIC)
    series = np.full_like(r, _QUICK_SERIES[0])
    for coefficient in _QUICK_SERIES[1:]:
        series = series * r + coefficient
    # The low bits of `shifted` are n + 127, which is 2^n's exponent.
    powers = (shifted.view(np.uint32) << np.uint32(23)).view(np.float32)
    weights: Floats = series * powers
    return weights
