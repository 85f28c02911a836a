from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from forerun.errors import TrainingError
from forerun.models.head_file import HeadFile, write_head
from forerun.targets.reference import ReferenceTarget
from forerun.targets.reference_readout import ReferenceReadout
from forerun.train.exit import ExitLearner, ExitNetwork
from forerun.train.learner import Text
from forerun.train.options import ExitLearning
from forerun.train.shards import Shards
from models.random_head import random_facts, random_tensors, shape_of
from train.made_text import captured, tiny_model

pytestmark = pytest.mark.judge


def test_levels_are_what_an_adapter_computes_when_it_drafts(tmp_path: Path) -> None:
    """At each token of an answer, from that token's own state at the layer, whatever the level."""
    model = tiny_model(tmp_path)
    captured(model, tmp_path / "text", tokens=200, layers=(0, 1, 2))
    shards = Shards(tmp_path / "text")
    texts = list(shards.conversations())[:3]
    options = ExitLearning(layer=1, vocabulary=60, fp32=True)
    learner = ExitLearner(model, ReferenceTarget(model), shards.recipe, options)
    learner.take(Text(shards.recipe, texts, texts, 200))
    facts = random_facts(model, of="exit")._replace(tokens=learner.tokens, layers=(1,))
    tensors = random_tensors(shape_of("exit", model), facts)
    write_head(tmp_path / "head.gguf", tensors, facts, "F32")
    readout = ReferenceReadout(HeadFile.open(tmp_path / "head.gguf"), model)
    weights = {name: torch.from_numpy(values) for name, values in tensors.items()}
    network = ExitNetwork(weights, learner.frozen)
    outputs = network.levels(learner._examples.task(range(3)).batch, 3)
    begin = [0, 0, 0]
    for each in texts:
        first, end = max(each.answer - 1, 1), len(each.tokens) - 1
        logits = readout.read(each.features[:, 64:128].astype(np.float32))[:, 0]
        for level, output in enumerate(outputs):
            count = end - first - level
            ours = output[begin[level] : begin[level] + count] @ learner.frozen.head.T
            np.testing.assert_allclose(ours.numpy(), logits[first + level : end], atol=1e-4)
            begin[level] += count
    assert [len(output) for output in outputs] == begin


def test_a_layer_that_was_not_captured_is_refused(tmp_path: Path) -> None:
    """With those that were; by default it is the lowest behind which a layer has run."""
    model = tiny_model(tmp_path)
    captured(model, tmp_path / "text", tokens=100, layers=(0, 2))
    recipe, target = Shards(tmp_path / "text").recipe, ReferenceTarget(model)
    with pytest.raises(TrainingError, match=r"layer = 1: what was captured enters 0, 2"):
        ExitLearner(model, target, recipe, ExitLearning(layer=1))
    assert ExitLearner(model, target, recipe, ExitLearning()).layer == 2
    assert ExitLearner(model, target, replace(recipe, layers=(0,)), ExitLearning()).layer == 0
