"""Heads of random weights for any model, for tests that need one quickly."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from forerun.models.head_file import HeadFacts, HeadFile, HeadShape, write_head
from forerun.models.head_shapes import EAGLE, HEAD, MEDUSA, ExitShape, MedusaShape, Shape
from forerun.models.model import Model
from forerun.models.target_checksum import target_checksum

__all__ = ["random_facts", "random_head", "random_tensors", "shape_for", "shape_of"]


def random_head(
    path: Path,
    model: Model,
    *,
    size: int = 48,
    layers: Sequence[int] | None = None,
    kind: str = "Q8_0",
    has_own_head: bool = False,
    seed: int = 0,
    of: str = EAGLE,
) -> HeadFile:
    """Write a head for a model and open it.

    Args:
        path: Of the file.
        model: The target.
        size: Tokens of the draft vocabulary.
        layers: Whose hidden states are the features; None: a low, a middle and a late one.
        kind: The type of matrices.
        has_own_head: Whether the head over the draft vocabulary is in the file.
        seed: Of the weights and the vocabulary.
        of: The kind of head.
    """
    facts = random_facts(model, size=size, layers=layers, seed=seed, of=of)
    shape = shape_of(of, model)
    tensors = random_tensors(shape, facts, has_own_head=has_own_head, seed=seed)
    write_head(path, tensors, facts, kind)
    return HeadFile.open(path)


def shape_for(model: Model) -> HeadShape:
    """The sizes that a model's head has."""
    network = model.architecture
    queries, keys = network.num_heads, network.num_kv_heads
    head_dim = network.head_dim
    return HeadShape(network.width, queries * head_dim, keys * head_dim, network.inner_width)


def shape_of(kind: str, model: Model) -> Shape:
    """The sizes that a head of a kind has, with three guesses, or twice as wide inside."""
    width = model.architecture.width
    if kind == EAGLE:
        return shape_for(model)
    return MedusaShape(width, 3) if kind == MEDUSA else ExitShape(width, 2 * width)


def random_facts(
    model: Model,
    *,
    size: int = 48,
    layers: Sequence[int] | None = None,
    seed: int = 0,
    of: str = EAGLE,
) -> HeadFacts:
    """What a head's file says, with a random vocabulary of so many tokens."""
    count = model.architecture.num_layers
    usual = {EAGLE: sorted({count // 3, 2 * count // 3, count - 1}), MEDUSA: [count]}
    chosen = layers or usual.get(of, [max(count // 3, 1)])
    vocabulary = np.random.default_rng(seed).choice(
        model.architecture.vocab_size, size, replace=False
    )
    tokens = np.sort(vocabulary).astype(np.int64)
    return HeadFacts(target_checksum(model), model.name, tuple(chosen), tokens, {"steps": 0}, of)


def random_tensors(
    shape: Shape, facts: HeadFacts, *, has_own_head: bool = False, seed: int = 0
) -> dict[str, NDArray[np.float32]]:
    """Norms near one, and matrices that keep a row's size."""
    random = np.random.default_rng(seed)
    shapes = shape.tensors(len(facts.layers))
    if has_own_head:
        shapes[HEAD] = len(facts.tokens), shape.width
    tensors = {}
    for name, size in shapes.items():
        noise = random.standard_normal(size).astype(np.float32)
        tensors[name] = noise / np.float32(size[-1] ** 0.5) if len(size) == 2 else 1 + noise / 4
    return tensors
