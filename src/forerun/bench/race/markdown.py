"""A race's report in Markdown: the terminal's tables, what each side was, what is unfair."""

from __future__ import annotations

import json
from pathlib import Path

from forerun.bench.race.report import RaceReport
from forerun.bench.race.tables import Grid, in_markdown
from forerun.errors import OptionError

__all__ = ["as_markdown", "check_report", "write_report"]

_METHOD = """\
Prompt by prompt all sides wrote the same text in turns, in an order shuffled for each text and
repeat. Every side began each text with nothing learned before, a `warm` one excepted. Speed is
tokens after the first over the time after it; what came together with the first is not among
them. Ratios are of totals, over what both sides wrote; intervals hold 95 %, by a bootstrap over
prompts and their repeats. A peer ran in a process of its own and was given token ids, its threads
as many as ours.

What is unfair: peers round otherwise, so their texts part from ours, and end elsewhere; at a
temperature above 0 they draw with generators of their own. A peer's times hold its own streaming,
ours the whole of `stream` in Python. A small model that always takes the likeliest token repeats
itself, which flatters whoever guesses copies: the second table of tasks leaves such texts out.
"""


def as_markdown(report: RaceReport) -> str:
    """Return the whole report."""
    remarks = "\n".join(f"- {in_markdown(line)}" for line in report.remarks())
    tables = "\n".join(grid.as_markdown() for grid in report.grids(with_intervals=True))
    head = "interrupted" if report.is_interrupted else "over"
    settings = Grid(
        "What each side was",
        ("side", "settings"),
        [(name, json.dumps(details)) for name, details in report.details.items()],
    ).as_markdown()
    title = f"# {in_markdown(report.model)}: a race that is {head}"
    return f"{title}\n\n{remarks}\n\n{tables}\n{settings}\n## How it was measured\n\n{_METHOD}"


def check_report(path: str) -> None:
    """Check, before anything is measured, that there is a place for the report.

    Raises:
        OptionError: There is no such folder, or a folder of that name.
    """
    file = Path(path)
    if not file.absolute().parent.is_dir() or file.is_dir():
        what = f"report = {path!r}: {'a folder' if file.is_dir() else 'there is no such folder'}."
        raise OptionError(what, "Name a file in a folder that is there.")


def write_report(report: RaceReport, path: str) -> None:
    """Write it into a file.

    Raises:
        OptionError: The file can't be written.
    """
    try:
        Path(path).write_text(as_markdown(report), "utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        what = f"report = {path!r} can't be written: {reason}."
        raise OptionError(what, "Name another file.") from None
