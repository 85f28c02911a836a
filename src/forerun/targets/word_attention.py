"""Attention as the native pass computes it, in plain numpy, bit for bit.

The slow twin of ``src/native/attention.h`` and its specification. Keys and values are kept in 16
bits (Vaswani et al. 2017, section 3.2.1, on integers): a row sees its context in ascending order,
and every sum is either of integers, which is exact, or of float32 in an order that is written down
here. So a row's result depends on what it sees, and on nothing else.

1. Queries, keys and values become whole numbers, one scale a head of a position (`_words`).
2. A score sums the products of 16 components as integers, those sums as floats.
3. The softmax sums in 16 lanes; its exponential is `quick_exponential`.
4. Weights, times the scales of their values, become whole numbers in spans of 128 positions
   (`_weight_words`); a span's products are summed as integers, the spans as floats.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.core.softmax import quick_exponential
from forerun.targets.quantised_product import SMALLEST_MAGNITUDE, scaled_integers

__all__ = ["attend"]

Array = NDArray[np.float32]
Words = NDArray[np.int64]

# No sum of products exceeds 32 bits: query * key * 16 < 2^31, value * (span total + 64) < 2^31.
_QUERY_LIMIT, _KEY_LIMIT, _VALUE_LIMIT, _WEIGHT_LIMIT = 8191, 16383, 16383, 32767
_SPAN_TOTAL = np.float32(126000)
_SPAN = 128
_LANES = 16
_ONE = np.float32(1)


def attend(
    queries: Array, keys: Array, values: Array, parents: Sequence[int], kv_bits: int = 16
) -> Array:
    """Return what each row of a pass makes of the committed positions, its ancestors and itself.

    Args:
        queries: float32 [rows, heads, head_dim].
        keys: float32 [committed + rows, kv_heads, head_dim]; each serves heads / kv_heads
            neighbouring heads.
        values: float32, likewise.
        parents: Of each row: an earlier row, or -1 for the last committed position.
        kv_bits: 16; or 32, in which nothing is rounded to whole numbers.

    Returns:
        float32 [rows, heads, head_dim]; NaN for a head that sees an infinity or a NaN.
    """
    rows, heads, head_dim = queries.shape
    group = heads // keys.shape[1]
    one_head = _attend_words if kv_bits == 16 else _attend_floats
    result = np.empty_like(queries)
    paths: list[list[int]] = []
    with np.errstate(all="ignore"):
        queries = queries * (_ONE / np.sqrt(np.float32(head_dim)))
        for row, parent in enumerate(parents):
            before = list(range(len(keys) - rows)) if parent < 0 else paths[parent]
            paths.append([*before, len(keys) - rows + row])
            for head in range(heads):
                seen = np.asarray(paths[row]), head // group
                result[row, head] = one_head(queries[row, head], keys[seen], values[seen])
    return result


def _attend_words(query: Array, keys: Array, values: Array) -> Array:
    """One head over its context: float32 [head_dim], twice [L, head_dim]."""
    query_words, query_scale = _words(query, _QUERY_LIMIT)
    key_words, key_scales = _words(keys, _KEY_LIMIT)
    value_words, value_scales = _words(values, _VALUE_LIMIT)
    scores = np.zeros(len(keys), np.float32)
    for first in range(0, len(query), _LANES):
        part = slice(first, first + _LANES)
        scores += (key_words[:, part] @ query_words[part]).astype(np.float32)
    weights, divisor = _softmax(scores * (key_scales * query_scale))
    total = np.zeros_like(query)
    for first in range(0, len(keys), _SPAN):
        span = slice(first, first + _SPAN)
        words, scale = _weight_words(weights[span] * value_scales[span])
        total += (words @ value_words[span]).astype(np.float32) * scale
    return total / divisor


def _attend_floats(query: Array, keys: Array, values: Array) -> Array:
    """The same in 32 bits: even and odd components apart, one position after the other."""
    sums = np.zeros((2, len(keys)), np.float32)
    for i, component in enumerate(query):
        sums[i % 2] += keys[:, i] * component
    weights, divisor = _softmax(sums[0] + sums[1])
    total = np.zeros_like(query)
    for weight, value in zip(weights, values, strict=True):
        total += value * weight
    return total / divisor


def _words(x: Array, limit: int) -> tuple[Words, Array]:
    """Return float32 [..., n] as whole numbers up to `limit`, and their scales, float32 [...]."""
    integers, scales = scaled_integers(x, np.float32(limit))
    return integers.astype(np.int64), scales


def _weight_words(weights: Array) -> tuple[Words, np.float32]:
    """Return a span's weights, none negative, as whole numbers, and their scale.

    Their total is `_SPAN_TOTAL`, or less where the largest would exceed 16 bits.
    """
    total, largest = _sum(weights), weights.max()
    if not np.isfinite(total):
        return np.zeros(len(weights), np.int64), np.float32(np.nan)
    if largest < SMALLEST_MAGNITUDE:
        return np.zeros(len(weights), np.int64), np.float32(0)
    factor = min(_SPAN_TOTAL / total, np.float32(_WEIGHT_LIMIT) / largest)
    return np.rint(weights * factor).astype(np.int64), _ONE / factor


def _softmax(scores: Array) -> tuple[Array, np.float32]:
    """Return exp(scores - their largest), float32 [L], and their sum."""
    weights = quick_exponential(scores - scores.max())
    return weights, _sum(weights)


def _sum(x: Array) -> np.float32:
    """Add in 16 lanes, value i to lane i % 16, and the lanes by halves."""
    lanes = np.zeros(_LANES, np.float32)
    for first in range(0, len(x), _LANES):
        part = x[first : first + _LANES]
        lanes[: len(part)] += part
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    return np.float32(lanes[0])
