"""Matrices as GGUF files store them, of every type, for tests that need their bytes quickly."""

from __future__ import annotations

import gguf
import numpy as np
from numpy.typing import NDArray

__all__ = ["K_TYPES", "block_inputs", "stored_weights"]

K_TYPES = ("Q4_K", "Q5_K", "Q6_K")


def block_inputs(type_name: str) -> int:
    """How many weights a block of the type holds."""
    return gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[type_name]][0]


def stored_weights(type_name: str, weights: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return rows of weights, float32 [outputs, inputs], as uint8 [outputs, bytes].

    The gguf package quantises to no K type: of these the bytes are random, with the weights' mean
    of zero and their spread.
    """
    kind = gguf.GGMLQuantizationType[type_name]
    if type_name not in K_TYPES:
        rows = np.ascontiguousarray(gguf.quantize(weights, kind)).view(np.uint8)
        return rows.reshape(len(weights), -1)
    inputs, size = gguf.GGML_QUANT_SIZES[kind]
    random = np.random.default_rng(weights.size)
    blocks = random.integers(0, 256, (weights.size // inputs, size), dtype=np.uint8)
    # With these half floats, minima are on average what integers times scales are.
    halves = np.array({"Q4_K": [1, 7.5], "Q5_K": [1, 15.5], "Q6_K": [1]}[type_name], np.float32)
    at = slice(208, 210) if type_name == "Q6_K" else slice(0, 4)
    for spread in (1.0, float(weights.std())):
        blocks[:, at] = halves.astype(np.float16).view(np.uint8)
        halves *= np.float32(spread / gguf.dequantize(blocks, kind).std())
    blocks[:, at] = halves.astype(np.float16).view(np.uint8)
    return blocks.reshape(len(weights), -1)
