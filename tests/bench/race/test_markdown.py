"""The report as a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.race.test_report import report
from forerun.bench.race.markdown import as_markdown, check_report, write_report
from forerun.bench.race.tables import Grid, shown
from forerun.errors import OptionError


def test_all_of_it_is_there() -> None:
    """Tables with intervals, each side's settings, remarks, and what is unfair."""
    text = as_markdown(report())
    assert text.startswith("# toy: a race that is over\n")
    for said in (
        "| auto | 6.67 | 1.33 | [1.33, 1.33] | 1.00 | 100 |",
        "| t | 2.00 [2.00, 2.00] | 0.50 |",
        '| auto | {"drafter": "auto"} |',
        "- peer was given up: out of ideas",
        "What is unfair",
    ):
        assert said in text
    assert "interrupted" in as_markdown(report(is_interrupted=True)).splitlines()[0]


def test_a_bar_in_a_cell_is_escaped() -> None:
    """It would end the cell."""
    assert "| a\\|b |" in Grid("t", ("x",), [("a|b",)]).as_markdown()


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0.0, "0.00"), (1.234, "1.23"), (12.34, "12.3"), (123.4, "123")],
)
def test_three_digits_are_shown(value: float | None, text: str) -> None:
    """A dash is what was not measured."""
    assert shown(value) == text


def test_it_is_written(tmp_path: Path) -> None:
    """In UTF-8; a file that can't be written is told before and after."""
    path = tmp_path / "race.md"
    check_report(str(path))
    write_report(report(), str(path))
    assert path.read_text("utf-8") == as_markdown(report())
    with pytest.raises(OptionError, match="a folder"):
        check_report(str(tmp_path))
    with pytest.raises(OptionError, match="no such folder"):
        check_report(str(tmp_path / "nowhere" / "race.md"))
    with pytest.raises(OptionError, match="can't be written"):
        write_report(report(), str(tmp_path))


def test_nothing_is_obeyed_that_a_stranger_wrote() -> None:
    """A name or an error stays on its line and in its cell, and links nowhere."""
    text = as_markdown(report(errors={"peer": "a\n# b <b> `c` *d* [e](f) | g \x1b[2J"}))
    assert r"peer was given up: a # b \<b> \`c\` \*d\* [e]\(f) \| g \\x1b[2J" in text
