"""How a measurement is ended before it is over."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

__all__ = ["NEVER", "End"]


class End(NamedTuple):
    """Whether the end has come, and what waits for no sample.

    Attributes:
        came: Asked between samples; once true, what was measured so far is the result.
        impatient: Held around each sample, within which the end may come as `KeyboardInterrupt`.
    """

    came: Callable[[], bool] = lambda: False
    impatient: Callable[[], AbstractContextManager[None]] = nullcontext


NEVER = End()
