"""Ctrl-C between rounds: the first one is noted, so that the text so far stays whole.

Being told to end (SIGTERM) is noted likewise; what it ends is the program, not one answer.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

__all__ = ["TERMINATED", "Interruption", "patient", "tidy_when_terminated"]

TERMINATED = 128 + signal.SIGTERM
T = TypeVar("T")


class Interruption:
    """Whether Ctrl-C was pressed, or the program told to end."""

    def __init__(self) -> None:
        self.came = False
        self.is_final = False
        self._is_impatient = False

    def note(self, signum: int, frame: FrameType | None) -> None:
        """Take note the first time; somebody who presses again wants out at once."""
        self.is_final = self.is_final or signum == signal.SIGTERM
        before, self.came = self.came, True
        if before or self._is_impatient:
            raise KeyboardInterrupt

    @contextmanager
    def impatient(self) -> Iterator[None]:
        """Let the first one, too, end a `with` block at once: nothing would be lost.

        Raises:
            KeyboardInterrupt: It did.
        """
        self._is_impatient = True
        try:
            yield
        finally:
            self._is_impatient = False

    def heard(self, events: Iterator[T]) -> Iterator[T]:
        """Yield events; before the first one, as while a long prompt is read, nobody waits.

        Raises:
            KeyboardInterrupt: There is no first one: the end came before.
        """
        with self.impatient():
            first = next(events, None)
        if first is not None:
            yield first
            yield from events


@contextmanager
def patient() -> Iterator[Interruption]:
    """Hold Ctrl-C back for the length of a `with` block; the block looks at `came`.

    Raises:
        SystemExit: At the end of the block, if the program was told to end.
    """
    interruption = Interruption()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(each, interruption.note) for each in signals]
    try:
        yield interruption
    except KeyboardInterrupt:
        if not interruption.is_final:
            raise
    finally:
        for each, handler in zip(signals, before, strict=True):
            signal.signal(each, handler)
    if interruption.is_final:
        raise SystemExit(TERMINATED)


def tidy_when_terminated() -> None:
    """From now on, being told to end runs the clean-up that any other end runs."""

    def end(signum: int, frame: FrameType | None) -> None:
        raise SystemExit(TERMINATED)

    signal.signal(signal.SIGTERM, end)
