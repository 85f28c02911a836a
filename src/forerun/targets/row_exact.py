"""Operations whose every row depends on that row alone, bit for bit.

A matrix library chooses its method by the shape of the call: the same row times the same matrix
may differ in its last bits when it comes alone, with one neighbour or with fifty. So each product
is measured when it is built: how many rows a call must have until its rows agree with those of all
larger calls. Smaller calls are padded to that; where no such number exists, every row gets a call
of its own. All else works element by element or along a contiguous last axis of fixed length.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["RowExactProduct", "attend", "rms_norm", "rotate", "silu_gate"]

Array = NDArray[np.float32]

# A pass of more rows is cut into calls of this many, so that no unmeasured shape is called.
LARGEST_CALL = 256
# Padding further than this costs more than calls of one row.
_MOST_PADDING = 16
_PROBED = (*range(2, 10), 15, 16, 17, 31, 33, 64)
# Small matrices are cheap to probe, and more often change their method with the shape.
_PROBED_SMALL = (*range(2, 66), 95, 96, 127, 128, 129, 191, 200, 254, 255)
_SMALL = 1 << 19

# How this process's matrix library behaves, by (outputs, inputs); it cannot change while we run.
_safe_rows: dict[tuple[int, int], int] = {}


class RowExactProduct:
    """Rows times a fixed matrix.

    Args:
        weight: float32 [outputs, inputs], C-contiguous.

    Attributes:
        weight: The matrix.
        safe_rows: Fewest rows in a call; 1: each row gets a call of its own.
    """

    __slots__ = ("safe_rows", "weight")

    def __init__(self, weight: Array) -> None:
        self.weight = weight
        if weight.shape not in _safe_rows:
            _safe_rows[weight.shape[0], weight.shape[1]] = _measure_safe_rows(weight)
        self.safe_rows = _safe_rows[weight.shape[0], weight.shape[1]]

    def __call__(self, rows: Array) -> Array:
        """Return rows × weightᵀ, float32 [M, outputs], for rows float32 [M, inputs]."""
        result = np.empty((len(rows), len(self.weight)), dtype=np.float32)
        size = 1 if self.safe_rows == 1 else LARGEST_CALL
        for start in range(0, len(rows), size):
            part = np.ascontiguousarray(rows[start : start + size])
            result[start : start + size] = self._call(part)
        return result

    def _call(self, part: Array) -> Array:
        count = len(part)
        if count >= self.safe_rows:
            return part @ self.weight.T
        padded = np.zeros((self.safe_rows, part.shape[1]), dtype=np.float32)
        padded[:count] = part
        return (padded @ self.weight.T)[:count]


def _measure_safe_rows(weight: Array) -> int:
    """Return the fewest rows from which on all probed calls agree bit for bit, or 1 for none."""
    outputs, inputs = weight.shape
    rows = np.random.default_rng(0).standard_normal((LARGEST_CALL, inputs), dtype=np.float32)
    expected = rows @ weight.T
    is_small = outputs * inputs <= _SMALL
    probed = _PROBED_SMALL if is_small else _PROBED
    safe = probed[0]
    for count in probed:
        # The last rows, first in a call of their own: a row's place must not matter either.
        for start in (LARGEST_CALL - count, 0)[: 1 + is_small]:
            part = rows[start : start + count] @ weight.T
            if not np.array_equal(part, expected[start : start + count]):
                safe = count + 1
    return safe if safe <= _MOST_PADDING else 1


def rms_norm(rows: Array, weight: Array, epsilon: float) -> Array:
    """Return rows scaled to mean square 1, times `weight` (Zhang and Sennrich 2019).

    Args:
        rows: float32 [..., n], C-contiguous.
        weight: float32 [n].
        epsilon: Added to the mean square.
    """
    total: Array = np.add.reduce(rows * rows, axis=-1, keepdims=True)
    root: Array = np.sqrt(total / np.float32(rows.shape[-1]) + np.float32(epsilon))
    return rows / root * weight


def silu_gate(gate_up: Array) -> Array:
    """Return silu(gate) × up, float32 [M, n], for gate and up side by side, float32 [M, 2n]."""
    inner = gate_up.shape[1] // 2
    gate = gate_up[:, :inner]
    with np.errstate(over="ignore"):
        # exp overflows to infinity where silu is zero, as it should be.
        divisor: Array = np.exp(-gate) + np.float32(1)
    return gate / divisor * gate_up[:, inner:]


def rotate(heads: Array, cosines: Array, sines: Array, interleaved: bool) -> None:
    """Turn the first 2d components of each head in place (Su et al. 2021, section 3.4.2).

    Args:
        heads: float32 [M, heads, head_dim].
        cosines: float32 [M, d], of each row's position.
        sines: float32 [M, d].
        interleaved: Whether pairs are neighbours or lie d apart.
    """
    pairs = cosines.shape[1]
    first = slice(0, 2 * pairs, 2) if interleaved else slice(0, pairs)
    second = slice(1, 2 * pairs, 2) if interleaved else slice(pairs, 2 * pairs)
    x, y = heads[..., first], heads[..., second]
    cosine, sine = cosines[:, None, :], sines[:, None, :]
    turned_x, turned_y = x * cosine - y * sine, x * sine + y * cosine
    heads[..., first], heads[..., second] = turned_x, turned_y


def attend(query: Array, keys: Array, values: Array) -> Array:
    """Return one row's attention over its context (Vaswani et al. 2017, section 3.2.1).

    The shapes of both products, and the order of every sum, follow from the context's length.

    Args:
        query: float32 [kv_heads, group, head_dim], already scaled.
        keys: float32 [kv_heads, L, head_dim], the last two axes contiguous.
        values: float32 [kv_heads, L, head_dim], likewise.

    Returns:
        float32 [kv_heads, group, head_dim].
    """
    weights: Array = query @ keys.transpose(0, 2, 1)
    weights -= np.maximum.reduce(weights, axis=-1, keepdims=True)
    np.exp(weights, out=weights)
    weights /= np.add.reduce(weights, axis=-1, keepdims=True)
    result: Array = weights @ values
    return result
