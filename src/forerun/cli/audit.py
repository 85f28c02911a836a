"""`forerun audit`: see the promises kept on this machine."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Annotated

import typer

from forerun.cli.consoles import print_json, stdout, write
from forerun.cli.guard import INTERRUPTED
from forerun.cli.interrupt import patient
from forerun.cli.options import option_of
from forerun.cli.waiting import counting, read_model
from forerun.config import Loading
from forerun.errors import OptionError
from forerun.printable import printable

if TYPE_CHECKING:
    from forerun.models.model import Model
    from forerun.targets.protocol import Target

__all__ = ["audit"]

_UNSAID = Loading()
_DEFAULT = _UNSAID.model


def audit(
    model: Annotated[str, option_of(Loading, "model")] = _DEFAULT,
    target: Annotated[str, option_of(Loading, "target")] = "auto",
    dtype: Annotated[str, option_of(Loading, "dtype")] = "auto",
    bitwise: Annotated[bool, option_of(Loading, "bitwise")] = False,
    toys: Annotated[
        bool,
        typer.Option("--toys", help="Leave the model out: nothing is fetched; about as long."),
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

    loading = Loading.make(model=model, target=target, dtype=dtype, bitwise=bitwise)
    for name in ("model", "target", "dtype", "bitwise"):
        value = getattr(loading, name)
        if toys and value != getattr(_UNSAID, name):
            what = f"--toys leaves the model out, and {name} = {value} is about one."
            raise OptionError(what, "Leave one out.")
    audited = None if toys else read_model(loading.model, foreign=True)
    with patient() as interruption, counting("Audit") as report:
        certificate = run_audit(
            model=audited,
            target=_opened(audited, loading),
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


def _opened(model: Model | None, loading: Loading) -> Target | None:
    """Return what runs the model, or None where that is the native target."""
    from forerun.targets.table import check_placed, open_target

    if (
        model is None
        or loading.target == "native"
        or (loading.target == "auto" and not model.foreign)
    ):
        check_placed("native", loading)
        return None
    placing = (None, loading.dtype, False, loading.bitwise)
    return open_target(loading.target, model, placing=placing).target


def _fitted(text: str) -> str:
    """The text wrapped between words where a person reads it; a file gets its lines whole."""
    console = stdout()
    if not console.is_terminal:
        return text
    return "\n".join(
        textwrap.fill(line, console.width, subsequent_indent="  ", break_long_words=False)
        for line in text.splitlines()
    )
