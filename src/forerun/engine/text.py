"""A text as drafters see it: what stands in it now, not copied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import overload

__all__ = ["Text"]


class Text(Sequence[int]):
    """The first tokens of a text that only grows; a longer text leaves this one as it is.

    Equal to a tuple of the same tokens, and hashed like it. A text is told of several times a
    round, and a copy would touch every one of its tokens.

    Args:
        tokens: All that stands there; it may grow later, and is never changed by whom it is shown.
    """

    __slots__ = ("_length", "_tokens")

    def __init__(self, tokens: list[int]) -> None:
        self._tokens, self._length = tokens, len(tokens)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[int, ...]: ...
    def __getitem__(self, at: int | slice) -> int | tuple[int, ...]:
        if isinstance(at, slice):
            first, last, step = at.indices(self._length)
            if step > 0:
                return tuple(self._tokens[first:last:step])
            return tuple(self)[at]
        if not -self._length <= at < self._length:
            raise IndexError(at)
        return self._tokens[at if at >= 0 else at + self._length]

    def __iter__(self) -> Iterator[int]:
        return islice(self._tokens, self._length)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple | Text) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))
