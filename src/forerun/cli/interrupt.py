"""Ctrl-C between rounds: the first one is noted, so that the text so far stays whole."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Interruption", "patient"]


class Interruption:
    """Whether Ctrl-C was pressed."""

    def __init__(self) -> None:
        self.came = False

    def note(self, signum: int, frame: FrameType | None) -> None:
        """Take note the first time; somebody who presses again wants out at once."""
        if self.came:
            raise KeyboardInterrupt
        self.came = True


@contextmanager
def patient() -> Iterator[Interruption]:
    """Hold Ctrl-C back for the length of a `with` block; the block looks at `came`."""
    interruption = Interruption()
    before = signal.signal(signal.SIGINT, interruption.note)
    try:
        yield interruption
    finally:
        signal.signal(signal.SIGINT, before)
