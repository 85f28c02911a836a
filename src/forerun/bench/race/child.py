"""`python -m forerun.bench.race.child`: one peer's engine, which answers JSON lines.

The first line says which engine, and what it is opened with; each further one is a text to write.
Every line is answered by one: with what was asked, or with `error`.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import IO, Any, Protocol

from forerun.bench.race.peers import PeerKit
from forerun.extras import pip_command

__all__ = ["Clock", "Engine", "serve"]


class Clock:
    """Notes when a text's tokens come."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._first = self._last = self._begun
        self.token_ids: list[int] = []

    def note(self, *tokens: int) -> None:
        """Take note of tokens that are there now."""
        self._last = time.perf_counter()
        if not self.token_ids:
            self._first = self._last
        self.token_ids += tokens

    def answer(self, **more: Any) -> dict[str, Any]:
        """Return the text and its times, as the parent reads them."""
        first, seconds = self._first - self._begun, self._last - self._first
        times = {"first_seconds": first, "seconds": seconds}
        return {"token_ids": self.token_ids, **times, **more}


class Engine(Protocol):
    """Another engine with the model open. It is made from a `PeerKit` and its modes."""

    def describe(self) -> dict[str, Any]:
        """Return version, weights and settings; plain data."""
        ...

    def write(
        self, tokens: list[int], max_tokens: int, temperature: float, seed: int
    ) -> dict[str, Any]:
        """Write one text and return `Clock.answer()`.

        With it, if known: `passes` of the model, and `drafts`, [drafted, accepted] of each.
        """
        ...


def serve(asked: IO[bytes], answers: IO[bytes]) -> None:
    """Answer lines until there are no more."""
    engine: Engine | None = None
    for record in _records(asked):
        try:
            if engine is None:
                engine = _opened(record)
                answer = engine.describe()
            else:
                answer = engine.write(**record)
        except ImportError as error:
            what = f"{type(error).__name__}: {error}."
            answer = {"error": f"{what} Install it: {pip_command('forerun[peers]')}"}
        except Exception as error:  # a stranger's code may raise anything; the parent reports it
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


def _records(asked: IO[bytes]) -> Iterator[dict[str, Any]]:
    for line in asked:
        yield json.loads(line)


def _opened(record: dict[str, Any]) -> Engine:
    module, attribute = record.pop("home").split(":")
    modes = frozenset(record.pop("modes"))
    kit = PeerKit(**record)
    engine: Engine = getattr(importlib.import_module(module), attribute)(kit, modes)
    return engine


if __name__ == "__main__":
    # What libraries print goes to standard error; the answers go where the parent reads them.
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, channel)
