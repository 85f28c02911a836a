"""What a terminal shows while a model is fetched and opened; nothing where nobody watches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from forerun.cli.consoles import stderr
from forerun.config import Loading
from forerun.printable import counted, printable

if TYPE_CHECKING:
    from forerun.api import LanguageModel
    from forerun.config import WeightsName
    from forerun.drafters.corpus import Corpus
    from forerun.events import LoadProgress
    from forerun.models.model import Model

__all__ = ["counting", "open_model", "pulling", "read_model", "spinner"]


@contextmanager
def spinner(what: str) -> Iterator[None]:
    """Show that work goes on."""
    console = stderr()
    if not console.is_terminal:
        yield
        return
    with console.status(Text(printable(what))):
        yield


@contextmanager
def pulling(name: str) -> Iterator[Callable[[LoadProgress], None]]:
    """Show how far a pull or a load is; yields what `pull` and `load` report to."""
    console = stderr()
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    stages = {"waiting": "Another pull of {} is under way", "downloading": "Fetching {}"}
    stages |= {"checking": "Checking {}", "packing": "Packing the weights of {}"}
    stages |= {"reading": "Reading the corpus"}
    with bar:
        name = printable(name)
        task = bar.add_task(f"Opening {name}", total=None)
        stage = ""

        def report(news: LoadProgress) -> None:
            nonlocal stage
            if news.stage != stage:
                stage = news.stage
                bar.reset(task, description=stages[stage].format(name))
            bar.update(task, completed=news.done, total=news.total)

        yield report


def read_model(name: str, weights: WeightsName = "auto", *, foreign: bool = False) -> Model:
    """Read a model, fetching it at first use, with something to look at meanwhile.

    Args:
        name: A name or path.
        weights: How a folder's matrices are read.
        foreign: Take a folder whose network only transformers runs, too.
    """
    from forerun.models.model import load_model
    from forerun.models.pull import pull
    from forerun.models.registry import MODELS

    if name in MODELS:
        with pulling(name) as report:
            pull(name, progress=report)
    with spinner(f"Opening {name}"):
        return load_model(name, weights=weights, foreign=foreign)


def open_model(loading: Loading, *, begin: str = "") -> LanguageModel:
    """Open a model for writing.

    Args:
        loading: What it is opened with.
        begin: What its texts will begin with; said if that is no token of the model's.
    """
    from forerun.api import LanguageModel

    foreign = loading.target in ("auto", "transformers")
    model = read_model(loading.model, loading.weights, foreign=foreign)
    with pulling(loading.model) as report:
        lm = LanguageModel(model, loading, progress=report)
    if lm.target_reason:
        name = lm.target.capabilities.name
        slow = "Slow: the" if name == "reference" else "The"
        told = printable(f"{slow} {name} target runs this. {lm.target_reason}")
        stderr().print(Text(told), soft_wrap=True)
    if loading.corpus:
        _tell_corpus(lm.corpus)
    if begin and lm.target.capabilities.encoder is not None:
        _tell_begin(lm, begin)
    return lm


def _tell_begin(lm: LanguageModel, begin: str) -> None:
    """Say so if a text begins with words: a language's code, misspelt, would be some as well."""
    tokenizer = lm.model.tokenizer
    tokens = tokenizer.encode(begin, special=True, bos=False)
    if len(tokens) != 1:
        parts = ", ".join(repr(tokenizer.decode([token], special=True)) for token in tokens)
        told = f"begin = {begin!r:.80} is no token of {lm.model.name}: every text begins with "
        told += f"{counted(len(tokens), 'token')}, {parts[:200]}."
        stderr().print(Text(printable(told)), soft_wrap=True)


def _tell_corpus(corpus: Corpus) -> None:
    """Say how much was read; what was left out is an example or two, and a number."""
    told = f"Corpus: {counted(len(corpus.texts), 'file')}, {counted(corpus.tokens, 'token')}."
    for skipped in corpus.skipped[:3]:
        told += f" {skipped.path} is skipped: {skipped.reason}."
    if len(corpus.skipped) > 3:
        told += f" Skipped besides: {len(corpus.skipped) - 3}."
    stderr().print(Text(printable(told)), soft_wrap=True)


@contextmanager
def counting(what: str) -> Iterator[Callable[[str, float], None]]:
    """Show which share of long work is done; yields what to tell the current part and share."""
    console = stderr()
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task(what, total=1.0)

        def report(part: str, share: float) -> None:
            bar.update(task, description=f"{what}: {printable(part)}", completed=share)

        yield report
