"""A model's weights as the compiled pass wants them: packed once, fused by kind, shared.

Matrices keep the numbers of the file: each type has kernels of its own, and nothing is quantised
twice. Targets that live at the same time and read the same file share what is packed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from forerun.errors import ModelFileError, UnsupportedModelError
from forerun.fork_lock import fork_lock
from forerun.models.architecture import Architecture
from forerun.models.weight_file import WeightFile
from forerun.native import load
from forerun.targets.loading import WeightLoader
from forerun.targets.stored_blocks import BLOCKS

if TYPE_CHECKING:
    from forerun import _native

__all__ = [
    "Part",
    "check_kinds",
    "check_types",
    "pack_ends",
    "pack_head",
    "pack_layer",
    "packing",
    "stored_part",
    "vocabulary_part",
]

Part = tuple[str, NDArray[np.uint8], int, int]

_EXPONENTS = {
    "F16": (np.uint16, 0x7C00),
    "BF16": (np.uint16, 0x7F80),
    "F32": (np.uint32, 0x7F800000),
}

# Weak: weights live as long as a target holds them, and no longer.
_live_layers: WeakValueDictionary[tuple[Hashable, int], _native.LayerWeights]
_live_layers = WeakValueDictionary()
_live_ends: WeakValueDictionary[Hashable, _native.EndWeights] = WeakValueDictionary()
_packing = fork_lock(2)


def check_types(file: WeightFile, architecture: Architecture) -> None:
    """Check that there are kernels for all matrices of a model.

    Raises:
        UnsupportedModelError: There is none for one of them; the error names its type.
    """
    check_kinds(file, [name for name, _ in architecture.tensor_shapes()])


def check_kinds(file: WeightFile, names: Iterable[str]) -> None:
    """Check that there are kernels for those of these tensors that are matrices.

    Raises:
        UnsupportedModelError: There is none for one of them; the error names its type.
    """
    for name in names:
        kind = file.tensor_type(name)
        if len(file.tensor_shape(name)) == 2 and kind not in _EXPONENTS and kind not in BLOCKS:
            raise UnsupportedModelError(
                f"{file.path}: the tensor {name!r} has type {kind}, which the compiled pass lacks.",
                "Use the reference target (target='reference'), or a model in one of "
                f"{', '.join((*BLOCKS, *_EXPONENTS))}.",
            )


def pack_layer(file: WeightFile, architecture: Architecture, layer: int) -> _native.LayerWeights:
    """Return one layer's weights, shared with every other live target of the file.

    Raises:
        ModelFileError: The file changed, ends early, or holds values that are not finite.
    """
    with _packing:
        weights = _live_layers.get((file.identity, layer))
        if weights is None:
            weights = _pack_layer(file, architecture, layer)
            _live_layers[file.identity, layer] = weights
    return weights


def pack_ends(file: WeightFile, architecture: Architecture) -> _native.EndWeights:
    """Return embedding, final norm and head, shared likewise; raises what `pack_layer` raises."""
    with _packing:
        weights = _live_ends.get(file.identity)
        if weights is None:
            products = {"embedding": [stored_part(file, "token_embd.weight")]}
            if not architecture.is_tied:
                products["head"] = [stored_part(file, "output.weight")]
            norm = file.tensor("output_norm.weight")
            weights = load().EndWeights({"norm": norm}, products)
            _live_ends[file.identity] = weights
    return weights


def pack_head(
    file: WeightFile, architecture: Architecture, tokens: NDArray[np.int64]
) -> _native.Head:
    """Return the head's rows for these tokens alone; raises what `pack_layer` raises."""
    head: _native.Head = load().Head([vocabulary_part(file, architecture, tokens)])
    return head


def vocabulary_part(
    file: WeightFile, architecture: Architecture, tokens: NDArray[np.int64]
) -> Part:
    """Return the head's rows for these tokens as stored; raises what `stored_part` raises."""
    name = "token_embd.weight" if architecture.is_tied else "output.weight"
    kind, stored, outputs, inputs = stored_part(file, name)
    rows = np.ascontiguousarray(stored.reshape(outputs, -1)[tokens]).reshape(-1)
    return kind, rows, len(tokens), inputs


def _pack_layer(file: WeightFile, architecture: Architecture, layer: int) -> _native.LayerWeights:
    prefix = f"blk.{layer}."
    vectors = {
        "attention_norm": file.tensor(f"{prefix}attn_norm.weight"),
        "inner_norm": file.tensor(f"{prefix}ffn_norm.weight"),
    }
    if architecture.has_qkv_bias:
        biases = [file.tensor(f"{prefix}attn_{letter}.bias") for letter in "qkv"]
        vectors["qkv_bias"] = np.concatenate(biases)
    if architecture.has_qk_norm:
        vectors |= {f"{x}_norm": file.tensor(f"{prefix}attn_{x}_norm.weight") for x in "qk"}
    names = {
        "qkv": ("attn_q", "attn_k", "attn_v"),
        "output": ("attn_output",),
        "gate_up": ("ffn_gate", "ffn_up"),
        "down": ("ffn_down",),
    }
    products = {
        product: [stored_part(file, f"{prefix}{part}.weight") for part in parts]
        for product, parts in names.items()
    }
    turns = layer not in architecture.unturned_layers
    weights: _native.LayerWeights = load().LayerWeights(vectors, products, turns)
    return weights


def stored_part(file: WeightFile, name: str) -> Part:
    """Return a matrix as stored: type, bytes, outputs, inputs.

    Raises:
        ModelFileError: The file changed, ends early, or holds values that are not finite.
    """
    kind, stored = file.tensor_type(name), file.raw(name)
    if not _is_finite(kind, stored):
        what = f"{file.path}: the tensor {name!r} holds values that are not finite."
        raise ModelFileError(what, "Fetch or convert the file again.")
    outputs, inputs = file.tensor_shape(name)
    return kind, stored, outputs, inputs


def _is_finite(kind: str, stored: NDArray[np.uint8]) -> bool:
    """Look at floats as they are, at quantised weights by their scales and minima alone."""
    if kind in _EXPONENTS:
        number, exponent = _EXPONENTS[kind]
        return not bool(((stored.view(number) & exponent) == exponent).any())
    block = BLOCKS[kind]
    scales = np.ascontiguousarray(stored.reshape(-1, block.size)[:, block.halves]).view(np.uint16)
    return not bool(((scales & 0x7C00) == 0x7C00).any())


def _is_live(file: WeightFile, layer: int | None) -> bool:
    if layer is None:
        return file.identity in _live_ends
    return (file.identity, layer) in _live_layers


packing = WeightLoader(pack_layer, pack_ends, _is_live, lambda file, name: file.nbytes(name))
"""How the native target holds weights."""
