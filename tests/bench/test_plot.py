from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.test_report import OURS, THEIRS, report
from forerun.bench import plot
from forerun.bench.measure import Samples, Task
from forerun.bench.plot import check_plot, draw_passes
from forerun.errors import OptionError, StartError


def test_without_matplotlib_the_way_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is measured."""

    def missing(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(plot.importlib, "import_module", missing)
    with pytest.raises(StartError, match=r"forerun\[plot\]"):
        check_plot("pass.svg")


def test_curves_are_drawn(tmp_path: Path) -> None:
    """An SVG file with a curve for each side and the memory limit."""
    pytest.importorskip("matplotlib")
    path = tmp_path / "pass.svg"
    check_plot(str(path))
    draw_passes(report(OURS, THEIRS), str(path))
    assert path.read_text("utf-8").count("<path") > 10


def test_gaps_are_drawn(tmp_path: Path) -> None:
    """A report that lacks figures still has its plot."""
    pytest.importorskip("matplotlib")
    path = tmp_path / "pass.png"
    draw_passes(report({Task("pass", 4): [0.1]}, Samples(error="E: no")), str(path))
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("path", "said"),
    [("pass.docx", "docx"), ("pass", "without an ending"), ("nowhere/pass.svg", "no such folder")],
)
def test_a_file_that_cannot_be(
    path: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown kind or folder is refused before anything is measured."""
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match=said):
        check_plot(path)


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    """A folder of that name: an error, not a traceback."""
    pytest.importorskip("matplotlib")
    (tmp_path / "pass.svg").mkdir()
    with pytest.raises(OptionError, match="can't be written"):
        draw_passes(report(OURS), str(tmp_path / "pass.svg"))
