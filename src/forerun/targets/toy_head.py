"""A head for toys: knows the toy's law, blurred by what it makes of hidden states.

Every number it gives depends on the row's own features, or on what it was given, and on all rows
before it: so a drafter that shows it wrong features, or forgets or keeps a row too many, guesses
otherwise. Its arithmetic is of small whole numbers, exact in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forerun.errors import EngineError
from forerun.targets.checks import check_asked, check_rows
from forerun.targets.head import HeadScores
from forerun.targets.protocol import Row
from forerun.targets.toy import HIDDEN, ToyTarget

__all__ = ["ToyHead"]

Array = NDArray[np.float32]

_PRIME, _STEPS = 251, 16.0


class _Made(NamedTuple):
    """A row that was scored: its token, what it knows, and the sum over it and all before it."""

    token: int
    state: NDArray[np.int64]
    memory: NDArray[np.int64]


class ToyHead:
    """Guesses what a toy writes.

    Args:
        toy: The target.
        tokens: The draft vocabulary, ascending; None is all.
        layers: Of the toy's, those that it wants to see.
        blur: How far it is from the toy's law, in units of a logit.
    """

    def __init__(
        self,
        toy: ToyTarget,
        tokens: Sequence[int] | None = None,
        layers: tuple[int, ...] = (0, 1),
        blur: float = 1.5,
    ) -> None:
        self.layers, self.width = layers, HIDDEN
        self.context_length = toy.context_length
        named = range(toy.vocab_size) if tokens is None else tokens
        self.tokens = np.array(named, dtype=np.int64)
        self._toy, self._blur = toy, blur
        self._sequences: dict[int, list[_Made]] = {}
        self._pending: dict[int, dict[int, tuple[int, _Made]]] = {}  # row to its parent and itself
        self._opened = 0

    def open(self) -> int:
        """Start an empty sequence, and return its name."""
        return self._add([])

    def length(self, sequence: int) -> int:
        """Return how many rows of the sequence are committed."""
        return len(self._rows(sequence))

    def score(
        self,
        rows: Sequence[Row],
        *,
        features: Array | None = None,
        given: Array | None = None,
        logits: Sequence[int] | None = None,
    ) -> HeadScores:
        """Score rows of one or many sequences in one pass; parents stand before their children."""
        ends = {name: len(made) + 1 for name, made in self._sequences.items()}
        check_rows(rows, ends, self._toy.vocab_size, self.context_length)
        asked = range(len(rows)) if logits is None else logits
        check_asked(len(rows), asked, (), 0)
        inputs = self._inputs(len(rows), features, given)
        for sequence in {row.sequence for row in rows}:
            self._pending[sequence] = {}
        for index, row in enumerate(rows):
            made = self._made(row, inputs[index])
            self._pending[row.sequence][index] = row.parent, made
        found = [self._logits(row.sequence, index) for index, row in enumerate(rows)]
        outputs = [self._pending[row.sequence][i][1].state / _STEPS for i, row in enumerate(rows)]
        return HeadScores(
            np.array([found[i] for i in asked], np.float32).reshape(len(asked), len(self.tokens)),
            np.array(outputs, np.float32).reshape(len(rows), self.width),
        )

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        """Keep the pending rows on `path`."""
        kept, parent = [], -1
        pending = self._pending.pop(sequence, {})
        for index in path:
            if index not in pending or pending[index][0] != parent:
                raise EngineError(f"Row {index} does not continue the path {list(path)}.")
            kept.append(pending[index][1])
            parent = index
        self._sequences[sequence] = self._rows(sequence) + kept

    def rollback(self, sequence: int, length: int) -> None:
        """Forget all but the first `length` committed rows."""
        if not 0 <= length <= self.length(sequence):
            raise EngineError(f"Can't roll {self.length(sequence)} rows back to {length}.")
        self._pending.pop(sequence, None)
        self._sequences[sequence] = self._sequences[sequence][:length]

    def fork(self, sequence: int) -> int:
        """Return a new sequence with the same committed rows."""
        return self._add(self._rows(sequence))

    def free(self, sequence: int) -> None:
        """Forget the sequence."""
        self._rows(sequence)
        self._pending.pop(sequence, None)
        del self._sequences[sequence]

    def _add(self, rows: list[_Made]) -> int:
        self._opened += 1
        self._sequences[self._opened] = rows  # never changed in place
        return self._opened

    def _rows(self, sequence: int) -> list[_Made]:
        if sequence not in self._sequences:
            raise EngineError(f"Sequence {sequence} is not open.")
        return self._sequences[sequence]

    def _inputs(self, count: int, features: Array | None, given: Array | None) -> Array:
        """Return what each row begins with, [rows, width]."""
        parts = [np.empty((0, self.width), np.float32)]
        if features is not None:
            parts.append(features.reshape(-1, len(self.layers), self.width).sum(axis=1))
        if given is not None:
            parts.append(given.reshape(-1, self.width))
        inputs: Array = np.concatenate(parts)
        if len(inputs) != count:
            raise EngineError(f"{count} rows have {len(inputs)} features and given outputs.")
        return inputs

    def _made(self, row: Row, begun: Array) -> _Made:
        before = self._before(row)
        known = np.rint(begun * _STEPS).astype(np.int64)
        sums = before[-1].memory if before else np.zeros(self.width, np.int64)
        state = (5 * known + 3 * sums + (row.token + 1) * np.arange(1, self.width + 1)) % _PRIME
        return _Made(row.token, state, (sums + state) % _PRIME)

    def _before(self, row: Row) -> list[_Made]:
        """Return the committed rows, then the row's ancestors."""
        pending, ancestors, at = self._pending[row.sequence], [], row.parent
        while at != -1:
            at, made = pending[at]
            ancestors.append(made)
        return self._rows(row.sequence) + ancestors[::-1]

    def _logits(self, sequence: int, index: int) -> Array:
        parent, own = self._pending[sequence][index]
        row = Row(sequence, own.token, 0, parent)
        text = [made.token for made in (*self._before(row), own)]
        law = self._toy.logits_after(text)[self.tokens]
        wobble = (own.memory.sum() * (self.tokens + 1) + own.state[0]) % 17 / 16.0 - 0.5
        blurred: Array = (law + self._blur * wobble).astype(np.float32)
        return blurred
