"""What is shown while text is captured and a drafter learns: a bar, or a line now and then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from forerun.cli.consoles import print_json, stderr
from forerun.train.options import Capturing, HeadLearning

if TYPE_CHECKING:
    from forerun.train.capture import CaptureNews
    from forerun.train.loop import HeadNews

__all__ = ["capture_display", "training_display"]


@contextmanager
def capture_display(
    options: Capturing, *, as_json: bool
) -> Iterator[Callable[[CaptureNews], None]]:
    """Show how far a capture is; yields what to tell of it."""
    console = stderr()
    bar = Progress(
        TextColumn("Capture"),
        BarColumn(),
        TextColumn("{task.description}", markup=False),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task("", total=options.tokens)

        def report(news: CaptureNews) -> None:
            bar.update(task, description=news.text(), completed=min(news.tokens, news.wanted))
            if as_json:
                print_json({"event": "capture", **news.as_json()})
            elif not console.is_terminal:
                console.print(f"Capture: {news.text()}", soft_wrap=True)

        yield report


@contextmanager
def training_display(
    options: HeadLearning, *, as_json: bool
) -> Iterator[Callable[[HeadNews], None]]:
    """Show how far a training is; yields what to tell of it."""
    console = stderr()
    bar = Progress(
        TextColumn("Learn"),
        BarColumn(),
        TextColumn("{task.description}", markup=False),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task("", total=options.budget)

        def report(news: HeadNews) -> None:
            bar.update(task, description=news.text(), completed=min(news.learned, news.wanted))
            if as_json and news.is_look:
                print_json({"event": "train", **news.as_json()})
            elif news.is_look and not console.is_terminal:
                console.print(f"Step {news.step}: {news.text()}", soft_wrap=True)

        yield report
