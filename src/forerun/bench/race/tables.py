"""Tables that a terminal shows and Markdown holds alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from forerun.printable import printable

__all__ = ["Grid", "in_markdown", "interval_text", "shown"]

_ESCAPED = str.maketrans({mark: f"\\{mark}" for mark in "\\|<*`"})


class Grid(NamedTuple):
    """A table of texts.

    Attributes:
        title: What it shows.
        head: A column each.
        rows: A side, or a task, each.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def as_table(self) -> RenderableType:
        """Return it for a terminal."""
        table = Table(box=None, pad_edge=False)
        for index, name in enumerate(self.head):
            table.add_column(_cell(name), justify="right" if index else "left")
        for row in self.rows:
            table.add_row(*map(_cell, row))
        # A table's own title would be no wider than the table.
        return Group(Text(self.title, "bold"), table)

    def as_markdown(self) -> str:
        """Return it as Markdown."""
        lines = [self.head, ["---", *["--:"] * (len(self.head) - 1)], *self.rows]
        body = "\n".join("| " + " | ".join(map(in_markdown, line)) + " |" for line in lines)
        return f"## {in_markdown(self.title)}\n\n{body}\n"


def shown(value: float | None) -> str:
    """Three digits that count; a dash for what was not measured."""
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}" if value >= 10 else f"{value:.2f}"


def interval_text(ratio: Mapping[str, float | None] | None) -> str:
    """An interval's two ends; empty where there is none."""
    if ratio is None or ratio["low"] is None:
        return ""
    return f"[{shown(ratio['low'])}, {shown(ratio['high'])}]"


def in_markdown(text: str) -> str:
    """Return text as Markdown shows it: on one line, with nothing in it that Markdown obeys."""
    line = printable(" ".join(text.split()))
    return line.translate(_ESCAPED).replace("](", "]\\(")


def _cell(text: str) -> Text:
    return Text(printable(text))
