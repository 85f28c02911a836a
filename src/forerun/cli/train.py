"""`forerun train`: a drafter learned from nothing but the target."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.text import Text
from typer.core import TyperGroup

from forerun.cli.consoles import print_json, stderr, stdout
from forerun.cli.guard import INTERRUPTED
from forerun.cli.options import option_of, with_options
from forerun.cli.training import training_display
from forerun.cli.waiting import open_model, read_model
from forerun.config import Loading
from forerun.printable import printable
from forerun.train.options import (
    Capturing,
    ExitLearning,
    HeadLearning,
    Hours,
    Learning,
    MedusaLearning,
    ModelLearning,
)

if TYPE_CHECKING:
    from forerun.api import LanguageModel

__all__ = ["train"]

_DEFAULT = Loading().model


class _All(TyperGroup):
    """Commands, and options without one, which are those of `all`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0].startswith("-") and args[0] != "--help":
            args = ["all", *args]
        return super().parse_args(ctx, args)


train = typer.Typer(
    name="train",
    cls=_All,
    no_args_is_help=True,
    help="Learn a drafter from nothing but the target: `forerun train --hours 8` does all of it.",
)


@train.command("all")
@with_options
def train_all(
    options: Hours,
    model: Annotated[str, option_of(Loading, "model")] = _DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines; the last has all.")] = False,
) -> None:
    """Capture, train and export within some hours: from an empty folder to head.gguf.

    `forerun train --hours H` is the same. How much is captured and learned follows from what this
    machine does in a second. Ctrl-C ends it; the same command goes on, also after a kill.
    """
    from forerun.train.recipes import head_for_hours

    lm = _open(model, options.threads)
    with training_display(as_json=as_json) as display:
        card = head_for_hours(
            lm.model,
            lm.target,
            options,
            told=display.told,
            captured=display.captured,
            learned=display.learned,
            is_over=display.is_over,
        )
    _end(card, _use_of("head", options.folder, model), as_json=as_json)


@train.command("capture")
@with_options
def train_capture(
    options: Capturing,
    model: Annotated[str, option_of(Loading, "model")] = _DEFAULT,
    threads: Annotated[str | None, option_of(Loading, "threads")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines; the last has all.")] = False,
) -> None:
    """Let the target write text, and keep what it made of every token.

    Ctrl-C ends it; the same command goes on where it ended, also after a kill.
    """
    from forerun.train.capture import capture

    lm = _open(model, threads)
    with training_display(as_json=as_json) as display:
        news = capture(
            lm.model,
            lm.target,
            Path(options.folder),
            options,
            report=display.captured,
            is_over=display.is_over,
        )
    if as_json:
        print_json({"event": "captured", **news.as_json()})
    if display.is_over():
        _stop()


@train.command("head")
@with_options
def train_head(
    options: HeadLearning,
    model: Annotated[str, option_of(Loading, "model")] = _DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines; the last has all.")] = False,
) -> None:
    """Train a head on captured text: a layer that guesses from the target's own features.

    It leaves head.gguf and its card, head.json, in the folder. Ctrl-C ends it; the same command
    goes on where it ended, also after a kill.
    """
    _learn("head", options, model, as_json=as_json)


@train.command("medusa")
@with_options
def train_medusa(
    options: MedusaLearning,
    model: Annotated[str, option_of(Loading, "model")] = _DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines; the last has all.")] = False,
) -> None:
    """Train parallel heads on captured text: each guesses one token, one further than the last.

    It leaves medusa.gguf and its card, medusa.json, in the folder. Ctrl-C ends it; the same
    command goes on where it ended, also after a kill.
    """
    _learn("medusa", options, model, as_json=as_json)


@train.command("exit")
@with_options
def train_exit(
    options: ExitLearning,
    model: Annotated[str, option_of(Loading, "model")] = _DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines; the last has all.")] = False,
) -> None:
    """Train an adapter on captured text that guesses behind the target's first layers.

    It leaves exit.gguf and its card, exit.json, in the folder. Ctrl-C ends it; the same command
    goes on where it ended, also after a kill.
    """
    _learn("exit", options, model, as_json=as_json)


@train.command("model")
@with_options
def train_model(
    options: ModelLearning,
    model: Annotated[str, option_of(Loading, "model")] = _DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines; the last has all.")] = False,
) -> None:
    """Train a small model on captured text, and on its own drafts, which the target scores.

    It leaves model.gguf, the same as a folder of transformers', model-hf, and the card model.json.
    Ctrl-C ends it; the same command goes on where it ended, also after a kill.
    """
    _learn("model", options, model, as_json=as_json)


@train.command("export")
def train_export(
    head: Annotated[Path, typer.Argument(help="The head's file.", show_default=False)],
    folder: Annotated[Path, typer.Argument(help="Where to write it.", show_default=False)],
    model: Annotated[str, option_of(Loading, "model")] = _DEFAULT,
) -> None:
    """Write a head as other engines read it: one layer for vLLM, parallel heads for TGI.

    The folder format is that of `speculators`, or for parallel heads that of FasterDecoding.
    """
    from forerun.models.head_file import HeadFile
    from forerun.train.recipes import exported

    exported(HeadFile.open(head), read_model(model), folder)
    _say(f"Wrote {folder}.")


@train.command("import")
def train_import(
    folder: Annotated[Path, typer.Argument(help="In either format.", show_default=False)],
    head: Annotated[Path, typer.Argument(help="The file to write.", show_default=False)],
    model: Annotated[str, option_of(Loading, "model")] = _DEFAULT,
) -> None:
    """Make a head's file of such a folder, trained for this model."""
    from forerun.train.recipes import imported

    imported(folder, read_model(model), head)
    _say(f"Wrote {head}.")


def _open(model: str, threads: Any) -> LanguageModel:
    return open_model(Loading.make(model=model, threads=threads))


def _learn(kind: str, options: Learning, model: str, *, as_json: bool) -> None:
    """Train a drafter of some kind, draw how it went, and show its card."""
    from forerun.bench.plot import check_plot
    from forerun.train.recipes import learned_from

    if options.plot is not None:
        check_plot(options.plot)
    lm = _open(model, options.threads)
    with training_display(as_json=as_json) as display:
        card = learned_from(
            kind,
            lm.model,
            lm.target,
            options,
            report=display.learned,
            is_over=display.is_over,
        )
    if options.plot is not None and card is not None:
        _draw(Path(options.folder) / f"{kind}.json", options.plot)
    _end(card, _use_of(kind, options.folder, model), as_json=as_json)


def _end(card: dict[str, object] | None, use: str, *, as_json: bool) -> None:
    """Show a drafter's card and how it is used; without one, it was interrupted."""
    if card is None:
        _stop()
    if as_json:
        print_json({"event": "trained", "card": card})
    else:
        stdout().print_json(data=card)
        _say(use)


def _use_of(kind: str, folder: str, model: str) -> str:
    """Return where a drafter is, and the command that drafts with it."""
    path = Path(folder) / f"{kind}.gguf"
    if not path.exists():  # a model with a tokenizer that only a folder can hold
        path = Path(folder) / f"{kind}-hf"
    words = ["forerun", "generate", "Hello", *(["-m", model] if model != _DEFAULT else [])]
    words += ["--drafter", "model", "--draft-model"] if kind == "model" else ["--head"]
    return f"Wrote {path}. Try it: {shlex.join([*words, str(path)])} --show"


def _stop() -> NoReturn:
    _say("Stopped. The same command goes on from what was saved last.")
    raise SystemExit(INTERRUPTED)


def _say(what: str) -> None:
    stderr().print(Text(printable(what)), soft_wrap=True)


def _draw(record_path: Path, path: str) -> None:
    from forerun.bench.plot import new_figure, save
    from forerun.train.plot import draw_training

    record = json.loads(record_path.read_text("utf-8"))
    figure = new_figure()
    draw_training(figure, record["history"])
    save(figure, path)
