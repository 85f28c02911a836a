"""A head for any model, made for the audit: what it guesses is poor, how it is used is the same.

It hands on the last feature, little changed, so its guess after a token is about what the target
found likely after the one before: now and then that is right.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from forerun.models.architecture import Architecture
from forerun.models.head_file import HeadFacts, HeadFile, HeadShape, write_head
from forerun.models.head_shapes import EAGLE, EXIT, ExitShape, MedusaShape
from forerun.models.model import Model
from forerun.models.target_checksum import target_checksum
from forerun.targets.head import Head
from forerun.targets.protocol import Target
from forerun.targets.readout import Readout
from forerun.targets.table import open_head, open_readout

__all__ = ["random_head", "random_readout"]

_TOKENS = 2048  # of the draft vocabulary, at most
_NOISE = 0.02


def random_head(model: Model, target: Target, seed: int = 0) -> Head:
    """Return a head of random weights for a model, opened beside its target.

    Args:
        model: The target's.
        target: The target.
        seed: Of the weights.
    """
    count = model.architecture.num_layers
    layers = tuple(sorted({count // 3, 2 * count // 3, count}))
    tensors = _tensors(model.architecture, len(layers), seed)
    with _written(tensors, _facts(model, layers, EAGLE)) as file:
        return open_head(file, model, target)


def random_readout(kind: str, model: Model, target: Target, seed: int = 0) -> Readout:
    """Return a head without attention of random weights, opened beside a model's target.

    Args:
        kind: Of head.
        model: The target's.
        target: The target.
        seed: Of the weights.
    """
    network, random = model.architecture, np.random.default_rng(seed)
    is_exit = kind == EXIT
    shape = ExitShape(network.width, 64) if is_exit else MedusaShape(network.width, 3)
    tensors = {}
    for name, size in shape.tensors(1).items():
        values = _NOISE * random.standard_normal(size, dtype=np.float32)
        tensors[name] = 1 + values if name.endswith("norm.weight") else values
    layer = max(network.num_layers // 2, 1) if is_exit else network.num_layers
    facts = _facts(model, (layer,), kind)
    with _written(tensors, facts) as file:
        return open_readout(file, model, target)


def _facts(model: Model, layers: tuple[int, ...], kind: str) -> HeadFacts:
    size = model.architecture.vocab_size
    tokens = np.unique(np.linspace(0, size - 1, min(_TOKENS, size)).astype(np.int64))[1:]
    card = {"made for": "audit"}
    return HeadFacts(target_checksum(model), model.name, layers, tokens, card, kind)


@contextmanager
def _written(tensors: dict[str, NDArray[np.float32]], facts: HeadFacts) -> Iterator[HeadFile]:
    """Yield a head's file, which is read at once and may go."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "head.gguf"
        write_head(path, tensors, facts)
        yield HeadFile.open(path)


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
