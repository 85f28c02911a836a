from __future__ import annotations

import itertools
import json
import math
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
from forerun.train.plan import Schedule
from forerun.train.recipes import head_for_hours
from train.made_text import tiny_model

pytestmark = pytest.mark.judge


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return tiny_model(tmp_path_factory.mktemp("model"), quantisation="Q4_1", inner=96, context=512)


@pytest.fixture(scope="module")
def target(model: Model) -> NativeTarget:
    return NativeTarget(model, threads=1)


class Clock:
    """A second passes whenever it is looked at: once a shard, and once a step."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time, in seconds."""
        self.now += 1
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the 36 seconds that a hundredth of an hour has, 14.4 are for capture."""
    monkeypatch.setattr(plan, "monotonic", Clock())
    monkeypatch.setattr(loop, "monotonic", Clock())
    monkeypatch.setattr(loop, "_LOOKED_EVERY", 7)
    monkeypatch.setattr(loop, "_SAVED_EVERY", 2)


@pytest.fixture
def slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that captures 8,000 tokens in its share of a hundredth of an hour."""
    monkeypatch.setattr(plan, "capture_rate", lambda *given: 8000 / 14.4)


@pytest.fixture
def overrated_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that seems to capture far more in that time than it does."""
    monkeypatch.setattr(plan, "capture_rate", lambda *given: 1e5)
    monkeypatch.setattr(plan, "_TO_CAPTURE", 0.1)


def run(
    model: Model, target: NativeTarget, folder: Path, most: int = 10**9, counted: Any = None
) -> Any:
    """What an hour's hundredth gives, ended after so many passes and steps together."""
    left = iter(range(most)) if counted is None else counted
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
    assert card["training"]["learned_tokens"] >= card["training"]["budget"] > 0
    assert card["training"]["finished"] is True
    alpha = card["held_out"]["alpha"]
    assert len(alpha) == 3
    assert all(0 < each < 1 for each in alpha)
    beside = json.loads((tmp_path / "new" / "head.json").read_text())
    assert {**card, "history": beside["history"]} == beside


def test_a_capture_ends_with_its_time_and_learning_gets_the_rest(
    model: Model, target: NativeTarget, tmp_path: Path, overrated_machine: None
) -> None:
    """Whatever a trial promised: seconds are kept, and what measuring takes is left for it."""
    card = run(model, target, tmp_path)
    record = json.loads((tmp_path / "plan.json").read_text())
    assert record["spent"] >= 3.6
    assert card["data"]["tokens"] == record["tokens"] < 0.1 * 36 * 1e5
    steps = json.loads((tmp_path / "head.json").read_text())["history"][-1]["step"]
    assert 36 * 0.1 < record["learning"] < 36 - record["spent"]
    assert steps == math.ceil(record["learning"])
    assert card["training"]["budget"] == card["training"]["learned_tokens"]


@pytest.mark.parametrize("machine", ["slow_machine", "overrated_machine"])
@pytest.mark.parametrize("stops", [(0.15, 0.5, 0.0), (0.1, 0.0, 0.75, 0.01, 0.01, 0.0)])
def test_hours_that_were_interrupted_end_the_same(
    model: Model,
    target: NativeTarget,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    machine: str,
    stops: tuple[float, ...],
) -> None:
    """In the middle of the capture, and in the middle of the training, wherever time decides."""
    request.getfixturevalue(machine)
    counted = itertools.count()
    whole = run(model, target, tmp_path / "whole", counted=counted)
    asked = next(counted)
    for share in stops:
        assert run(model, target, tmp_path / "parts", 1 + int(share * asked)) is None
    card = run(model, target, tmp_path / "parts")
    whole["training"]["hours"] = card["training"]["hours"]
    assert card == whole


@pytest.mark.usefixtures("slow_machine")
def test_a_folder_keeps_its_plan(model: Model, target: NativeTarget, tmp_path: Path) -> None:
    """A quicker machine does not change it, other hours are refused."""
    options = Hours(hours=0.01, folder=str(tmp_path))
    first = Schedule(model, target, options)
    assert first.plan.tokens == 8000
    assert first.learning(lambda: 10.0) == pytest.approx(36 * 0.98 - 10 - 1)
    assert Schedule(model, target, options).learning(lambda: 0.0) == first.plan.learning
    path = tmp_path / "plan.json"
    path.write_text(path.read_text().replace("8000", "9000"))
    assert Schedule(model, target, options).plan.tokens == 9000
    with pytest.raises(TrainingError, match=r"plan for 0\.01 hours"):
        Schedule(model, target, Hours(hours=2, folder=str(tmp_path)))
    path.write_text("{}")
    with pytest.raises(TrainingError, match="Field required"):
        Schedule(model, target, options)


def test_what_a_capture_makes_is_tried(model: Model, target: NativeTarget, tmp_path: Path) -> None:
    """The rate is above zero, and the plan says what follows from it."""
    made = Schedule(model, target, Hours(hours=0.01, folder=str(tmp_path), threads=1)).plan
    assert made.tokens >= 2000
    assert "Capture for 0.2 minutes" in made.text()
