"""`forerun train`: a drafter learned from nothing but the target."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forerun.cli.consoles import print_json, stdout
from forerun.cli.guard import INTERRUPTED
from forerun.cli.interrupt import patient
from forerun.cli.options import option_of, with_options
from forerun.cli.training import capture_display, training_display
from forerun.cli.waiting import open_model
from forerun.config import Loading
from forerun.train.options import Capturing, HeadLearning

if TYPE_CHECKING:
    from forerun.api import LanguageModel

__all__ = ["train"]

_DEFAULT = Loading().model

train = typer.Typer(
    name="train", no_args_is_help=True, help="Learn a drafter from nothing but the target."
)


@train.command("capture")
@with_options
def train_capture(
    options: Capturing,
    model: Annotated[str, option_of(Loading, "model")] = _DEFAULT,
    weights: Annotated[str, option_of(Loading, "weights")] = "auto",
    threads: Annotated[str | None, option_of(Loading, "threads")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines; the last has all.")] = False,
) -> None:
    """Let the target write text, and keep what it made of every token.

    Ctrl-C ends it; the same command goes on where it ended, also after a kill.
    """
    from forerun.train.capture import capture

    lm = _open(model, weights, threads)
    with patient() as interruption, capture_display(options, as_json=as_json) as report:
        news = capture(
            lm.model,
            lm.target,
            Path(options.folder),
            options,
            report=report,
            is_over=lambda: interruption.came,
        )
    if as_json:
        print_json({"event": "captured", **news.as_json()})
    if interruption.came:
        raise SystemExit(INTERRUPTED)


@train.command("head")
@with_options
def train_head(
    options: HeadLearning,
    model: Annotated[str, option_of(Loading, "model")] = _DEFAULT,
    weights: Annotated[str, option_of(Loading, "weights")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines; the last has all.")] = False,
) -> None:
    """Train a head on captured text: a layer that guesses from the target's own features.

    It leaves head.gguf and its card, head.json, in the folder. Ctrl-C ends it, and both are of the
    best weights so far; the same command goes on where it ended, also after a kill.
    """
    from forerun.train.recipes import head_from

    lm = _open(model, weights, None)
    with patient() as interruption, training_display(options, as_json=as_json) as report:
        card = head_from(
            lm.model,
            lm.target,
            Path(options.folder),
            options,
            report=report,
            is_over=lambda: interruption.came,
        )
    if as_json:
        print_json({"event": "trained", "card": card})
    else:
        stdout().print_json(data=card)
    if interruption.came:
        raise SystemExit(INTERRUPTED)


def _open(model: str, weights: str, threads: str | None) -> LanguageModel:
    loading = Loading.make(model=model, weights=weights, threads=threads)
    return open_model(loading)
