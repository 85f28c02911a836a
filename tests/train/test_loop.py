from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

from forerun.errors import TrainingError
from forerun.models.model import Model
from forerun.targets.reference import ReferenceTarget
from forerun.train import loop
from forerun.train.evaluation import Measured
from forerun.train.head_learner import HeadLearner
from forerun.train.learner import Learner, Trained, TrainingNews
from forerun.train.options import HeadLearning
from forerun.train.shards import Recipe, Shards, shard_paths
from train.made_text import captured, tiny_model

pytestmark = pytest.mark.judge

OPTIONS = {"budget": 2500, "vocabulary": 120, "rows": 150, "threads": 1, "rate": 3e-3, "levels": 3}


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    """A tiny target with captured text in the folder `text`; held out is one in five."""
    monkeypatch.setattr(loop, "HELD_OUT", 5)
    monkeypatch.setattr(loop, "_LOOKED_EVERY", 7)
    monkeypatch.setattr(loop, "_SAVED_EVERY", 5)
    model = tiny_model(tmp_path)
    captured(model, tmp_path / "text", tokens=2500)
    return model


def train(
    model: Model,
    folder: Path,
    is_over: Callable[[], bool] = lambda: False,
    news: list[TrainingNews] | None = None,
    **changes: object,
) -> Trained:
    """Train on the text of a folder."""
    options = HeadLearning(**{**OPTIONS, **changes})
    told = [] if news is None else news
    make = partial(learner, model, options)
    return loop.train(make, folder, options, report=told.append, is_over=is_over)


def learner(model: Model, options: HeadLearning, recipe: Recipe) -> Learner:
    """A head that learns."""
    return HeadLearner(model, ReferenceTarget(model), recipe, options)


def same(one: Trained, other: Trained) -> bool:
    """Whether two trainings came to the same weights, bit for bit."""
    return one.history == other.history and all(
        torch.equal(one.weights[name], other.weights[name]) for name in one.weights
    )


def again(folder: Path) -> Path:
    """A second folder with the same captured text."""
    other = folder.parent / "again"
    other.mkdir()
    for path in (folder / "capture.json", *shard_paths(folder)):
        (other / path.name).write_bytes(path.read_bytes())
    return other


def test_it_learns(model: Model, tmp_path: Path) -> None:
    """On held-out text it comes nearer to the target's law at every level, and is accepted more."""
    news: list[TrainingNews] = []
    still = train(model, again(tmp_path / "text"), budget=500, rate=1e-12).history[0]
    trained = train(model, tmp_path / "text", news=news, budget=9_000, patience=99)
    assert trained.is_over
    assert news[-1].learned >= 9_000
    held_out = news[-1].held_out
    assert held_out is not None
    assert all(now < then for now, then in zip(held_out.loss, still.loss, strict=True))
    assert all(now > then for now, then in zip(held_out.alpha, still.alpha, strict=True))
    assert held_out.agreement[2] > still.agreement[2] + 0.1
    assert "alpha" in news[-1].text()


@pytest.mark.parametrize("steps", [(1, 3), (12, 5, 1)])
def test_a_training_that_ended_early_ends_the_same(
    model: Model, tmp_path: Path, steps: tuple[int, ...]
) -> None:
    """Whenever it is interrupted, the weights and all that was measured are the same in the end."""
    whole = train(model, tmp_path / "text")
    folder = again(tmp_path / "text")
    for count in steps:
        left = iter(range(count))
        part = train(model, folder, lambda left=left: next(left, None) is None)  # type: ignore[misc]
        assert not part.is_over
    assert same(train(model, folder), whole)


def test_a_killed_training_ends_the_same(model: Model, tmp_path: Path) -> None:
    """SIGKILL in the middle of a run; the next one goes on from the last save."""
    program = (
        "import sys; from pathlib import Path; from forerun.train import loop\n"
        "loop.HELD_OUT, loop._LOOKED_EVERY, loop._SAVED_EVERY = 5, 7, 5\n"
        "from forerun.models.model import load_model\n"
        "from forerun.train.recipes import KINDS\n"
        "from forerun.train.options import HeadLearning\n"
        "model = load_model(sys.argv[1])\n"
        f"options = HeadLearning(**{OPTIONS!r})\n"
        "make = lambda recipe: KINDS['head'](model, None, recipe, options)\n"
        "loop.train(make, Path(sys.argv[2]), options, report=print, is_over=lambda: False)"
    )
    whole = train(model, tmp_path / "text")
    folder = again(tmp_path / "text")
    state = loop.state_folder(folder, "head") / "state.safetensors"
    command = [sys.executable, "-c", program, str(model.path), str(folder)]
    with subprocess.Popen(command) as process:
        until = time.monotonic() + 100
        while not state.exists() and time.monotonic() < until:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
    assert state.exists()
    assert same(train(model, folder), whole)


def test_text_that_came_later_is_learned_from_in_the_next_epoch(
    model: Model, tmp_path: Path
) -> None:
    """And a restart learns from what the epoch began with, not from what is there now."""
    folder = tmp_path / "text"
    taken = iter(range(4))
    train(model, folder, lambda: next(taken, None) is None)
    first = len(shard_paths(folder))
    captured(model, folder, tokens=4000)
    trained = train(model, folder)
    assert len(shard_paths(folder)) > first
    assert trained.text.tokens > 3500
    other = again(folder)
    for path in shard_paths(other)[first:]:
        path.rename(path.with_suffix(".away"))
    train(model, other, lambda: True)
    for path in other.glob("*.away"):
        path.rename(path.with_suffix(".safetensors"))
    assert same(train(model, other), trained)


def test_numbers_that_cease_to_be_finite_end_it_with_the_last_good_state(
    model: Model, tmp_path: Path
) -> None:
    """The state of the last save is untouched, and a next run could go on from it."""
    folder = tmp_path / "text"
    taken = iter(range(6))
    train(model, folder, lambda: next(taken, None) is None)
    state = loop.state_folder(folder, "head") / "state.safetensors"
    good = state.read_bytes()
    options = HeadLearning(**OPTIONS)
    who = learner(model, options, Shards(folder).recipe)
    trainer = loop._Trainer(who, folder, options)
    with torch.no_grad():
        who.weights["fc.weight"][0, 0] = torch.nan
    with pytest.raises(TrainingError, match="no longer finite at step 8"):
        list(trainer.steps())
    assert state.read_bytes() == good
    assert train(model, folder).is_over


def test_a_look_that_is_not_finite_ends_it_likewise(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the last step broke is seen before it is saved."""
    folder, bad = tmp_path / "text", Measured([float("nan")], [0.0], [1.0])
    monkeypatch.setattr(HeadLearner, "measure", lambda self: bad)
    with pytest.raises(TrainingError, match="no longer finite"):
        train(model, folder)


def test_it_ends_early_when_nothing_gets_better(model: Model, tmp_path: Path) -> None:
    """With a rate that changes next to nothing, after as many looks as its patience."""
    trained = train(model, tmp_path / "text", rate=1e-12, patience=2)
    assert trained.is_over
    assert trained.learned < OPTIONS["budget"]


def test_a_folder_with_another_training_is_refused(model: Model, tmp_path: Path) -> None:
    """Other options would not end the same."""
    train(model, tmp_path / "text", lambda: True)
    with pytest.raises(TrainingError, match="other options"):
        train(model, tmp_path / "text", rate=1e-3)


def test_a_larger_budget_goes_on(model: Model, tmp_path: Path) -> None:
    """From the steps that were made; with the budget that it had, nothing is left to do."""
    first = train(model, tmp_path / "text")
    assert same(train(model, tmp_path / "text"), first)
    more = train(model, tmp_path / "text", budget=4000)
    assert more.learned >= 4000 > first.learned
    assert more.history[: len(first.history)] == first.history


def test_text_of_another_target_is_refused(model: Model, tmp_path: Path) -> None:
    """A head learned from it would be for that one."""
    (tmp_path / "other").mkdir()
    other = tiny_model(tmp_path / "other", seed=1)
    with pytest.raises(TrainingError, match="another target"):
        train(other, tmp_path / "text")


def test_too_little_text_and_none_are_refused(model: Model, tmp_path: Path) -> None:
    """Each says what to do."""
    with pytest.raises(TrainingError, match="no captured text"):
        train(model, tmp_path)
    for path in shard_paths(tmp_path / "text"):
        path.unlink()
    with pytest.raises(TrainingError, match="too few"):
        train(model, tmp_path / "text")


@pytest.mark.parametrize("length", [0, 7, 100, -50])
def test_a_damaged_state_is_refused(model: Model, tmp_path: Path, length: int) -> None:
    """It is never taken for the beginning of a new training."""
    folder = tmp_path / "text"
    taken = iter(range(6))
    train(model, folder, lambda: next(taken, None) is None)
    state = loop.state_folder(folder, "head") / "state.safetensors"
    state.write_bytes(state.read_bytes()[:length])
    with pytest.raises(TrainingError, match="damaged"):
        train(model, folder)
