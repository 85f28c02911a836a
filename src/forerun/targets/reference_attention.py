"""A layer's attention in plain numpy, row-exact, over the slots of many sequences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.cache.kv_slots import KVSlots
from forerun.models.architecture import Architecture
from forerun.targets.reference_sequences import Group
from forerun.targets.reference_weights import LayerWeights
from forerun.targets.row_exact import attend, rms_norm, rotate

__all__ = ["ReferenceAttention"]

Array = NDArray[np.float32]


class ReferenceAttention:
    """Attention of a pass's rows over their sequences' keys and values.

    Args:
        architecture: Heads, and how they turn.
    """

    def __init__(self, architecture: Architecture) -> None:
        self._architecture = architecture

    def __call__(
        self,
        index: int,
        weights: LayerWeights,
        inputs: Array,
        turns: tuple[Array, Array] | None,
        groups: Sequence[Group[KVSlots]],
    ) -> Array:
        """Return the heads' outputs side by side, float32 [M, num_heads × head_dim].

        Args:
            index: Which layer of the slots.
            weights: The layer's.
            inputs: What q, k and v are made of, float32 [M, inputs of `weights.qkv`].
            turns: Cosines and sines of the rows' positions; None: this layer sees no positions.
            groups: The rows of each sequence; their keys and values are stored in its slots.
        """
        shape = self._architecture
        queries, keys, values = self._project(weights, inputs)
        if turns is not None:
            rotate(queries, *turns, shape.rope.interleaved)
            rotate(keys, *turns, shape.rope.interleaved)
        queries *= np.float32(shape.head_dim**-0.5)
        # Query heads that share a key-value head are neighbours, and attend in one product.
        group = shape.num_heads // shape.num_kv_heads
        queries = queries.reshape(len(inputs), shape.num_kv_heads, group, shape.head_dim)
        result = np.empty_like(queries)
        for slots, indices in groups:
            slots.put(index, keys[indices], values[indices])
            for row, place in enumerate(indices):
                result[place] = attend(queries[place], *slots.context(index, row))
        return result.reshape(len(inputs), shape.num_heads * shape.head_dim)

    def _project(self, weights: LayerWeights, inputs: Array) -> tuple[Array, Array, Array]:
        """Return queries, keys and values, each float32 [M, heads, head_dim]."""
        shape = self._architecture
        heads = weights.qkv(inputs)
        if weights.qkv_bias is not None:
            heads = heads + weights.qkv_bias
        heads = heads.reshape(len(inputs), heads.shape[1] // shape.head_dim, shape.head_dim)
        first, second = shape.num_heads, shape.num_heads + shape.num_kv_heads
        queries, keys, values = np.split(heads, (first, second), axis=1)
        queries, keys = np.ascontiguousarray(queries), np.ascontiguousarray(keys)
        if weights.q_norm is not None and weights.k_norm is not None:
            queries = rms_norm(queries, weights.q_norm, shape.norm_epsilon)
            keys = rms_norm(keys, weights.k_norm, shape.norm_epsilon)
        return queries, keys, values
