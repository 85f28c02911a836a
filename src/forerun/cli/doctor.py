"""`forerun doctor`: what this machine and this installation have, and what is amiss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from forerun.cli.consoles import print_json, stdout
from forerun.cli.options import option_of
from forerun.config import Loading
from forerun.printable import printable

if TYPE_CHECKING:
    from forerun.cli.health import Finding

__all__ = ["doctor"]

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(
    instruction_set: Annotated[str, option_of(Loading, "instruction_set")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON.")] = False,
) -> None:
    """Check this machine and this installation; exit code 1 if something needed fails."""
    from forerun.cli.health import examine

    findings = examine(Loading.make(instruction_set=instruction_set).instruction_set)
    failed = any(finding.state == "fail" for finding in findings)
    if as_json:
        checks = [finding._asdict() for finding in findings]
        print_json({"ok": not failed, "checks": checks})
    else:
        _show(stdout(), findings)
    if failed:
        raise SystemExit(1)


def _show(console: Console, findings: list[Finding]) -> None:
    """Print a table, or in a pipe a line each, where a path stays whole."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for width in (4, 16, None):
        table.add_column(overflow="fold", min_width=width)
    for finding in findings:
        found = printable(f"{finding.found} {finding.way_out}".strip())
        if console.is_terminal:
            state = Text(finding.state, _COLOURS[finding.state])
            table.add_row(state, Text(finding.name), Text(found))
        else:
            line = f"{finding.state:<5} {finding.name:<17} {found}"
            console.print(Text(line), soft_wrap=True)
    if console.is_terminal:
        console.print(table)
