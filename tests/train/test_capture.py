from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest

from forerun.config import Sampling
from forerun.core.noise import Noise
from forerun.core.warp import State, Warp
from forerun.errors import OptionError, TrainingError
from forerun.models.model import Model
from forerun.targets.native import NativeTarget
from forerun.targets.protocol import Row
from forerun.train.capture import CaptureNews, capture
from forerun.train.folder import working_folder
from forerun.train.options import Capturing
from forerun.train.shards import Shards, shard_paths
from train.made_text import OPTIONS, captured, tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return tiny_model(tmp_path_factory.mktemp("model"), quantisation="Q4_1", inner=96)


@pytest.fixture(scope="module")
def target(model: Model) -> NativeTarget:
    return NativeTarget(model, threads=1)


@pytest.fixture(scope="module")
def folder(model: Model, target: NativeTarget, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captured")
    captured(model, folder, target)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a capture, but the lock."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


def test_what_is_kept_is_what_the_target_makes_of_the_text(
    target: NativeTarget, folder: Path
) -> None:
    """Features and laws are those of a pass over the finished text, one conversation at a time."""
    shards = Shards(folder)
    for each in list(shards.conversations())[:8]:
        name = target.open()
        rows = [Row(name, int(t), i, i - 1) for i, t in enumerate(each.tokens)]
        scores = target.score(rows, layers=shards.recipe.layers)
        hidden = np.concatenate([scores.hidden[layer] for layer in shards.recipe.layers], 1)
        assert np.array_equal(each.features, hidden.astype(np.float16))
        logits = scores.logits.astype(np.float64)
        log_p = logits - np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1))[:, None]
        log_p -= logits.max(1, keepdims=True)
        named = np.take_along_axis(log_p, each.likely.astype(np.int64), 1)
        assert np.abs(named - each.log_p).max() < 0.01
        assert (np.diff(named, axis=1) <= 0).all()
        assert np.abs(1 - np.exp(named).sum(1) - each.rest).max() < 1e-6
        target.free(name)


def test_answers_are_the_targets_own_text(target: NativeTarget, folder: Path) -> None:
    """Each answer's token is the one that plain decoding draws, with the conversation's noise."""
    shards, temperatures = Shards(folder), set()
    for each in list(shards.conversations())[:12]:
        temperatures.add(each.temperature)
        warp = Warp(Sampling(temperature=each.temperature), target.vocab_size)
        noise = Noise(shards.recipe.seed, each.number)
        name = target.open(each.tokens[: each.answer - 1].tolist())
        token = int(each.tokens[each.answer - 1])
        for position in range(each.answer, len(each.tokens)):
            logits = target.score([Row(name, token, position - 1, -1)]).logits[0]
            target.commit(name, [0])
            token = warp.token(logits, State(), noise, position)
            assert token == each.tokens[position]
        target.free(name)
    assert temperatures == {0.0, 1.0}


@pytest.mark.parametrize("sequences", [1, 3, 17])
def test_how_many_are_written_at_once_changes_nothing(
    model: Model, target: NativeTarget, folder: Path, tmp_path: Path, sequences: int
) -> None:
    """The shards are the same, byte for byte."""
    captured(model, tmp_path, target, sequences=sequences)
    assert contents(tmp_path) == contents(folder)


def test_a_capture_that_ended_early_goes_on_to_the_same_shards(
    model: Model, target: NativeTarget, folder: Path, tmp_path: Path
) -> None:
    """Whenever it ends, and however often, nothing is lost or written twice."""
    for passes in (30, 280, 20, 30):
        left = iter(range(passes))
        capture(
            model,
            target,
            tmp_path,
            Capturing(**OPTIONS),
            report=lambda news: None,
            is_over=lambda left=left: next(left, None) is None,  # type: ignore[misc]
        )
    assert 0 < len(shard_paths(tmp_path)) < len(shard_paths(folder))
    captured(model, tmp_path, target)
    assert contents(tmp_path) == contents(folder)


def test_a_killed_capture_goes_on_to_the_same_shards(
    model: Model, folder: Path, tmp_path: Path
) -> None:
    """SIGKILL in the middle of a run of the command leaves whole shards, which are taken up."""
    command = [sys.executable, "-m", "forerun", "train", "capture", "-m", str(model.path)]
    command += ["--folder", str(tmp_path), "--tokens", "1500", "--threads", "1", "--json"]
    lengths = ("prompt_tokens", "long_prompts", "long_prompt_tokens", "answer_tokens")
    for name in (*lengths, "top", "sequences"):
        command += [f"--{name.replace('_', '-')}", str(OPTIONS[name])]
    command += ["--temperatures", "1,0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as first:
        until = time.monotonic() + 60
        while not shard_paths(tmp_path) and time.monotonic() < until:
            time.sleep(0.005)
        first.send_signal(signal.SIGKILL)
    subprocess.run(command, check=True, capture_output=True)
    assert contents(tmp_path).keys() - contents(folder).keys() <= {
        name for name in os.listdir(tmp_path) if name.endswith(".part")
    }
    assert {name: contents(tmp_path)[name] for name in contents(folder)} == contents(folder)


def test_a_text_that_came_before_is_kept_once(
    model: Model, target: NativeTarget, tmp_path: Path
) -> None:
    """Two prompts, greedy answers: two conversations, however many were written."""
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("the rain\n\nin there\n", "utf-8")
    over = iter(range(400))
    news = capture(
        model,
        target,
        tmp_path / "shards",
        Capturing(**{**OPTIONS, "prompts": str(prompts), "temperatures": (0.0,)}),
        report=lambda news: None,
        is_over=lambda: next(over, None) is None,
    )
    kept = list(Shards(tmp_path / "shards").conversations())
    assert news.conversations == len(kept) == 2
    texts = [model.tokenizer.decode(each.tokens[1 : each.answer - 2].tolist()) for each in kept]
    assert texts == ["the rain", "in there"]


def test_a_capture_says_how_far_it_is(model: Model, target: NativeTarget, tmp_path: Path) -> None:
    """Tokens, conversations and bytes are those on the disk, after each shard."""
    told: list[CaptureNews] = []
    options = Capturing(**OPTIONS)
    capture(model, target, tmp_path, options, report=told.append, is_over=lambda: False)
    paths = shard_paths(tmp_path)
    assert len(told) == 1 + len(paths)
    assert told[-1].nbytes == sum(path.stat().st_size for path in paths)
    assert told[-1].tokens == Shards(tmp_path).num_tokens >= 1500 > told[-2].tokens
    assert json.dumps(told[-1].as_json())
    assert "1,500 tokens" in told[-1].text()


def test_a_long_prompt_is_one_passage_after_another(
    model: Model, target: NativeTarget, tmp_path: Path
) -> None:
    """Where the target would end it sooner, it goes on; an answer has room behind it."""
    changes = {"long_prompts": 1.0, "long_prompt_tokens": 90, "answer_tokens": 16, "tokens": 6000}
    captured(model, tmp_path, target, **changes)
    prompts = [each.answer for each in Shards(tmp_path).conversations()]
    assert max(prompts) > 80
    assert sum(each > 20 for each in prompts) > len(prompts) / 2
    assert all(len(each.tokens) <= 128 for each in Shards(tmp_path).conversations())


def test_too_little_disk_is_said_before_anything_is_written(
    model: Model, target: NativeTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The need and what is free stand in the error."""
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(9, 9, 300 << 20))
    with pytest.raises(TrainingError, match=r"0\.27 GB .* 0\.31 GB are free"):
        captured(model, tmp_path, target, tokens=700_000)
    assert not shard_paths(tmp_path)


@pytest.mark.parametrize(
    ("changes", "name"),
    [({"seed": 5}, "seed"), ({"layers": (0, 2)}, "layers"), ({"top": 9}, "top")],
)
def test_a_folder_of_another_capture_is_refused(
    model: Model, target: NativeTarget, folder: Path, changes: dict[str, object], name: str
) -> None:
    """One folder holds one capture; what differs is named."""
    before = contents(folder)
    with pytest.raises(TrainingError, match=f"has {name} ="):
        captured(model, folder, target, **changes)
    assert contents(folder) == before


def test_a_folder_of_another_target_is_refused(folder: Path, tmp_path: Path) -> None:
    """Another seed's weights are another target."""
    other = tiny_model(tmp_path, quantisation="Q4_1", inner=96, seed=1)
    with pytest.raises(TrainingError, match="of another target"):
        captured(other, folder, NativeTarget(other, threads=1))


def test_two_captures_in_one_folder_are_refused(
    model: Model, target: NativeTarget, tmp_path: Path
) -> None:
    """The second one says so; once the first ended, the folder is free."""
    with working_folder(tmp_path), pytest.raises(TrainingError, match="Another capture"):
        captured(model, tmp_path, target)
    captured(model, tmp_path, target, tokens=100)


def test_a_shard_that_was_cut_short_is_made_again(
    model: Model, target: NativeTarget, folder: Path, tmp_path: Path
) -> None:
    """Who reads it refuses it by name; the same capture repairs it."""
    for name, data in contents(folder).items():
        (tmp_path / name).write_bytes(data)
    path = shard_paths(tmp_path)[-1]
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(TrainingError, match=path.name):
        Shards(tmp_path)
    captured(model, tmp_path, target)
    assert contents(tmp_path) == contents(folder)


def test_a_layer_that_is_not_there_is_refused(
    model: Model, target: NativeTarget, tmp_path: Path
) -> None:
    """Before anything is made."""
    with pytest.raises(OptionError, match="has 3"):
        captured(model, tmp_path / "new", target, layers=(1, 4))
    assert not (tmp_path / "new").exists()


def test_a_prompt_that_leaves_no_room_is_refused(
    model: Model, target: NativeTarget, tmp_path: Path
) -> None:
    """With both numbers; the model reads 128 tokens."""
    with pytest.raises(OptionError, match=r"prompt of 120 tokens .* reads 128"):
        captured(model, tmp_path, target, prompt_tokens=120, long_prompt_tokens=768)


def test_a_model_without_a_template_writes_plain_text(tmp_path: Path) -> None:
    """What follows the opening is the answer; there is no user's turn."""
    model = tiny_model(tmp_path, metadata={})
    captured(model, tmp_path / "text", tokens=200)
    for each in Shards(tmp_path / "text").conversations():
        assert each.tokens[0] == model.tokenizer.bos_id
        assert 16 <= len(each.tokens) - each.answer <= 24 + 1
