"""Tests of forerun.extras."""

from __future__ import annotations

from pathlib import Path

import pytest

from forerun.extras import pip_command


def test_the_command_names_the_python_that_runs_forerun(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As short as it can be where it is called, and safe to paste into a shell."""
    monkeypatch.setattr("sys.executable", str(tmp_path / "a b" / "bin" / "python"))
    monkeypatch.chdir(tmp_path)
    assert pip_command("forerun[hf]") == "'a b/bin/python' -m pip install 'forerun[hf]'"
    monkeypatch.chdir(Path(__file__).parent)
    monkeypatch.setattr("sys.executable", "/usr/bin/python3")
    assert pip_command("numpy", "rich") == "/usr/bin/python3 -m pip install numpy rich"
