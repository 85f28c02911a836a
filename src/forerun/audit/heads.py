"""A head for any model, made for the audit: what it guesses is poor, how it is used is the same.

It hands on the last feature, little changed, so its guess after a token is about what the target
found likely after the one before: now and then that is right.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from forerun.models.architecture import Architecture
from forerun.models.head_file import HeadFacts, HeadFile, HeadShape, write_head
from forerun.models.model import Model
from forerun.models.target_checksum import target_checksum
from forerun.targets.head import Head
from forerun.targets.protocol import Target
from forerun.targets.table import open_head

__all__ = ["random_head"]

_TOKENS = 2048  # of the draft vocabulary, at most
_NOISE = 0.02


def random_head(model: Model, target: Target, seed: int = 0) -> Head:
    """Return a head of random weights for a model, opened beside its target.

    Args:
        model: The target's.
        target: The target.
        seed: Of the weights.
    """
    network = model.architecture
    count = network.num_layers
    layers = tuple(sorted({count // 3, 2 * count // 3, count}))
    size = network.vocab_size
    tokens = np.unique(np.linspace(0, size - 1, min(_TOKENS, size)).astype(np.int64))[1:]
    facts = HeadFacts(target_checksum(model), model.name, layers, tokens, {"made for": "audit"})
    with tempfile.TemporaryDirectory() as folder:  # read at once; the file may go
        path = Path(folder) / "head.gguf"
        write_head(path, _tensors(network, len(layers), seed), facts)
        return open_head(HeadFile.open(path), model, target)


def _tensors(network: Architecture, layers: int, seed: int) -> dict[str, NDArray[np.float32]]:
    random = np.random.default_rng(seed)
    width, heads = network.width, network.head_dim
    shape = HeadShape(
        width, network.num_heads * heads, network.num_kv_heads * heads, network.inner_width
    )
    tensors = {}
    for name, size in shape.tensors(layers).items():
        values = _NOISE * random.standard_normal(size, dtype=np.float32)
        tensors[name] = values if len(size) == 2 else 1 + values
    tensors["fc.weight"][:, -width:] += np.eye(width, dtype=np.float32)
    return tensors
