from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from numpy.typing import NDArray

from forerun.errors import OptionError
from forerun.models.model import Model, load_model
from forerun.targets.protocol import Row
from forerun.targets.reference import ReferenceTarget
from forerun.train.examples import TextExamples
from forerun.train.model_files import write_model_files
from forerun.train.network import Frozen, Weights
from forerun.train.shards import Shards
from forerun.train.student import Student, chosen_layers, frozen_for, initial_student
from train.made_text import captured, tiny_model

pytestmark = pytest.mark.judge
torch.set_num_threads(1)  # so little work is done sooner by one

Logits = NDArray[np.float32]


def student_of(model: Model, layers: tuple[int, ...]) -> tuple[Student, Weights]:
    """A student that begins with layers of the model, a little off."""
    random = torch.Generator().manual_seed(1)
    weights = {
        name: values * (1 + torch.randn(values.shape, generator=random) / 8)
        for name, values in initial_student(model, layers).items()
    }
    frozen = Frozen.of(model, np.arange(model.architecture.vocab_size))
    return Student(weights, frozen_for(frozen, len(layers))), weights


def logits_of(model: Model, tokens: list[int]) -> Logits:
    """What the reference computes behind each token of a text."""
    target = ReferenceTarget(model)
    name = target.open()
    rows = [Row(name, token, at, at - 1) for at, token in enumerate(tokens)]
    return target.score(rows).logits


@pytest.mark.parametrize(
    ("layers", "changes"),
    [
        ((0, 2), {}),
        ((1,), {"architecture": "qwen2"}),
        ((0, 1, 2), {"architecture": "qwen3", "is_tied": False}),
        ((0, 2, 3, 4), {"architecture": "smollm3", "layers": 5}),
    ],
)
def test_files_hold_what_was_trained(
    tmp_path: Path, layers: tuple[int, ...], changes: dict[str, object]
) -> None:
    """Read again, GGUF file and folder compute what training computed, and cut text the same."""
    model = tiny_model(tmp_path, **changes)
    student, weights = student_of(model, layers)
    card = write_model_files(model, len(layers), weights, {"kind": "model"}, tmp_path, "F32")
    assert card["files"] == {"model.gguf": "written", "model-hf": "written"}
    captured(model, tmp_path / "text", tokens=150)
    texts = list(Shards(tmp_path / "text").conversations())[:3]
    task = TextExamples(texts, np.arange(300)).task(range(3))
    ours = (student.levels(task.batch, 1)[0] @ student.frozen.head.T).numpy()
    for name, off in (("model.gguf", 1e-4), ("model-hf", 2e-2)):
        read = load_model(tmp_path / name)
        theirs = [
            logits_of(read, each.tokens[:-1].tolist())[line.first :]
            for each, line in zip(texts, task.batch.lines, strict=True)
        ]
        assert np.abs(ours - np.concatenate(theirs)).max() < off
        assert read.tokenizer.fingerprint == model.tokenizer.fingerprint
        assert read.tokenizer.encode("then 12 in\n") == model.tokenizer.encode("then 12 in\n")


def test_transformers_runs_the_folder(tmp_path: Path) -> None:
    """With the logits of the GGUF file, and its tokenizer with the same ids and the same chat."""
    transformers = pytest.importorskip("transformers")
    model = tiny_model(tmp_path)
    write_model_files(model, 2, student_of(model, (0, 2))[1], {}, tmp_path, "F16")
    folder = str(tmp_path / "model-hf")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    words = "<|endoftext|>then 12 \u00e9 in<|im_end|>"
    ids = model.tokenizer.encode(words, special=True)
    assert tokenizer(words)["input_ids"] == ids
    assert tokenizer.decode(ids) == words
    chat = [{"role": "user", "content": "in"}]
    told = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert told == "<|endoftext|>in<|im_end|><|endoftext|>"
    judge = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        theirs = judge(torch.tensor([ids])).logits[0].numpy()
    assert np.abs(theirs - logits_of(load_model(tmp_path / "model.gguf"), ids)).max() < 1e-2


def test_a_folder_of_the_targets_own_gives_a_folder(tmp_path: Path) -> None:
    """Its tokenizer is copied; no GGUF file is written, and the card says so."""
    model = tiny_model(tmp_path)
    write_model_files(model, 3, student_of(model, (0, 1, 2))[1], {}, tmp_path, "F16")
    folder = load_model(tmp_path / "model-hf")
    _, weights = student_of(folder, (2,))
    card = write_model_files(folder, 1, weights, {}, tmp_path / "model-hf", "F16")
    assert "not written" in str(card["files"])
    read = load_model(tmp_path / "model-hf" / "model-hf")
    assert read.architecture.num_layers == 1
    assert read.tokenizer.fingerprint == folder.tokenizer.fingerprint


def test_layers_that_are_not_there_are_refused(tmp_path: Path) -> None:
    """By default it begins with the first and the last."""
    model = tiny_model(tmp_path)
    assert chosen_layers(model, ()) == (0, 2)
    assert chosen_layers(model, (2, 1, 2)) == (1, 2)
    with pytest.raises(OptionError, match="has 3"):
        chosen_layers(model, (0, 3))
