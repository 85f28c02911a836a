from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from forerun.cli import waiting
from forerun.models.pull import LoadProgress


@pytest.mark.model
def test_the_path_is_printed(run: Any, default_model: Path) -> None:
    """A model that is there already is its path, at once and without another word."""
    result = run("pull", "smollm2")
    assert (result.exit_code, result.stdout) == (0, f"{default_model}\n")
    assert result.stderr == ""


def test_an_unknown_name_ends_with_3(run: Any) -> None:
    """The known names are told."""
    result = run("pull", "smollm3")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "smollm2" in result.stderr


def test_a_cache_that_cannot_be_written_ends_with_3(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing could start, and FORERUN_CACHE is the way out."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path / "file" / "cache"))
    result = run("pull")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "FORERUN_CACHE" in result.stderr


def watched(monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> str:
    """What a terminal, or a pipe, gets to see of a pull."""
    screen = io.StringIO()

    def console() -> Console:
        return Console(file=screen, force_terminal=terminal, width=100, color_system=None)

    monkeypatch.setattr(waiting, "stderr", console)
    with waiting.pulling("smollm2") as report:
        report(LoadProgress("waiting", 0, None))
        report(LoadProgress("downloading", 10_000_000, 20_000_000))
        report(LoadProgress("checking", 5_000_000, 40_000_000))
    with waiting.spinner("Opening smollm2"):
        pass
    return screen.getvalue()


def test_a_terminal_sees_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stage and the bytes; and that the model is being opened."""
    seen = watched(monkeypatch, terminal=True)
    assert "Checking smollm2" in seen
    assert "5.0/40.0 MB" in seen
    assert "Opening smollm2" in seen


def test_a_pipe_sees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody watches, no progress is written."""
    assert watched(monkeypatch, terminal=False).strip() == ""
