from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from forerun.cli.train import _use_of
from forerun.train import plan

SMALL = ("--answer-tokens", "16", "--prompt-tokens", "8", "--top", "8", "--temperatures", "1,0")
LEARN = ("--budget", "300", "--vocabulary", "64", "--rows", "128", "--threads", "1")


def records(text: str) -> list[Any]:
    """The JSON lines of an output."""
    return [json.loads(line) for line in text.splitlines()]


def captured(run: Any, folder: Path, tokens: int = 2500) -> Any:
    """What `train capture` says as JSON."""
    result = run(
        "train", "capture", "--folder", str(folder), "--tokens", str(tokens), *SMALL, "--json"
    )
    assert result.exit_code == 0
    return records(result.stdout)


def test_capture_tells_how_far_it_is(run: Any, tmp_path: Path) -> None:
    """Lines of JSON on stdout, or words on stderr; the last line has the whole."""
    lines = captured(run, tmp_path)
    assert [line["event"] for line in lines[:-1]] == ["capture"] * (len(lines) - 1)
    assert lines[-1]["event"] == "captured"
    assert lines[-1]["tokens"] >= 2500
    again = run("train", "capture", "--folder", str(tmp_path), "--tokens", "9", *SMALL)
    assert again.exit_code == 0
    assert "tokens in" in again.stderr
    assert again.stdout == ""


@pytest.mark.judge
def test_from_text_to_a_head_and_to_other_engines(run: Any, tmp_path: Path) -> None:
    """Capture, head, export and import, one command after the other."""
    captured(run, tmp_path, 4000)
    result = run("train", "head", "--folder", str(tmp_path), *LEARN, "--json")
    assert result.exit_code == 0
    assert records(result.stdout)[-1]["card"]["kind"] == "eagle3"
    head, folder, back = (str(tmp_path / name) for name in ("head.gguf", "out", "back.gguf"))
    assert folder in run("train", "export", head, folder).stderr
    assert run("train", "import", folder, back).exit_code == 0
    assert Path(back).stat().st_size == pytest.approx(Path(head).stat().st_size, rel=0.5)


@pytest.mark.judge
def test_from_text_to_parallel_heads_and_to_other_engines(run: Any, tmp_path: Path) -> None:
    """The same for them; either kind finds its own format."""
    captured(run, tmp_path, 3000)
    result = run("train", "medusa", "--folder", str(tmp_path), *LEARN, "--levels", "2", "--json")
    assert result.exit_code == 0
    assert records(result.stdout)[-1]["card"]["kind"] == "medusa"
    heads, folder, back = (str(tmp_path / name) for name in ("medusa.gguf", "out", "back.gguf"))
    assert run("train", "export", heads, folder).exit_code == 0
    assert run("train", "import", folder, back).exit_code == 0
    drafted = run("generate", "a b", "--drafter", "medusa", "--head", back, "--max-tokens", "8")
    assert drafted.exit_code == 0


@pytest.mark.judge
def test_an_exit_is_one_command(run: Any, tmp_path: Path) -> None:
    """It says what it wrote and how that is tried; a stopped one would name nothing."""
    captured(run, tmp_path, 1500)
    result = run("train", "exit", "--folder", str(tmp_path), *LEARN)
    assert result.exit_code == 0
    assert json.loads(result.stdout)["kind"] == "exit"
    path = tmp_path / "exit.gguf"
    assert f"--head {path} --show" in result.stderr.replace("\n", "")
    command = ("generate", "a b", "--drafter", "exit", "--head", str(path), "--max-tokens", "8")
    assert run(*command).exit_code == 0


def test_a_model_that_is_a_folder_alone_is_named_as_one(tmp_path: Path) -> None:
    """What the last line says can be run: where there is no file, the folder is meant."""
    assert f"--draft-model {tmp_path / 'model-hf'} " in _use_of("model", str(tmp_path), "smollm2")
    (tmp_path / "model.gguf").touch()
    assert f"--draft-model {tmp_path / 'model.gguf'} " in _use_of("model", str(tmp_path), "smollm2")


@pytest.mark.judge
def test_a_small_model_is_one_command(run: Any, tmp_path: Path) -> None:
    """Its file, its folder and its card lie beside the text; a layer that is not there is told."""
    captured(run, tmp_path, 1500)
    command = ("train", "model", "--folder", str(tmp_path), "--budget", "200", "--rows", "128")
    result = run(*command, "--draft-tokens", "2", "--threads", "1", "--json")
    assert result.exit_code == 0
    assert records(result.stdout)[-1]["card"]["kind"] == "model"
    assert {"model.gguf", "model-hf", "model.json"} <= {path.name for path in tmp_path.iterdir()}
    wrong = run(*command, "--layers", "0,7")
    assert wrong.exit_code == 2
    assert "has 2" in wrong.stderr


@pytest.mark.judge
def test_a_finished_training_can_be_drawn(run: Any, tmp_path: Path) -> None:
    """The same command with `--plot` makes nothing new but the drawing."""
    pytest.importorskip("matplotlib")
    captured(run, tmp_path, 4000)
    command = ("train", "head", "--folder", str(tmp_path), *LEARN)
    assert run(*command).exit_code == 0
    before = (tmp_path / "head.gguf").read_bytes()
    assert run(*command, "--plot", str(tmp_path / "head.svg")).exit_code == 0
    assert (tmp_path / "head.svg").read_text().startswith("<?xml")
    assert (tmp_path / "head.gguf").read_bytes() == before
    assert run("train", "head", "--plot", "x.doc").exit_code == 2


@pytest.mark.judge
@pytest.mark.parametrize("command", [("train",), ("train", "all")])
def test_hours_do_all_of_it(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """With the command's name or without."""
    monkeypatch.setattr(plan, "capture_rate", lambda *given: 8000 / 14.4)
    monkeypatch.setattr(plan.Schedule, "learning", lambda *given: 1.0)
    result = run(*command, "--hours", "0.01", "--folder", str(tmp_path), "--threads", "1")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["data"]["tokens"] >= 8000
    assert f"--head {tmp_path / 'head.gguf'} --show" in result.stderr.replace("\n", "")
    assert "Capture for 0.2 minutes, at most 8,000 tokens; then learn. 0.6" in result.stderr
    assert (tmp_path / "head.gguf").exists()


def test_capture_ends_on_ctrl_c_and_goes_on(start: Any, tmp_path: Path) -> None:
    """Exit code 130, whole shards, and the same command takes them up."""
    command = ("train", "capture", "--folder", str(tmp_path), "--tokens", "40000", *SMALL)
    process = start(*command)
    while b" 0 of" in process.stderr.readline():
        pass
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=100)
    assert process.returncode == 130
    assert b"The same command goes on" in said
    assert list(tmp_path.glob("shard-*.safetensors"))


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--hours", "0"), 2, "hours = '0'"),
        (("capture", "--tokens", "0"), 2, "tokens = '0'"),
        (("capture", "--temperatures", "3"), 2, "temperatures = '3'"),
        (("capture", "--layers", "9", "--folder", "no/such"), 2, "has 2"),
        (("capture", "--prompts", "no/such.txt"), 2, "can't be read"),
        (("head", "--folder", "no/such"), 1, "no captured text"),
        (("head", "--loss", "mse"), 2, "loss = 'mse'"),
        (("model", "--own-drafts", "0", "--draft-tokens", "2"), 2, "draft_tokens = 2"),
        (("capture", "--long-prompts", "0", "--long-prompt-tokens", "9"), 2, "has none"),
        (("export", "no.gguf", "out"), 3, "no file"),
        (("import", "no/such", "head.gguf"), 3, "no file"),
    ],
)
@pytest.mark.judge
def test_what_cannot_be_is_one_line(
    run: Any, arguments: tuple[str, ...], code: int, said: str
) -> None:
    """What is wrong, and no output."""
    result = run("train", *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert said in result.stderr
    assert "Traceback" not in result.stderr
