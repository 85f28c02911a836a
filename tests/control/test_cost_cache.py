"""Costs are measured once for a machine, a model and a setting, and never half remembered."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from forerun.config import Loading
from forerun.control import cost_cache
from forerun.control.cost import CostCurve
from forerun.control.cost_cache import cost_key, remembered_costs
from forerun.models.model import load_model
from forerun.targets.table import open_target
from forerun.targets.toy import ToyTarget
from models.tiny_gguf import Tiny

KEY = {"model": "toy", "threads": 2}


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[ToyTarget]:
    """Count the measurements, each of which finds another cost."""
    found: list[ToyTarget] = []

    def measure(target: ToyTarget) -> CostCurve:
        found.append(target)
        return CostCurve({1: 0.5, 8: float(len(found))})

    monkeypatch.setattr(cost_cache, "measure", measure)
    return found


def costs(folder: Path, key: dict[str, str | int] | None = None) -> dict[int, float]:
    """Return what is remembered, or measured."""
    target = ToyTarget(np.zeros((7, 7), np.float32))
    return remembered_costs(target, key or KEY, folder).measured


def test_what_was_measured_is_remembered(tmp_path: Path, measured: list[ToyTarget]) -> None:
    """By its own key alone."""
    folder = tmp_path / "not" / "there"
    assert costs(folder) == costs(folder) == {1: 0.5, 8: 1.0}
    assert costs(folder, {**KEY, "threads": 1}) == {1: 0.5, 8: 2.0}
    assert costs(folder) == {1: 0.5, 8: 1.0}
    assert len(measured) == 2
    again = remembered_costs(ToyTarget(np.zeros((7, 7), np.float32)), KEY, folder, again=True)
    assert again.measured == costs(folder) == {1: 0.5, 8: 3.0}
    assert not list(folder.glob("*.part"))


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"key": {"model": "another"}},
        {"seconds": {"8": 1.0}},
        {"seconds": {"1": 0.0}},
        {"seconds": {"1": "NaN"}},
        {"seconds": {"1": None}},
        {"seconds": {"one": 1.0}},
        {"seconds": []},
        {"seconds": {"1": 1.0, "-4": 1.0}},
        {"seconds": {"1": 1.0, "1025": 1.0}},
        {"seconds": {"1": 1.0, "9" * 4000: 1.0}},
        {"seconds": {"1": 10**400}},
        {"seconds": {"1": 1e300}},
        {"seconds": {"1": 1e-300}},
        {"seconds": {"1": "0.5"}},
        {"seconds": {"1": True}},
    ],
)
def test_a_file_that_says_nonsense_is_measured_anew(
    tmp_path: Path, measured: list[ToyTarget], change: dict[str, object]
) -> None:
    """And written anew."""
    costs(tmp_path)
    (file,) = tmp_path.glob("*.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    assert costs(tmp_path) == {1: 0.5, 8: 2.0}
    assert costs(tmp_path) == {1: 0.5, 8: 2.0}


def test_a_damaged_file_is_measured_anew(tmp_path: Path, measured: list[ToyTarget]) -> None:
    """Wherever it was cut."""
    costs(tmp_path)
    (file,) = tmp_path.glob("*.json")
    whole = file.read_bytes()
    for end in range(0, len(whole), 7):
        file.write_bytes(whole[:end])
        before = len(measured)
        costs(tmp_path)
        assert len(measured) == before + 1
    file.write_bytes(b"[" * 100_000)
    costs(tmp_path)
    assert costs(tmp_path)[1] == 0.5


def test_times_of_a_busy_machine_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next process measures again."""
    shaky = CostCurve({1: 1.0}, is_steady=False)
    monkeypatch.setattr(cost_cache, "measure", lambda target: shaky)
    assert costs(tmp_path) == {1: 1.0}
    assert not list(tmp_path.iterdir())


def test_where_nothing_can_be_written_costs_are_measured(
    tmp_path: Path, measured: list[ToyTarget]
) -> None:
    """Each time."""
    (tmp_path / "file").write_text("")
    assert costs(tmp_path / "file")[8] == 1.0
    assert costs(tmp_path / "file")[8] == 2.0


def test_a_key_tells_apart_what_costs_differently(tmp_path: Path) -> None:
    """Another file, or the file changed, its first layers, other weights: another cost."""
    model_path = Tiny(layers=2).write(tmp_path / "tiny.gguf")
    model = load_model(model_path)
    loading = Loading(model=model_path, target="reference")
    target = open_target("reference", model).target
    key = cost_key(model, target, loading)
    assert json.loads(json.dumps(key)) == key == cost_key(load_model(model_path), target, loading)
    copy = model_path.with_name("copy.gguf")
    copy.write_bytes(model_path.read_bytes())
    keys = [
        cost_key(load_model(copy), target, loading),
        cost_key(model.cut(1), target, loading),
        cost_key(model, target, loading.replace(weights="int8")),
    ]
    assert key not in keys


@pytest.mark.parametrize("kind", ["pipe", "zero", "folder", "huge"])
def test_what_is_no_file_of_ours_is_measured_anew(
    tmp_path: Path, measured: list[ToyTarget], kind: str
) -> None:
    """Whatever lies there: nothing is waited for, or read without end."""
    costs(tmp_path)
    (file,) = tmp_path.glob("*.json")
    file.unlink()
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "zero":
        file.symlink_to("/dev/zero")
    elif kind == "folder":
        file.mkdir()
    else:
        os.truncate(os.open(file, os.O_CREAT | os.O_WRONLY), 3 << 30)
    assert costs(tmp_path)[8] == 2.0
    assert not list(tmp_path.glob("*.part"))
