"""A side that measures nothing: it says what it is told to, and writes down what it was asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forerun.bench.sides import Tokens

Call = tuple[str, str, int]  # side, kind, size

CALLS: list[Call] = []
"""What fakes that a peer table opened were asked."""


def two_ms_a_row(kind: str, size: int) -> float:
    """Return two milliseconds for each row or token."""
    return 0.002 * size


class FakeSide:
    """Takes as long as `seconds(kind, size)` says, without waiting; it may raise instead."""

    def __init__(
        self, name: str, calls: list[Call], seconds: Callable[[str, int], float] = two_ms_a_row
    ) -> None:
        self.name, self._calls, self._seconds = name, calls, seconds
        self.is_closed = False

    def describe(self) -> dict[str, Any]:
        """Return some plain data."""
        return {"kind": "fake"}

    def time_pass(self, tokens: Tokens) -> float:
        """Return what a pass is to take."""
        return self._took("pass", len(tokens))

    def time_prefill(self, tokens: Tokens) -> float:
        """Return what a prompt is to take."""
        return self._took("prefill", len(tokens))

    def time_decode(self, count: int) -> float:
        """Return what a text is to take."""
        return self._took("decode", count)

    def close(self) -> None:
        """Take note."""
        self.is_closed = True

    def _took(self, kind: str, size: int) -> float:
        self._calls.append((self.name, kind, size))
        return self._seconds(kind, size)


class FakePeer(FakeSide):
    """As the table of peers opens it."""

    def __init__(
        self, path: str, threads: int, context: Tokens, most_rows: int, prefill: int
    ) -> None:
        super().__init__("fake", CALLS)


class FailingPeer(FakePeer):
    """Fails at its first pass of four rows."""

    def _took(self, kind: str, size: int) -> float:
        if (kind, size) == ("pass", 4):
            raise RuntimeError("out of ideas")
        return super()._took(kind, size)
