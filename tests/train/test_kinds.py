from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import forerun
from forerun.errors import TrainingError
from forerun.models.head_file import HeadFile
from forerun.models.model import Model
from forerun.targets.native import NativeTarget
from forerun.targets.reference_readout import ReferenceReadout
from forerun.train import loop, options
from forerun.train.folder import working_folder
from forerun.train.kinds import KINDS
from forerun.train.learner import TrainingNews
from forerun.train.recipes import learned_from
from forerun.train.shards import shard_paths
from train.made_text import captured, tiny_model

pytestmark = pytest.mark.judge

SMALL = {"budget": 800, "rows": 100, "threads": 1, "rate": 3e-3}
kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A tiny target that the native pass runs."""
    return tiny_model(tmp_path_factory.mktemp("target"), quantisation="Q8_0", context=256)


@pytest.fixture(scope="module")
def text(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text captured from it."""
    folder = tmp_path_factory.mktemp("text")
    captured(model, folder, NativeTarget(model, threads=1), tokens=1200)
    return folder


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Saves and looks every few steps; one conversation in five held out."""
    monkeypatch.setattr(loop, "HELD_OUT", 5)
    monkeypatch.setattr(loop, "_LOOKED_EVERY", 4)
    monkeypatch.setattr(loop, "_SAVED_EVERY", 3)


def copied(text: Path, folder: Path) -> Path:
    """A folder of its own with that text."""
    folder.mkdir()
    for path in (text / "capture.json", *shard_paths(text)):
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def learn(model: Model, kind: str, folder: Path, most: int = 10**9, **changes: Any) -> Any:
    """The card of a training in a folder, ended after so many steps."""
    left = iter(range(most))
    news: list[TrainingNews] = []
    return learned_from(
        kind,
        model,
        NativeTarget(model, threads=1),
        getattr(options, f"{kind.title()}Learning")(folder=str(folder), **{**SMALL, **changes}),
        report=news.append,
        is_over=lambda: next(left, None) is None,
    )


@kinds
def test_one_that_ended_early_ends_the_same(
    model: Model, text: Path, tmp_path: Path, kind: str
) -> None:
    """Early and late in its budget, killed between two saves: the same, to the last digit.

    Its card says how it was made: the target's checksum, options, losses, acceptance by position.
    """
    whole, parts = copied(text, tmp_path / "whole"), copied(text, tmp_path / "parts")
    card = learn(model, kind, whole)
    for steps in (2, 4):
        assert learn(model, kind, parts, steps) is None
        assert not (parts / f"{kind}.gguf").exists()
    state = (parts / kind / "state.safetensors").read_bytes()
    assert learn(model, kind, parts, 2) is None
    (parts / kind / "state.safetensors").write_bytes(state)  # those steps were never saved
    again = learn(model, kind, parts)
    for made in (card, again):
        made["training"].pop("hours")
    assert again == card
    one, other = (json.loads((f / f"{kind}.json").read_text()) for f in (whole, parts))
    assert one["history"] == other["history"]
    assert {"step", "learned", "taught", "alpha", "loss"} <= one["history"][0].keys()
    assert len(card["target"]["sha256"]) == 64
    assert card["training"]["learned_tokens"] >= 800
    assert card["training"]["finished"] is True
    assert len(card["held_out"]["alpha"]) >= 3
    assert all(0 < each < 1 for each in card["held_out"]["alpha"])


@pytest.mark.parametrize(("kind", "layer"), [("medusa", 3), ("exit", 1)])
def test_a_head_without_attention_learns_and_opens(
    model: Model, text: Path, tmp_path: Path, kind: str, layer: int
) -> None:
    """Better on held-out text than in the beginning; the file's card is the one that is told."""
    folder = copied(text, tmp_path / "text")
    card = learn(model, kind, folder, budget=3000, vocabulary=120, rows=150, levels=2)
    head = HeadFile.open(folder / f"{kind}.gguf")
    head.check_target(model)
    assert card["kind"] == head.kind == kind
    assert (head.facts.layers, head.facts.card) == ((layer,), card)
    assert ReferenceReadout(head, model).layer == layer
    history = json.loads((folder / f"{kind}.json").read_text())["history"]
    first, last = history[0], history[-1]
    assert all(now < then for now, then in zip(last["loss"], first["loss"], strict=True))
    assert all(now > then for now, then in zip(last["alpha"], first["alpha"], strict=True))


@kinds
def test_two_in_one_folder_are_refused(model: Model, text: Path, tmp_path: Path, kind: str) -> None:
    """Whoever comes second is told; another target is refused as well, and other options."""
    folder = copied(text, tmp_path / "text")
    with working_folder(folder / kind), pytest.raises(TrainingError, match="works in"):
        learn(model, kind, folder)
    other = tiny_model(tmp_path, quantisation="Q8_0", context=256, seed=5)
    with pytest.raises(TrainingError, match="another target"):
        learn(other, kind, folder)
    assert learn(model, kind, folder, 1) is None
    with pytest.raises(TrainingError, match="other options"):
        learn(model, kind, folder, rate=1e-3)


@kinds
def test_numbers_that_cease_to_be_finite_end_it(
    model: Model, text: Path, tmp_path: Path, kind: str
) -> None:
    """With the last good state kept: a lower rate's training is not begun from a broken one."""
    folder = copied(text, tmp_path / "text")
    assert learn(model, kind, folder, 3) is None
    state = folder / kind / "state.safetensors"
    good = state.read_bytes()
    broken = KINDS[kind].backward  # type: ignore[attr-defined]

    def nan(self: Any, places: Any, progress: Any) -> Any:
        taught = broken(self, places, progress)
        next(iter(self.weights.values())).grad.fill_(torch.nan)
        return taught

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KINDS[kind], "backward", nan)
        with pytest.raises(TrainingError, match="no longer finite at step 5"):
            learn(model, kind, folder)
    assert state.read_bytes() == good
    assert learn(model, kind, folder) is not None


def test_a_learned_model_drafts(model: Model, text: Path, tmp_path: Path) -> None:
    """Its file drafts for its target, several texts at once, with their noise; so does its folder.

    What is written stays, in fewer passes, and more is accepted than before it learned.
    """
    folder = copied(text, tmp_path / "text")
    card = learn(model, "model", folder, budget=2000)
    assert card["held_out"]["alpha"][0] > card["before"]["alpha"][0]
    prompts = ["then", "in the", "reader", "an ant", "her hen", "tea"]

    def written(drafter: str, **given: Any) -> tuple[list[tuple[int, ...]], int]:
        lm = forerun.load(str(model.path), threads=1, **given)
        results = lm.generate_batch(
            prompts, drafter=drafter, max_tokens=30, temperature=1.0, seed=3
        )
        return [each.token_ids for each in results], sum(each.stats.passes for each in results)

    plain, most = written("none")
    for name in ("model.gguf", "model-hf"):
        told, passes = written("model", draft_model=str(folder / name))
        assert told == plain
        assert passes < most
