"""Text that goes round in circles, which teaches a drafter one sentence a thousand times."""

from __future__ import annotations

__all__ = ["LoopWatch"]

_SPAN = 8  # tokens
_LEAST = 32  # spans, before which a few repetitions say nothing
_MOST = 0.3


class LoopWatch:
    """Follows a text as it is written, and sees when too many of its 8-grams stood there before."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, ...]] = set()
        self._last: list[int] = []
        self._spans = 0

    def loops(self, token: int) -> bool:
        """Take the next token; return whether over 30 % of the 8-grams so far are repeated."""
        self._last.append(token)
        if len(self._last) < _SPAN:
            return False
        self._seen.add(tuple(self._last))
        del self._last[0]
        self._spans += 1
        return self._spans >= _LEAST and self._spans - len(self._seen) > _MOST * self._spans
