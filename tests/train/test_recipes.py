from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from forerun.errors import TrainingError
from forerun.models.head_file import HeadFile
from forerun.models.model import Model
from forerun.targets.native import NativeTarget
from forerun.train import loop, plan
from forerun.train.capture import CaptureNews
from forerun.train.learner import TrainingNews
from forerun.train.options import Hours
from forerun.train.plan import plan_for
from forerun.train.recipes import head_for_hours
from train.made_text import tiny_model

pytestmark = pytest.mark.judge


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return tiny_model(tmp_path_factory.mktemp("model"), quantisation="Q4_1", inner=96, context=512)


@pytest.fixture(scope="module")
def target(model: Model) -> NativeTarget:
    return NativeTarget(model, threads=1)


@pytest.fixture
def slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which a hundredth of an hour is 8,000 captured tokens and 1,000 learned."""
    monkeypatch.setattr(plan, "capture_rate", lambda *given: 8000 / 14.4)
    monkeypatch.setattr(plan, "learning_rate", lambda *given: 1000 / 18)


def run(model: Model, target: NativeTarget, folder: Path, most: int = 10**9) -> Any:
    """What an hour's hundredth gives, ended after so many passes and steps together."""
    left = iter(range(most))
    told: list[str | CaptureNews | TrainingNews] = []
    return head_for_hours(
        model,
        target,
        Hours(hours=0.01, folder=str(folder), threads=1),
        told=told.append,
        captured=told.append,
        learned=told.append,
        is_over=lambda: next(left, None) is None,
    )


@pytest.mark.usefixtures("slow_machine")
def test_hours_make_a_head_from_an_empty_folder(
    model: Model, target: NativeTarget, tmp_path: Path
) -> None:
    """Its file opens for the target, and its card says what was done, and how good it is."""
    card = run(model, target, tmp_path / "new")
    head = HeadFile.open(tmp_path / "new" / "head.gguf")
    head.check_target(model)
    assert head.has_own_head
    assert head.facts.card == card
    assert card["data"]["tokens"] >= 8000
    assert card["training"]["learned_tokens"] >= 1000
    assert card["training"]["finished"] is True
    alpha = card["held_out"]["alpha"]
    assert len(alpha) == 3
    assert all(0 < each < 1 for each in alpha)
    beside = json.loads((tmp_path / "new" / "head.json").read_text())
    assert {**card, "history": beside["history"]} == beside


@pytest.mark.usefixtures("slow_machine")
def test_hours_that_were_interrupted_end_the_same(
    model: Model, target: NativeTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of the capture, and in the middle of the training."""
    whole = run(model, target, tmp_path / "whole")
    monkeypatch.setattr(loop, "_SAVED_EVERY", 2)
    assert run(model, target, tmp_path / "parts", 100) is None
    assert run(model, target, tmp_path / "parts", 320) is None
    assert run(model, target, tmp_path / "parts", 1) is None
    card = run(model, target, tmp_path / "parts")
    whole["training"]["hours"] = card["training"]["hours"]
    assert card == whole


@pytest.mark.usefixtures("slow_machine")
def test_a_folder_keeps_its_plan(model: Model, target: NativeTarget, tmp_path: Path) -> None:
    """A quicker machine does not change it, other hours are refused."""
    options = Hours(hours=0.01, folder=str(tmp_path))
    first = plan_for(model, target, options)
    assert (first.tokens, first.budget) == (8000, 1000)
    (tmp_path / "plan.json").write_text(
        (tmp_path / "plan.json").read_text().replace("8000", "9000")
    )
    assert plan_for(model, target, options).tokens == 9000
    with pytest.raises(TrainingError, match=r"plan for 0\.01 hours"):
        plan_for(model, target, Hours(hours=2, folder=str(tmp_path)))
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(TrainingError, match="no plan"):
        plan_for(model, target, options)


def test_rates_are_measured(model: Model, target: NativeTarget, tmp_path: Path) -> None:
    """Both are above zero, and the plan uses them."""
    made = plan_for(model, target, Hours(hours=0.01, folder=str(tmp_path), threads=1))
    assert made.tokens >= 2000
    assert made.budget >= 1000
