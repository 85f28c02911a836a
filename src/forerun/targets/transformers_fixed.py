"""Passes of one shape, so that a row's bits depend on its token, position and ancestors alone.

A matrix library chooses its method by the shape of a call. If every call has the same shape, the
same row comes out the same, whatever stands beside it. So a pass is cut into calls of `ROWS` rows
of one sequence, filled up where there are fewer, and attends to whole `BLOCK`s of keys: torch's
attention on the processor goes through keys block by block, and one in which a row sees nothing
adds zeros. Where lengths leave a rest, a call's last numbers are computed otherwise than its first:
so each row stands in the column of its position, and a chain of 5 takes 1.5 calls on average.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from forerun.targets.protocol import Row, Target
from forerun.targets.transformers_flat import Span
from forerun.targets.transformers_masks import Family, visible
from forerun.targets.transformers_slots import StoredSequence, TensorStore

__all__ = ["BLOCK", "ROWS", "FixedBatch", "Part", "is_steady", "parts_of"]

ROWS = 8
"""Rows of every call."""

BLOCK = 512
"""Keys that torch's attention takes at a time on a processor."""


class Part(NamedTuple):
    """Some rows of a sequence that go into one call.

    Attributes:
        first: The first of them.
        rows: How many.
        column: Where the first stands in the call.
    """

    first: int
    rows: int
    column: int


def parts_of(position: int, count: int) -> Iterator[Part]:
    """Cut rows that follow each other into calls, each row in the column of its position.

    Args:
        position: Of the first.
        count: How many there are.
    """
    first = 0
    while first < count:
        column = (position + first) % ROWS
        part = Part(first, min(ROWS - column, count - first), column)
        yield part
        first += part.rows


class FixedBatch:
    """One call: as `Batch`, for some rows of one sequence.

    Args:
        store: Where the sequence lies; it has room for whole blocks.
        sequence: Which; its rows are a chain.
        tokens: Of all of its pending rows.
        part: Which of them.
        spare: Blocks of keys more than needed: they make no difference.

    Attributes:
        tokens: [1, ROWS] int64.
        positions: [1, ROWS] int64.
        past: Keys before the first row.
        keys: Keys that each layer attends to.
        layers: Which have stored their keys and values.
        sources: What an encoder has read for the sequence, if there is one.
        spans: Empty: rows do not lie flat.
    """

    def __init__(
        self,
        store: TensorStore,
        sequence: StoredSequence,
        tokens: Sequence[int],
        part: Part,
        spare: int = 0,
    ) -> None:
        self._store, self._slot = store, sequence.slot
        self.sources = [] if sequence.source is None else [sequence.source]
        self._columns = slice(part.column, part.column + part.rows)
        self.past = sequence.length + part.first
        self._end = self.past + part.rows
        self.keys = (-(-self._end // BLOCK) + spare) * BLOCK
        store.reserve(self.keys)
        self.layers: set[int] = set()
        self.spans: Sequence[Span] = ()
        self.tokens = np.zeros((1, ROWS), dtype=np.int64)
        self.positions = np.zeros((1, ROWS), dtype=np.int64)
        self.tokens[0, self._columns] = tokens[part.first : part.first + part.rows]
        self.positions[0, self._columns] = np.arange(self.past, self._end)

    def update(
        self, index: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store the rows' keys and values, and return whole blocks."""
        self.layers.add(index)
        stored = self._store.layer(index, keys, values)
        for mine, new in zip(stored, (keys, values), strict=True):
            mine[self._slot, :, self.past : self._end] = new[0, :, self._columns]
        mine_keys, mine_values = (
            each[self._slot : self._slot + 1, :, : self.keys] for each in stored
        )
        return mine_keys, mine_values

    def mask(self, window: int = 0, chunk: int = 0) -> torch.Tensor:
        """Return who sees whom, bool [1, 1, ROWS, keys]; rows that fill up see the first key."""
        count = self._end - self.past
        family = Family(self.past, range(-1, count - 1))
        mask = np.zeros((1, 1, ROWS, self.keys), dtype=np.bool_)
        mask[..., 0] = True
        seen = visible([family], count, self.keys, window=window, chunk=chunk)
        mask[0, 0, self._columns] = seen[0]
        return torch.from_numpy(mask)

    def key_positions(self) -> NDArray[np.int64]:
        """Return where keys stand in their text, [1, keys]."""
        return np.arange(self.keys)[None]

    def padding(self) -> torch.Tensor:
        """Return that no key is padding."""
        return torch.ones((1, self.keys), dtype=torch.int64)


def is_steady(target: Target, spare_blocks: Callable[[int], None]) -> bool:
    """Whether a chain's rows have the same bits one by one and several at once.

    Args:
        target: Whose passes.
        spare_blocks: Called with how many blocks of keys the next calls have more than needed.
    """
    size = target.vocab_size
    tokens = [(7919 * i + 31) % size for i in range(13)]
    found: list[NDArray[np.float32]] = []
    for sizes, blocks in (((1,) * 13, 0), ((8, 5), 0), ((3, 3, 7), 1)):
        spare_blocks(blocks)
        sequence, at, scored = target.open(), 0, []
        for count in sizes:
            rows = [Row(sequence, tokens[at + i], at + i, i - 1) for i in range(count)]
            scored.append(target.score(rows).logits)
            target.commit(sequence, range(count))
            at += count
        target.free(sequence)
        found.append(np.concatenate(scored))
    spare_blocks(0)
    return all(np.array_equal(found[0], each) for each in found[1:])
