"""Quantised weights of a GGUF file taken apart in plain numpy: their integers, scales and minima.

The slow twin of ``src/native/stored_blocks.h``. A weight is its integer times its scale plus its
minimum; nothing is lost. In the K types a group of 32 inputs, or of 16 in Q6_K, has a small factor
of its own, and its scale is this factor times a half float that 256 inputs share.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["BLOCKS", "GROUP", "StoredBlock", "UnpackedBlocks", "unpack"]

Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]
Floats = NDArray[np.float32]

GROUP = 32
"""Inputs that are summed at once, as integers."""


class StoredBlock(NamedTuple):
    """What a block of a type looks like.

    Attributes:
        inputs: How many weights it holds.
        size: Its bytes.
        halves: Which of them are half floats: all that could be infinite or NaN.
    """

    inputs: int
    size: int
    halves: slice


BLOCKS = {
    "Q4_0": StoredBlock(32, 18, slice(0, 2)),
    "Q4_1": StoredBlock(32, 20, slice(0, 4)),
    "Q5_0": StoredBlock(32, 22, slice(0, 2)),
    "Q5_1": StoredBlock(32, 24, slice(0, 4)),
    "Q8_0": StoredBlock(32, 34, slice(0, 2)),
    "Q4_K": StoredBlock(256, 144, slice(0, 4)),
    "Q5_K": StoredBlock(256, 176, slice(0, 4)),
    "Q6_K": StoredBlock(256, 210, slice(208, 210)),
}
"""Every quantised type that the native kernels multiply."""


class UnpackedBlocks(NamedTuple):
    """A matrix of small integers.

    Attributes:
        values: int64 [outputs, groups, 32].
        scales: float32 [outputs, groups, parts]: of the whole group, or of its first and its last
            16 inputs.
        minima: float32 [outputs, groups], to be added; None if the type has none.
    """

    values: Integers
    scales: Floats
    minima: Floats | None


def unpack(type_name: str, stored: Bytes) -> UnpackedBlocks:
    """Take rows apart.

    Args:
        type_name: A key of `BLOCKS`.
        stored: uint8 [outputs, bytes of a row].
    """
    block = BLOCKS[type_name]
    blocks = stored.reshape(len(stored), -1, block.size)
    halves = np.ascontiguousarray(blocks[..., block.halves]).view(np.float16).astype(np.float32)
    if block.inputs == GROUP:
        values = _small(type_name, blocks[..., block.halves.stop :])
        return UnpackedBlocks(
            values, halves[..., :1], halves[..., 1] if halves.shape[-1] == 2 else None
        )
    if type_name == "Q6_K":
        factors = blocks[..., 192:208].view(np.int8).astype(np.float32)
        scales = (halves * factors).reshape(len(stored), -1, 2)
        return UnpackedBlocks(_six_bits(blocks), scales, None)
    factors, offsets = _six_bit_factors(blocks[..., 4:16])
    scales = (halves[..., :1] * factors).reshape(len(stored), -1, 1)
    minima = -(halves[..., 1:] * offsets).reshape(len(stored), -1)
    values = _four_bits(blocks[..., -128:])
    if type_name == "Q5_K":
        # Bit g of byte i belongs to input i of group g.
        fifths = np.unpackbits(blocks[..., 16:48, np.newaxis], axis=-1, bitorder="little")
        values += 16 * fifths.swapaxes(-1, -2).reshape(values.shape)
    return UnpackedBlocks(values, scales, minima)


def _small(type_name: str, stored: Bytes) -> Integers:
    """Integers of blocks of 32 inputs: int64 [..., 32]."""
    if type_name == "Q8_0":
        return stored.view(np.int8).astype(np.int64)
    values = _halves_of_bytes(stored[..., -16:])
    if type_name.startswith("Q5"):
        values += 16 * np.unpackbits(stored[..., :4], axis=-1, bitorder="little").astype(np.int64)
    return values - {"Q4_0": 8, "Q5_0": 16}.get(type_name, 0)


def _halves_of_bytes(stored: Bytes) -> Integers:
    """The low halves of the bytes, then the high halves, along the last axis."""
    return np.concatenate([stored & 15, stored >> 4], axis=-1).astype(np.int64)


def _four_bits(stored: Bytes) -> Integers:
    """Integers of [..., 128] bytes: each 32 of them hold two groups."""
    parts = _halves_of_bytes(stored.reshape(*stored.shape[:-1], 4, 32))
    return parts.reshape(len(stored), -1, GROUP)


def _six_bits(blocks: Bytes) -> Integers:
    """Integers of Q6_K: the halves of a block have 64 bytes of low and 32 of high bits each."""
    low = _halves_of_bytes(blocks[..., :128].reshape(*blocks.shape[:-1], 2, 64))
    pairs = blocks[..., 128:192].reshape(*blocks.shape[:-1], 2, 1, 32)
    high = pairs >> np.array([[0], [2], [4], [6]], dtype=np.uint8) & 3
    values = low + 16 * high.reshape(low.shape).astype(np.int64) - 32
    return values.reshape(len(blocks), -1, GROUP)


def _six_bit_factors(packed: Bytes) -> tuple[Floats, Floats]:
    """Factors of 8 scales and 8 minima in 12 bytes: float32 [..., 8], twice.

    The first 4 of each stand in the low bits of their bytes; the others have their low 4 bits in
    the last bytes and their high 2 above the first ones.
    """
    scales, minima, low = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    return (
        np.concatenate([scales & 63, low & 15 | scales >> 6 << 4], axis=-1).astype(np.float32),
        np.concatenate([minima & 63, low >> 4 | minima >> 6 << 4], axis=-1).astype(np.float32),
    )
