"""`forerun audit`: see the promises kept on this machine."""

from __future__ import annotations

import textwrap
from typing import Annotated

import typer

from forerun.cli.consoles import print_json, stdout, write
from forerun.cli.guard import INTERRUPTED
from forerun.cli.interrupt import patient
from forerun.cli.options import option_of
from forerun.cli.waiting import counting, read_model
from forerun.config import Loading
from forerun.errors import OptionError
from forerun.printable import printable

__all__ = ["audit"]

_DEFAULT = Loading().model


def audit(
    model: Annotated[str, option_of(Loading, "model")] = _DEFAULT,
    toys: Annotated[
        bool, typer.Option("--toys", help="Test on toys only, without a model.")
    ] = False,
    thorough: Annotated[
        bool, typer.Option("--thorough", help="Go on: more cases and longer texts, much longer.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON.")] = False,
) -> None:
    """Test the promises on this machine and print a certificate.

    Exit code 1 if one is broken: what was tested, how strongly, and what was not. Ctrl-C ends it
    and prints what was tested until then.
    """
    from forerun.audit import run_audit

    if toys and model != _DEFAULT:
        raise OptionError(f"--toys and --model {model} contradict each other.", "Leave one out.")
    audited = None if toys else read_model(Loading.make(model=model).model)
    with patient() as interruption, counting("Audit") as report:
        certificate = run_audit(
            model=audited,
            thorough=thorough,
            progress=report,
            is_over=lambda: interruption.came,
        )
    if as_json:
        print_json(certificate.as_json())
    else:
        write(_fitted(printable(certificate.text())) + "\n")
    if certificate.problems:
        raise SystemExit(1)
    if certificate.left:
        raise SystemExit(INTERRUPTED)


def _fitted(text: str) -> str:
    """The text wrapped between words where a person reads it; a file gets its lines whole."""
    console = stdout()
    if not console.is_terminal:
        return text
    return "\n".join(
        textwrap.fill(line, console.width, subsequent_indent="  ", break_long_words=False)
        for line in text.splitlines()
    )
