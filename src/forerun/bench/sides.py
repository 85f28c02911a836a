"""What is timed side by side: Forerun's own passes, and the protocol that peers follow too.

A side holds one sequence of context. Each of its methods does its work once, returns the seconds
that took, and leaves the sequence as it was.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from forerun.api import LanguageModel
from forerun.targets.protocol import Row

__all__ = ["ForerunSide", "Side", "Tokens"]

Tokens = Sequence[int]


@runtime_checkable
class Side(Protocol):
    """An engine with the context in its cache."""

    @property
    def name(self) -> str:
        """What a report calls it."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return what a reader must know of it: version, settings; plain data."""
        ...

    def time_pass(self, tokens: Tokens) -> float:
        """Score these tokens behind the context, logits of every row; seconds."""
        ...

    def time_prefill(self, tokens: Tokens) -> float:
        """Read these tokens as a prompt of their own, logits of the last; seconds."""
        ...

    def time_decode(self, count: int) -> float:
        """Write so many tokens behind the context, each the likeliest, and one untimed; seconds."""
        ...

    def close(self) -> None:
        """Give back all that it holds."""
        ...


class ForerunSide:
    """Forerun as its users have it: the target's `score`, and `stream` without a drafter.

    Args:
        lm: The model.
        context: Tokens each pass attends to.
    """

    name = "forerun"

    def __init__(self, lm: LanguageModel, context: Tokens) -> None:
        self._lm, self._context = lm, tuple(context)
        self._sequence = lm.target.open(context)

    def describe(self) -> dict[str, Any]:
        """Return which target it is, and what is kept in how many bits."""
        loading = self._lm.loading
        return {
            "target": self._lm.target.capabilities.name,
            "weights": loading.weights,
            "kv_bits": int(loading.kv_bits or 16),
        }

    def time_pass(self, tokens: Tokens) -> float:
        """Score these tokens behind the context, logits of every row; seconds."""
        target, sequence, start = self._lm.target, self._sequence, len(self._context)
        rows = [Row(sequence, token, start + i, i - 1) for i, token in enumerate(tokens)]
        begun = time.perf_counter()
        target.score(rows)
        seconds = time.perf_counter() - begun
        target.rollback(sequence, start)
        return seconds

    def time_prefill(self, tokens: Tokens) -> float:
        """Read these tokens as a prompt of their own, logits of the last; seconds."""
        target, last = self._lm.target, len(tokens) - 1
        begun = time.perf_counter()
        sequence = target.open(tokens[:last])
        target.score([Row(sequence, tokens[last], last, -1)])
        seconds = time.perf_counter() - begun
        target.free(sequence)
        return seconds

    def time_decode(self, count: int) -> float:
        """Write so many tokens behind the context, each the likeliest, and one untimed; seconds."""
        stream = self._lm.stream(
            self._context, drafter="none", temperature=0, max_tokens=count + 1, ignore_eos=True
        )
        times = [time.perf_counter() for _ in stream]
        return times[-1] - times[0]

    def close(self) -> None:
        """Give the sequence back."""
        self._lm.target.free(self._sequence)
