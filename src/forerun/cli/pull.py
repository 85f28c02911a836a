"""`forerun pull`: fetch a model into the cache, and say where it lies."""

from __future__ import annotations

from typing import Annotated

import typer

from forerun.cli.consoles import write
from forerun.cli.waiting import pulling
from forerun.config import Loading

__all__ = ["pull"]

_DEFAULT = Loading().model


def pull(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The model's name.")] = _DEFAULT,
) -> None:
    """Fetch a model, unless it is there already and undamaged, and print its path."""
    from forerun.models.pull import pull as fetch

    with pulling(name) as report:
        path = fetch(name, check=True, progress=report)
    write(f"{path}\n")
