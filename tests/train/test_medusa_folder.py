from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from forerun.errors import ForerunError, ModelFileError, OptionError, OtherTargetError
from forerun.models.head_file import HeadFile
from forerun.models.model import Model
from forerun.targets.reference_readout import ReferenceReadout
from forerun.train.medusa_folder import export_medusa, import_medusa
from forerun.train.recipes import exported, imported
from models.random_head import random_head
from train.made_text import tiny_model

pytestmark = pytest.mark.judge


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return tiny_model(tmp_path)


class ResBlock(nn.Module):
    """As the layout's own reader has it."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add what is learned to what comes in."""
        return x + nn.functional.silu(self.linear(x))


def judged(folder: Path, model: Model, hidden: np.ndarray) -> np.ndarray:
    """What the heads of a folder say of the whole vocabulary, [rows, heads, vocabulary]."""
    config = json.loads((folder / "config.json").read_text())
    width, size = config["hidden_size"], config["vocab_size"]
    heads = nn.ModuleList(
        nn.Sequential(ResBlock(width), nn.Linear(width, size, bias=False))
        for _ in range(config["medusa_num_heads"])
    )
    heads.load_state_dict(load_file(folder / "medusa_lm_head.safetensors"))  # by name, all of them
    norm = torch.from_numpy(model.file.tensor("output_norm.weight"))
    epsilon = model.architecture.norm_epsilon
    x = nn.functional.rms_norm(torch.from_numpy(hidden), (width,), norm, epsilon)
    with torch.no_grad():
        return torch.stack([head(x) for head in heads], 1).numpy()


@pytest.mark.parametrize("has_own_head", [False, True])
def test_another_reader_computes_the_same_and_it_comes_back(
    tmp_path: Path, model: Model, has_own_head: bool
) -> None:
    """Logits of the draft vocabulary within 16 bits' error, there and back."""
    made = {"of": "medusa", "kind": "F16", "has_own_head": has_own_head}
    head = random_head(tmp_path / "head.gguf", model, **made)  # type: ignore[arg-type]
    hidden = np.random.default_rng(0).standard_normal((7, 64), dtype=np.float32)
    ours = ReferenceReadout(head, model).read(hidden)
    exported(head, model, tmp_path / "out")
    theirs = judged(tmp_path / "out", model, hidden)[..., head.facts.tokens]
    np.testing.assert_allclose(theirs, ours, atol=5e-3)
    imported(tmp_path / "out", model, tmp_path / "back.gguf")
    back = HeadFile.open(tmp_path / "back.gguf")
    assert (back.kind, back.facts.layers, back.facts.card) == ("medusa", (3,), head.facts.card)
    np.testing.assert_array_equal(back.facts.tokens, head.facts.tokens)
    assert back.has_own_head == has_own_head
    np.testing.assert_allclose(ReferenceReadout(back, model).read(hidden), ours, atol=0.1)


def edited(folder: Path, **changes: object) -> None:
    """Change what `config.json` says."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))


def stored(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the tensors."""
    path = folder / "medusa_lm_head.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


@pytest.fixture
def folder(tmp_path: Path, model: Model) -> Path:
    """Exported heads."""
    export_medusa(random_head(tmp_path / "m.gguf", model, of="medusa"), model, tmp_path / "out")
    return tmp_path / "out"


def test_strangers_have_the_whole_vocabulary(tmp_path: Path, model: Model, folder: Path) -> None:
    """And rows of their own for each head, or the target's where there are none."""
    edited(folder, forerun_tokens=None, forerun_card=None, medusa_num_layers=None)
    hidden = np.random.default_rng(0).standard_normal((5, 64), dtype=np.float32)

    def own(tensors: dict[str, Any]) -> None:
        for k in range(3):
            tensors[f"{k}.1.weight"] = torch.randn(300, 64, dtype=torch.bfloat16) / 8

    def none(tensors: dict[str, Any]) -> None:
        for k in range(3):
            del tensors[f"{k}.1.weight"]

    stored(folder, own)
    import_medusa(folder, model, tmp_path / "own.gguf")
    head = HeadFile.open(tmp_path / "own.gguf")
    assert head.own_heads == ("0.1.weight", "1.1.weight", "2.1.weight")
    assert head.facts.card == {"imported": "medusa"}
    theirs = judged(folder, model, hidden)
    np.testing.assert_allclose(ReferenceReadout(head, model).read(hidden), theirs, atol=0.1)
    stored(folder, none)
    import_medusa(folder, model, tmp_path / "none.gguf")
    head = HeadFile.open(tmp_path / "none.gguf")
    assert (head.own_heads, len(head.facts.tokens)) == ((), 300)


def lacks(name: str) -> Callable[[dict[str, Any]], None]:
    """Take a tensor away."""
    return lambda tensors: tensors.pop(name)


WRONG: list[tuple[dict[str, object], Any, type[ForerunError], str]] = [
    ({"medusa_num_heads": 0}, None, ModelFileError, "medusa_num_heads is 0"),
    ({"medusa_num_heads": "3"}, None, ModelFileError, "medusa_num_heads is '3'"),
    ({"medusa_num_heads": 4}, None, ModelFileError, r"3\.0\.linear\.weight is missing"),
    ({"medusa_num_layers": 2}, None, OptionError, "heads of 2 layers"),
    ({"forerun_tokens": [3, 3]}, None, ModelFileError, "no tokens that ascend"),
    ({"forerun_tokens": [1, 300]}, None, ModelFileError, "no tokens that ascend"),
    ({"forerun_tokens": [1 << 70]}, None, ModelFileError, "no tokens that ascend"),
    ({"forerun_tokens": [True]}, None, ModelFileError, "no tokens that ascend"),
    ({}, lacks("1.0.linear.bias"), ModelFileError, r"1\.0\.linear\.bias is missing"),
    ({}, lacks("2.1.weight"), ModelFileError, r"2\.1\.weight is missing"),
    (
        {},
        lambda tensors: tensors.update({"0.1.weight": torch.zeros(9, 64)}),
        ModelFileError,
        r"is \(9, 64\), not \(300, 64\)",
    ),
    (
        {},
        lambda tensors: tensors.update({"0.0.linear.bias": torch.zeros(64, dtype=torch.int32)}),
        ModelFileError,
        r"0\.0\.linear\.bias",
    ),
    (
        {},
        lambda tensors: tensors.update({"0.0.linear.bias": torch.full((64,), torch.inf)}),
        ModelFileError,
        "not finite",
    ),
]


@pytest.mark.parametrize(("config", "change", "error", "what"), WRONG)
def test_what_is_no_such_folder_is_refused(
    tmp_path: Path,
    model: Model,
    folder: Path,
    config: dict[str, object],
    change: Any,
    error: type[ForerunError],
    what: str,
) -> None:
    """By what is wrong with it, and nothing is written."""
    edited(folder, **config)
    if change is not None:
        stored(folder, change)
    with pytest.raises(error, match=what):
        imported(folder, model, tmp_path / "back.gguf")
    assert not (tmp_path / "back.gguf").exists()


def test_damaged_and_foreign_files_are_refused(tmp_path: Path, model: Model, folder: Path) -> None:
    """A file that is none, heads of another kind or target, heads that read another layer."""
    (folder / "medusa_lm_head.safetensors").write_bytes(b"\x08" + b"\0" * 7 + b"{}      ")
    with pytest.raises(ModelFileError):
        import_medusa(folder, model, tmp_path / "back.gguf")
    (folder / "medusa_lm_head.safetensors").unlink()
    with pytest.raises(ModelFileError):
        import_medusa(folder, model, tmp_path / "back.gguf")
    with pytest.raises(OptionError, match="of kind 'eagle3'"):
        export_medusa(random_head(tmp_path / "e.gguf", model), model, tmp_path / "x")
    early = random_head(tmp_path / "early.gguf", model, of="medusa", layers=(1,))
    with pytest.raises(OptionError, match="read layer 1"):
        export_medusa(early, model, tmp_path / "x")
    (tmp_path / "other").mkdir()
    other = tiny_model(tmp_path / "other", seed=4)
    with pytest.raises(OtherTargetError):
        exported(HeadFile.open(tmp_path / "m.gguf"), other, tmp_path / "x")
