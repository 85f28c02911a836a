"""`forerun`: the entry point; which commands there are, and how all of them end."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.text import Text
from typer.core import TyperGroup

from forerun.cli.audit import audit
from forerun.cli.bench import bench
from forerun.cli.chat import chat
from forerun.cli.consoles import stderr, write
from forerun.cli.doctor import doctor
from forerun.cli.generate import generate
from forerun.cli.guard import guarded, last_resort, prepare_streams
from forerun.cli.interrupt import tidy_when_terminated
from forerun.cli.pull import pull
from forerun.cli.theory import theory
from forerun.cli.train import train
from forerun.printable import printable

__all__ = ["app", "main"]

COMMANDS = (generate, chat, pull, theory, audit, doctor)

OTHER_VARIABLES = {"FORERUN_CACHE", "FORERUN_DEBUG"}
OTHER_VARIABLES |= {"FORERUN_COMPILED", "FORERUN_STRICT", "FORERUN_UNDER_TEST"}  # of the build
"""Variables that are no options."""


class _Guarded(TyperGroup):
    """Commands whose errors become one line and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        with guarded():
            return super().invoke(ctx)


app = typer.Typer(
    name="forerun",
    cls=_Guarded,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog="All options but a command's own, those under Options, may also be set by environment "
    "variables: --top-k is FORERUN_TOP_K.",
)
for command in COMMANDS:
    app.command(command.__name__)(command)
app.add_typer(bench)
app.add_typer(train)


def _print_version(wanted: bool) -> None:
    if wanted:
        from forerun import __version__

        write(f"forerun {__version__}\n")
        raise typer.Exit


@app.callback()
def _forerun(
    call: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """Exact speculative decoding: the same text from the same model, in fewer passes."""
    _tell_unknown_variables(call.command)


def _tell_unknown_variables(group: Any) -> None:
    """Say which variables look like options and are none: a misspelt one changes nothing."""
    known = {p.envvar for p in _parameters(group) if p.envvar} | OTHER_VARIABLES
    for name in sorted(os.environ):
        if name.startswith("FORERUN_") and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            told = f"{printable(name)} is no variable that Forerun reads.{hint}"
            stderr().print(Text(told), soft_wrap=True)


def _parameters(command: Any) -> Iterator[Any]:
    yield from command.params
    for each in getattr(command, "commands", {}).values():
        yield from _parameters(each)


def main() -> None:
    """Run the command line and exit with its code."""
    prepare_streams()
    tidy_when_terminated()
    with last_resort():
        app()
