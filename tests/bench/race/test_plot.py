"""The figures of a race as a drawing."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from bench.race.fakes import sample
from bench.race.test_report import report
from forerun.bench.race.plot import draw_race
from forerun.errors import OptionError

pytest.importorskip("matplotlib")


@pytest.mark.parametrize("is_empty", [False, True])
def test_bars_are_drawn(tmp_path: Path, is_empty: bool) -> None:
    """For each side and task, twice; also of a race in which nobody wrote."""
    path = tmp_path / "race.svg"
    draw_race(report(samples=[]) if is_empty else report(), str(path))
    text = path.read_text("utf-8")
    assert text.count('id="patch_') >= (6 if is_empty else 18)


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    """A folder of that name: an error, not a traceback."""
    (tmp_path / "race.svg").mkdir()
    with pytest.raises(OptionError, match="can't be written"):
        draw_race(report(), str(tmp_path / "race.svg"))


def test_a_dollar_is_no_formula(tmp_path: Path) -> None:
    """Between two of them, matplotlib would read one, and might refuse it."""
    samples = [sample(side, task="$\\frac$") for side in ("plain", "auto")]
    draw_race(report(samples=samples, model="$x"), str(tmp_path / "race.svg"))
    assert (tmp_path / "race.svg").exists()


def test_a_sweep_is_drawn_as_lines(tmp_path: Path) -> None:
    """A line for each drafter in a panel for each task and overall, and auto across."""
    names = ("suffix:1", "suffix:3", "suffix:1:warm", "lookup:1x2", "lookup:3x2")
    details = {name: {"draft_length": int(name.split(":")[1][0])} for name in names}
    samples = [sample(side, task=task) for side in ("plain", "auto", *names) for task in "tu"]
    one = report(
        samples=samples,
        details={"plain": {}, "auto": {}, **details},
        ours=("plain", "auto", *names),
        errors={},
    )
    draw_race(one, str(tmp_path / "race.svg"))
    text = (tmp_path / "race.svg").read_text("utf-8")
    for said in ("suffix:N", "suffix:N:warm", "lookup:Nx2", "auto", "draft length"):
        assert f"<!-- {said} -->" in text
    assert text.count("<!-- draft length -->") == 3


def test_a_text_without_a_speed_is_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that would fall to 0 there is interrupted; what stands across is left out."""
    drawn: list[Any] = []
    monkeypatch.setattr("forerun.bench.race.plot.save", lambda figure, path: drawn.append(figure))
    lengths = {name: {"draft_length": int(name[-1])} for name in ("suffix:1", "suffix:3")}
    sides = ("plain", "auto", *lengths)
    samples = [sample(side, later=10 * (side in ("plain", "suffix:1"))) for side in sides]
    details = {"plain": {}, "auto": {}, **lengths}
    draw_race(report(samples=samples, details=details, ours=sides, errors={}), "unused.svg")
    line, plain = drawn[0].axes[0].get_lines()
    assert [math.isnan(height) for height in line.get_ydata()] == [False, True]
    assert plain.get_label() == "plain"
