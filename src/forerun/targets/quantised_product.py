"""Rows times a quantised matrix as the native kernels compute it, in plain numpy, bit for bit.

The slow twin of ``src/native/multiply.h``, and its specification: rows of activations are rounded
to signed 8 bits with one scale per group of 32 inputs, the products of a group are summed as
integers, exactly, and the groups' sums are added in ascending order, each by one fused
multiply-add, or by two where the weights have a scale per 16 inputs. So a row's result depends on
no other row, and on no machine.
"""

from __future__ import annotations

from typing import NamedTuple

import gguf
import numpy as np
from numpy.typing import NDArray

from forerun.targets.stored_blocks import BLOCKS, GROUP, UnpackedBlocks, unpack

__all__ = [
    "SMALLEST_MAGNITUDE",
    "Matrix",
    "Quantised",
    "fused_multiply_add",
    "multiply",
    "quantise",
    "scaled_integers",
]

Array = NDArray[np.float32]

# 1 / scale must not overflow, nor the scale lose bits as a subnormal.
SMALLEST_MAGNITUDE = np.float32(2.0**-100)
_LARGEST_VALUE = np.float32(127)


class Quantised(NamedTuple):
    """Rows in 8 bits.

    Attributes:
        values: int8 [M, groups, 32], from -127 to 127.
        scales: float32 [M, groups].
    """

    values: NDArray[np.int8]
    scales: Array


class Matrix:
    """A matrix as a GGUF file stores it.

    Args:
        type_name: A key of `stored_blocks.BLOCKS`, or F32, F16 or BF16.
        data: uint8, the rows' bytes one after the other.
        outputs: How many rows.
        inputs: Their length; whole blocks of a quantised type.

    Attributes:
        blocks: The integers and scales of a quantised type; None for a float type.
        weights: float32 [outputs, inputs], the weights of a float type; empty for the others.

    Raises:
        KeyError: No such type.
        ValueError: The bytes are not those of such a matrix.
    """

    def __init__(self, type_name: str, data: NDArray[np.uint8], outputs: int, inputs: int) -> None:
        self.type = gguf.GGMLQuantizationType[type_name]
        self.outputs, self.inputs = outputs, inputs
        self._stored = data.reshape(outputs, -1)
        self.blocks: UnpackedBlocks | None = None
        self.weights: Array = np.empty((0, 0), np.float32)
        with np.errstate(all="ignore"):
            if type_name in BLOCKS:
                self.blocks = unpack(type_name, self._stored)
            else:
                self.weights = gguf.dequantize(self._stored, self.type).reshape(outputs, inputs)

    def dequantise_row(self, output: int) -> Array:
        """Return one row as float32 [inputs], as the gguf package dequantises it."""
        row: Array = gguf.dequantize(self._stored[output], self.type)
        return row


def quantise(x: Array) -> Quantised:
    """Round rows to 8 bits, half to even, one scale per group: its largest magnitude / 127.

    A group of magnitudes below 2^-100 becomes zeros. A group that holds an infinity or a NaN
    becomes zeros with the scale NaN, which makes every output of its row, and of no other, NaN.

    Args:
        x: float32 [M, inputs]; the inputs a multiple of 32.
    """
    values, scales = scaled_integers(x.reshape(len(x), -1, GROUP), _LARGEST_VALUE)
    return Quantised(values.astype(np.int8), scales)


def scaled_integers(x: Array, limit: np.float32) -> tuple[Array, Array]:
    """Round the last axis to whole numbers, half to even, with the scale largest / limit.

    Magnitudes below 2^-100 become zeros with the scale 0; what holds an infinity or a NaN becomes
    zeros with the scale NaN.

    Args:
        x: float32 [..., n].
        limit: The largest whole number.

    Returns:
        The whole numbers, float32 [..., n], and scales, float32 [...].
    """
    with np.errstate(all="ignore"):
        largest = np.abs(x).max(axis=-1, initial=0)
        counts = np.isfinite(largest) & (largest >= SMALLEST_MAGNITUDE)
        scales = np.where(counts, largest / limit, np.float32(0))
        inverses = np.where(counts, np.float32(1) / scales, np.float32(0))
        rounded = np.rint(x * inverses[..., np.newaxis])
    integers = np.where(counts[..., np.newaxis], rounded, np.float32(0))
    return integers, np.where(np.isfinite(largest), scales, np.float32(np.nan))


def multiply(matrix: Matrix, x: Array) -> Array:
    """Return rows x, float32 [M, inputs], times the matrix: float32 [M, outputs]."""
    total = np.zeros((len(x), matrix.outputs), dtype=np.float32)
    with np.errstate(all="ignore"):
        if matrix.blocks is None:
            weights = matrix.weights.astype(np.float32)
            for i in range(matrix.inputs):
                total = fused_multiply_add(weights[:, i], x[:, i, np.newaxis], total)
            return total
        rows = quantise(x)
        for group in range(matrix.inputs // GROUP):
            total = _add_group(matrix.blocks, rows, group, total)
    return total


def _add_group(blocks: UnpackedBlocks, rows: Quantised, group: int, total: Array) -> Array:
    """Add one group's products to float32 [M, outputs]."""
    values = rows.values[:, group].astype(np.float64)
    weights = blocks.values[:, group].astype(np.float64)
    scales = rows.scales[:, group, np.newaxis]
    parts = blocks.scales.shape[-1]
    for part in range(parts):
        inputs = slice(GROUP // parts * part, GROUP // parts * (part + 1))
        # Integers below 2^53: exact, in whatever order a matrix library adds them.
        sums = (values[:, inputs] @ weights[:, inputs].T).astype(np.float32)
        total = fused_multiply_add(blocks.scales[:, group, part] * scales, sums, total)
    if blocks.minima is not None:
        scaled_sums = scales * values.sum(axis=1, keepdims=True).astype(np.float32)
        total = fused_multiply_add(blocks.minima[:, group], scaled_sums, total)
    return total


def fused_multiply_add(a: Array, b: Array, c: Array) -> Array:
    """Return a * b + c, float32, rounded once.

    The product of two float32 is exact in float64. The sum is rounded there to odd: where it is
    inexact, to the neighbour whose last bit is 1. A second rounding to at least two bits fewer is
    then that of the exact sum. (S. Boldo and G. Melquiond, Emulation of a FMA and correctly
    rounded sums: proved algorithms using rounding to odd, IEEE Transactions on Computers 57(4),
    2008.)
    """
    product = a.astype(np.float64) * b.astype(np.float64)
    addend = np.broadcast_to(c, product.shape).astype(np.float64)
    total = product + addend
    # What rounding took away, exactly (Knuth's TwoSum).
    part = total - product
    error = (product - (total - part)) + (addend - part)
    bits = total.view(np.int64)
    is_even = (np.isfinite(error)) & (error != 0) & ((bits & 1) == 0)
    # The bits count magnitudes: one more is away from zero.
    step = np.where((error > 0) == (total > 0), 1, -1)
    odd: NDArray[np.float64] = (bits + np.where(is_even, step, 0)).view(np.float64)
    return odd.astype(np.float32)
