"""The likeliest tokens of rows of logits, and what all others weigh together.

What drafters learn from the rows that a pass scores. The weight of the others is good to 5 %: it
goes into a drafter's confidence, which is calibrated by counting, and never into a law.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Likeliest", "likeliest_of_rows"]

# exp(x) for x <= 0: the exponent's and the mantissa's bits as one number, linear in x
# (Schraudolph, 1999, "A fast, compact approximation of the exponential function").
_BITS_PER_UNIT = np.float32(12102203.0)
_BITS_OF_ONE = np.float32(1064986823.0)
_STRANDS = 16


class Likeliest(NamedTuple):
    """Of each row, the likeliest tokens.

    Attributes:
        tokens: int32 [rows, most], best first, of equals the lowest first; -1 where no token with a
            finite logit is left.
        logits: float32 [rows, most], theirs; -inf where there is no token.
        rest: float64 [rows], the sum of exp(logit - highest) over all other tokens.
    """

    tokens: NDArray[np.int32]
    logits: NDArray[np.float32]
    rest: NDArray[np.float64]


def likeliest_of_rows(logits: NDArray[np.float32], most: int) -> Likeliest:
    """Return the `most` likeliest tokens of each row of float32 [rows, vocabulary].

    A faster twin, in C++, gives the same bits.
    """
    count = len(logits)
    tokens = np.full((count, most), -1, np.int32)
    values = np.full((count, most), -np.inf, np.float32)
    rest = np.zeros(count)
    for i, row in enumerate(logits):
        there = np.flatnonzero(row > -np.inf)  # nor is NaN
        best = there[np.argsort(-row[there], kind="stable")[:most]]
        if len(best) == 0:
            continue
        tokens[i, : len(best)], values[i, : len(best)] = best, row[best]
        left = float(_total(_quick_exponential(row - row[best[0]])))
        for weight in _quick_exponential(row[best] - row[best[0]]).tolist():
            left -= weight
        rest[i] = max(left, 0.0)
    return Likeliest(tokens, values, rest)


def _quick_exponential(x: NDArray[np.float32]) -> NDArray[np.float32]:
    bits = x * _BITS_PER_UNIT + _BITS_OF_ONE
    return np.where(bits > 0, bits, np.float32(0)).astype(np.int32).view(np.float32)


def _total(numbers: NDArray[np.float32]) -> np.float32:
    """Return the sum in the order of the compiled twin: 16 strands, then by halves."""
    rows = np.zeros((-(-len(numbers) // _STRANDS), _STRANDS), np.float32)
    rows.reshape(-1)[: len(numbers)] = numbers
    sums: NDArray[np.float32] = np.add.reduce(rows, axis=0)
    while len(sums) > 1:
        half = len(sums) // 2
        sums = sums[:half] + sums[half:]
    return np.float32(sums[0])
