from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from forerun.models.head_file import HeadFile, write_head
from forerun.targets.protocol import Row
from forerun.targets.reference_head import ReferenceHead
from forerun.train.examples import Examples, Task, batches, split
from forerun.train.head import Network, initial_weights
from forerun.train.network import Frozen
from forerun.train.shards import Conversation, Shards
from forerun.train.vocabulary import ids_of
from models.random_head import random_facts, random_tensors, shape_for
from train.made_text import captured, tiny_model

pytestmark = pytest.mark.judge


def made(
    folder: Path, **changes: object
) -> tuple[Network, ReferenceHead, list[Conversation], Task]:
    """A random head, in PyTorch and as the reference, and a batch of captured text."""
    model = tiny_model(folder, **changes)
    captured(model, folder / "text", tokens=300)
    layers = Shards(folder / "text").recipe.layers
    facts = random_facts(model, layers=layers)
    tensors = random_tensors(shape_for(model), facts)
    write_head(folder / "head.gguf", tensors, facts, "F32")
    file = HeadFile.open(folder / "head.gguf")
    weights = {name: torch.from_numpy(values) for name, values in tensors.items()}
    network = Network(weights, Frozen.of(model, facts.tokens))
    texts = list(Shards(folder / "text").conversations())[:4]
    ids = ids_of(facts.tokens, model.architecture.vocab_size)
    task = Examples(texts, ids).task(range(len(texts)))
    return network, ReferenceHead(file, model), texts, task


@pytest.mark.parametrize("changes", [{}, {"architecture": "qwen2"}, {"is_tied": False}])
def test_levels_are_what_a_head_computes_when_it_drafts(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    """Level s at a token: the text before it read, then s guesses that were all right.

    Drafted for real, by the reference head, from every place of every answer. A qwen2 target turns
    halves where llama turns neighbours, and an untied one has another head.
    """
    network, reference, texts, task = made(tmp_path, **changes)
    levels = 4
    outputs = network.levels(task.batch, levels)
    begin = [0] * levels
    for each in texts:
        first, end = max(each.answer - 1, 1), len(each.tokens) - 1
        features = each.features.astype(np.float32)
        for at in range(first, end):
            name = reference.open()
            rows = [Row(name, int(each.tokens[i]), i, i - 2) for i in range(1, at + 1)]
            scores = reference.score(rows, features=features[:at])
            reference.commit(name, range(at))
            logits, given = scores.logits[-1], scores.outputs[-1:]
            path: list[Row] = []
            for level in range(min(levels, end - at)):
                if level:
                    token = int(each.tokens[at + level])
                    path.append(Row(name, token, at + level, len(path) - 1))
                    scores = reference.score(path, given=given)
                    logits = scores.logits[-1]
                    given = np.concatenate([given, scores.outputs[-1:]])
                place = begin[level] + at - first
                ours = (outputs[level][place] @ network.frozen.head.T).numpy()
                assert np.abs(ours - logits).max() < 1e-4
            reference.free(name)
        begin = [at + end - first - level for level, at in enumerate(begin)]
    assert [len(output) for output in outputs] == begin


def test_training_begins_with_the_targets_last_layer(tmp_path: Path) -> None:
    """The last feature goes through unchanged, and all tensors have the shapes of the file."""
    model = tiny_model(tmp_path)
    weights = initial_weights(model, 3, 0)
    assert {name: tuple(w.shape) for name, w in weights.items()} == shape_for(model).tensors(3)
    features = torch.randn(5, 3 * 64)
    assert torch.equal(features @ weights["fc.weight"].T, features[:, -64:])
    own = torch.from_numpy(model.file.tensor("blk.2.attn_k.weight"))
    assert torch.equal(weights["layers.0.self_attn.k_proj.weight"][:, 64:], own)


def test_an_epoch_has_every_conversation_once(tmp_path: Path) -> None:
    """In another order each time, the same for the same seed; batches near the size asked for."""
    captured(tiny_model(tmp_path), tmp_path / "text")
    learned, held_out = split(list(Shards(tmp_path / "text").conversations()), 5)
    assert {each.number % 5 for each in held_out} == {0}
    assert {each.number % 5 for each in learned} == {1, 2, 3, 4}
    first, second = batches(learned, 128, 3, 0), batches(learned, 128, 3, 1)
    assert first == batches(learned, 128, 3, 0) != second
    for plan in (first, second):
        assert sorted(place for batch in plan for place in batch) == list(range(len(learned)))
        sizes = [sum(len(learned[place].tokens) for place in batch) for batch in plan]
        assert max(sizes) <= 128
        assert np.mean(sizes) > 64
