"""A model's weights as the reference target wants them: dequantised, fused, shared.

q, k and v are one matrix, gate and up another: fewer and larger products. Targets that live at the
same time and read the same file, such as a model and its own first layers, share these arrays.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from forerun.fork_lock import fork_lock
from forerun.models.architecture import Architecture
from forerun.models.weight_file import WeightFile
from forerun.targets.loading import WeightLoader
from forerun.targets.row_exact import RowExactProduct

__all__ = ["EndWeights", "LayerWeights", "dequantising", "load_ends", "load_layer"]

Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class LayerWeights:
    """One layer. Vectors are float32; a product holds its float32 [outputs, inputs]."""

    attention_norm: Array
    qkv: RowExactProduct
    qkv_bias: Array | None
    q_norm: Array | None
    k_norm: Array | None
    output: RowExactProduct
    inner_norm: Array
    gate_up: RowExactProduct
    down: RowExactProduct

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        vectors = (self.attention_norm, self.qkv_bias, self.q_norm, self.k_norm, self.inner_norm)
        products = (self.qkv, self.output, self.gate_up, self.down)
        return sum(vector.nbytes for vector in vectors if vector is not None) + sum(
            product.weight.nbytes for product in products
        )


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class EndWeights:
    """What stands before the first layer and after the last.

    Attributes:
        embedding: float32 [vocabulary, width].
        norm: float32 [width].
        head: Holds the embedding itself where the model ties them.
    """

    embedding: Array
    norm: Array
    head: RowExactProduct


# Weak: weights live as long as a target holds them, and no longer.
_live_layers: WeakValueDictionary[tuple[Hashable, int], LayerWeights] = WeakValueDictionary()
_live_ends: WeakValueDictionary[Hashable, EndWeights] = WeakValueDictionary()
_loading = fork_lock(2)


def load_layer(file: WeightFile, architecture: Architecture, layer: int) -> LayerWeights:
    """Return one layer's weights, shared with every other live target of the file.

    Raises:
        ModelFileError: The file changed, ends early, or holds values that are not finite.
        UnsupportedModelError: A tensor's type cannot be dequantised.
    """
    with _loading:
        weights = _live_layers.get((file.identity, layer))
        if weights is None:
            weights = _read_layer(file, architecture, layer)
            _live_layers[file.identity, layer] = weights
    return weights


def load_ends(file: WeightFile, architecture: Architecture) -> EndWeights:
    """Return embedding, final norm and head, shared likewise; raises what `load_layer` raises."""
    with _loading:
        weights = _live_ends.get(file.identity)
        if weights is None:
            embedding = file.tensor("token_embd.weight")
            head = embedding if architecture.is_tied else file.tensor("output.weight")
            norm = file.tensor("output_norm.weight")
            weights = EndWeights(embedding, norm, RowExactProduct(head))
            _live_ends[file.identity] = weights
    return weights


def _read_layer(file: WeightFile, architecture: Architecture, layer: int) -> LayerWeights:
    def tensor(name: str) -> Array:
        return file.tensor(f"blk.{layer}.{name}")

    def fused(*names: str) -> Array:
        return np.concatenate([tensor(name) for name in names])

    letters = ("q", "k", "v")
    has_bias, has_norm = architecture.has_qkv_bias, architecture.has_qk_norm
    return LayerWeights(
        attention_norm=tensor("attn_norm.weight"),
        qkv=RowExactProduct(fused(*(f"attn_{letter}.weight" for letter in letters))),
        qkv_bias=fused(*(f"attn_{letter}.bias" for letter in letters)) if has_bias else None,
        q_norm=tensor("attn_q_norm.weight") if has_norm else None,
        k_norm=tensor("attn_k_norm.weight") if has_norm else None,
        output=RowExactProduct(tensor("attn_output.weight")),
        inner_norm=tensor("ffn_norm.weight"),
        gate_up=RowExactProduct(fused("ffn_gate.weight", "ffn_up.weight")),
        down=RowExactProduct(tensor("ffn_down.weight")),
    )


def _is_live(file: WeightFile, layer: int | None) -> bool:
    if layer is None:
        return file.identity in _live_ends
    return (file.identity, layer) in _live_layers


def _nbytes(file: WeightFile, name: str) -> int:
    return 4 * math.prod(file.tensor_shape(name))


dequantising = WeightLoader(load_layer, load_ends, _is_live, _nbytes)
"""How the reference target holds weights."""
