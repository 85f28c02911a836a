"""A training's state that is not what was written, and a disk that takes no more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

from forerun.errors import TrainingError
from forerun.train.folder import written_whole
from forerun.train.training_state import State, StateFolder

pytestmark = pytest.mark.judge


@pytest.mark.parametrize(
    "record", [{}, {"options": 1, "shards": []}, {"options": {}}, {"options": {}, "shards": ["1"]}]
)
def test_a_damaged_record_is_refused(tmp_path: Path, record: object) -> None:
    """Whatever is in it that no training wrote."""
    folder = StateFolder(tmp_path / "head", {})
    (tmp_path / "head" / "training.json").write_text(json.dumps(record))
    with pytest.raises(TrainingError, match="damaged"):
        folder.recorded()


@pytest.mark.parametrize("part", ["weight", "exp_avg", "exp_avg_sq"])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_state_without_its_tensors_is_refused(tmp_path: Path, part: str, is_there: bool) -> None:
    """Those of another shape, and none at all, also where only the optimizer would miss them."""
    from safetensors.torch import load_file, save_file

    weights = {"one": torch.ones(2, requires_grad=True)}
    optimizer = torch.optim.AdamW(weights.values())
    weights["one"].grad = torch.ones(2)
    optimizer.step()
    folder = StateFolder(tmp_path / "head", {})
    folder.save(State(step=1), weights, optimizer, None)
    path = tmp_path / "head" / "state.safetensors"
    tensors = load_file(path)
    tensors.pop(f"{part}.one")
    if is_there:
        tensors[f"{part}.one"] = torch.ones(1)
    save_file(tensors, path)
    with pytest.raises(TrainingError, match="damaged"):
        folder.load({"one": torch.zeros(2)})


def test_tensors_that_cannot_be_written_say_so(tmp_path: Path) -> None:
    """The library tells of a full disk by an error of its own; the old file stays."""
    from safetensors.torch import save_file

    path = tmp_path / "state.safetensors"
    path.write_text("old")

    def write(beside: Path) -> None:
        save_file({"one": torch.ones(2)}, tmp_path / "missing" / beside.name)

    with pytest.raises(TrainingError, match="can't be written"):
        written_whole(path, write)
    assert path.read_text() == "old"


@pytest.mark.parametrize(
    "change",
    [
        {"step": "3"}, {"batch": -1}, {"epoch": 1}, {"learned": 2.5}, {"history": None},
        {"history": [{}]}, {"shards": "../x"}, {"seconds": None}, {"worse": True}, {"step": 10**30},
        {"more": 1},
    ],
)  # fmt: skip
def test_a_state_that_says_what_no_training_did_is_refused(
    tmp_path: Path, change: dict[str, object]
) -> None:
    """The error names the field and its value, before anything is allocated or learned."""
    from dataclasses import asdict

    from safetensors.torch import save_file

    told = json.dumps({**asdict(State(shards=[1])), **change}).encode()
    folder = StateFolder(tmp_path / "head", {})
    save_file(
        {"state": torch.frombuffer(bytearray(told), dtype=torch.uint8)},
        tmp_path / "head" / "state.safetensors",
    )
    with pytest.raises(TrainingError, match=f"damaged: {next(iter(change))}"):
        folder.load({})


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    """Nor is there a tensor too much: what was saved is told by its name."""
    from safetensors.torch import load_file, save_file

    weights = {"one": torch.ones(2, requires_grad=True)}
    optimizer = torch.optim.AdamW(weights.values())
    weights["one"].grad = torch.ones(2)
    optimizer.step()
    folder = StateFolder(tmp_path / "head", {})
    folder.save(State(shards=[1]), weights, optimizer, None)
    path = tmp_path / "head" / "state.safetensors"
    sound = load_file(path)
    for name, values in (("weight.one", torch.tensor([1.0, torch.nan])), ("x", torch.ones(1))):
        save_file({**sound, name: values}, path)
        with pytest.raises(TrainingError, match=name):
            folder.load({"one": torch.zeros(2)})
