from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from forerun.errors import TrainingError
from forerun.models.head_file import HeadFile, write_head
from forerun.targets.protocol import Row
from forerun.targets.reference import ReferenceTarget
from forerun.targets.reference_readout import ReferenceReadout
from forerun.train.examples import Examples
from forerun.train.last_layer import LastLayer
from forerun.train.medusa import MedusaLearner, MedusaNetwork
from forerun.train.network import Frozen
from forerun.train.options import MedusaLearning
from forerun.train.shards import Recipe, Shards
from forerun.train.vocabulary import ids_of
from models.random_head import random_facts, random_tensors, shape_of
from train.made_text import captured, tiny_model

pytestmark = pytest.mark.judge

ARCHITECTURES = [
    {},
    {"architecture": "qwen2"},
    {"architecture": "qwen3", "is_tied": False},
    {"architecture": "smollm3", "layers": 4},
]


@pytest.mark.parametrize(
    ("changes", "is_entered"), [*((changes, True) for changes in ARCHITECTURES), ({}, False)]
)
def test_levels_are_what_heads_compute_when_they_draft(
    tmp_path: Path, changes: dict[str, object], is_entered: bool
) -> None:
    """Level s at a token is head s at the state that was the last s tokens before.

    Whether what enters the target's last layer was captured, or what leaves it: the state is the
    target's own, by the reference, whose biases, norms and turns differ from one to the next.
    """
    model = tiny_model(tmp_path, **changes)
    count = model.architecture.num_layers
    captured(model, tmp_path / "text", tokens=200, layers=(0, count - is_entered))
    facts = random_facts(model, of="medusa")
    tensors = random_tensors(shape_of("medusa", model), facts)
    write_head(tmp_path / "head.gguf", tensors, facts, "F32")
    readout = ReferenceReadout(HeadFile.open(tmp_path / "head.gguf"), model)
    frozen = Frozen.of(model, facts.tokens)
    network = MedusaNetwork(
        {name: torch.from_numpy(values) for name, values in tensors.items()},
        frozen,
        torch.from_numpy(model.file.tensor("output_norm.weight")),
        LastLayer(model, frozen) if is_entered else None,
    )
    texts = list(Shards(tmp_path / "text").conversations())[:3]
    ids = ids_of(facts.tokens, model.architecture.vocab_size)
    outputs = network.levels(Examples(texts, ids).task(range(3)).batch, 3)
    target, begin = ReferenceTarget(model), [0, 0, 0]
    for each in texts:
        first, end = max(each.answer - 1, 1), len(each.tokens) - 1
        name = target.open()
        rows = [Row(name, int(token), i, i - 1) for i, token in enumerate(each.tokens)]
        logits = readout.read(target.score(rows, logits=(), layers=(count,)).hidden[count])
        for level, output in enumerate(outputs):
            rows_here = end - first - level
            ours = output[begin[level] : begin[level] + rows_here] @ frozen.head.T
            # The row of token `at` + level guesses the next, from the state before token `at`.
            theirs = logits[first - 1 : first - 1 + rows_here, level]
            np.testing.assert_allclose(ours.numpy(), theirs, atol=0.05, rtol=0.01)
            assert np.abs(ours.numpy() - theirs).mean() < 0.01  # states are kept in 16 bits
            begin[level] += rows_here
    assert [len(output) for output in outputs] == begin


def test_text_without_the_last_layers_states_is_refused(tmp_path: Path) -> None:
    """Parallel heads can't be learned from it, and are told what to capture."""
    model = tiny_model(tmp_path)
    captured(model, tmp_path / "text", tokens=100, layers=(0, 1))
    recipe: Recipe = Shards(tmp_path / "text").recipe
    with pytest.raises(TrainingError, match="--layers 3, or 2"):
        MedusaLearner(model, ReferenceTarget(model), recipe, MedusaLearning())
