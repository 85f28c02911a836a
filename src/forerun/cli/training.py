"""What is shown while text is captured and a drafter learns: bars, or a line now and then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from forerun.cli.consoles import print_json, stderr
from forerun.cli.interrupt import Interruption, patient
from forerun.printable import printable

if TYPE_CHECKING:
    from forerun.train.capture import CaptureNews
    from forerun.train.learner import TrainingNews

__all__ = ["TrainingDisplay", "training_display"]


class TrainingDisplay:
    """What to tell of a capture and of a training.

    Args:
        console: Where lines go.
        bar: Where bars are.
        interruption: Whether Ctrl-C was pressed.
        as_json: Print JSON lines instead.
    """

    def __init__(
        self, console: Console, bar: Progress, interruption: Interruption, *, as_json: bool
    ) -> None:
        self._console, self._bar, self._as_json = console, bar, as_json
        self._interruption = interruption
        self._tasks: dict[str, TaskID] = {}

    def is_over(self) -> bool:
        """Whether whoever works here is to end early."""
        return self._interruption.came

    def told(self, text: str) -> None:
        """Show a line."""
        self._console.print(Text(printable(text)), soft_wrap=True)

    def captured(self, news: CaptureNews) -> None:
        """Show how far a capture is."""
        self._show("Capture", news.text(), news.tokens, news.wanted)
        if self._as_json:
            print_json({"event": "capture", **news.as_json()})
        elif not self._console.is_terminal:
            self.told(f"Capture: {news.text()}")

    def learned(self, news: TrainingNews) -> None:
        """Show how far a training is."""
        self._show("Learn", news.text(), news.learned, news.wanted)
        if news.is_look and self._as_json:
            print_json({"event": "train", **news.as_json()})
        elif news.is_look and not self._console.is_terminal:
            self.told(f"Step {news.step}: {news.text()}")

    def _show(self, what: str, text: str, done: int, total: int) -> None:
        if what not in self._tasks:
            self._tasks[what] = self._bar.add_task("", total=total, what=what)
        self._bar.update(self._tasks[what], description=text, completed=min(done, total))


@contextmanager
def training_display(*, as_json: bool) -> Iterator[TrainingDisplay]:
    """Show how far it is while a `with` block runs, and hold Ctrl-C back for it."""
    console = stderr()
    bar = Progress(
        TextColumn("{task.fields[what]}"),
        BarColumn(),
        TextColumn("{task.description}", markup=False),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with patient() as interruption, bar:
        yield TrainingDisplay(console, bar, interruption, as_json=as_json)
