"""One pass of a transformers model: the rows of many sequences laid out as a batch.

There are two ways to lay them out for speed. *In place*: each sequence's keys lie where they are
kept, by position, and masks of four dimensions say who sees whom; trees are possible, and nothing
is copied. *Aligned*: keys are padded on the left, so that every sequence's rows begin at one column
and places are as far apart as positions; a mask of two dimensions says what is padding. That is how
`generate` lays out a batch, so every model takes it; chains only, and several sequences are copied.
A third, *fixed*, is for exactness: `transformers_fixed`.

In place, rows of texts that have different numbers of them may be laid *flat*, one text's behind
another's, so that nothing is filled up (`transformers_flat`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from forerun.targets.protocol import Row
from forerun.targets.reference_sequences import Group
from forerun.targets.transformers_flat import Span
from forerun.targets.transformers_masks import Family, depths_of, visible
from forerun.targets.transformers_slots import StoredSequence, TensorStore
from forerun.targets.transformers_source import Source

__all__ = ["Batch", "Way"]

Way = Literal["in place", "aligned", "fixed"]


class Batch:
    """The rows of a pass, and the keys and values that they attend to.

    Args:
        store: Where the sequences lie.
        rows: Of the pass.
        groups: Which of them each sequence has; each has begun its pass.
        way: How they are laid out.
        may_be_flat: Whether they may lie flat, where that is less.

    Attributes:
        tokens: [sequences, rows] int64; sequences with fewer rows are filled up with token 0. Flat
            it is [1, rows of all].
        positions: Likewise.
        past: Keys that stand before the first row's, as masks count them.
        keys: Keys that each layer attends to.
        places: Of each row of the pass: where it lies in `tokens`.
        spans: Which rows are each sequence's, where they lie flat; else empty.
        layers: Which have stored their keys and values.
    """

    def __init__(
        self,
        store: TensorStore,
        rows: Sequence[Row],
        groups: Sequence[Group[StoredSequence]],
        way: Way,
        *,
        may_be_flat: bool = False,
    ) -> None:
        groups = sorted(groups, key=lambda group: group.slots.slot)
        self._store = store
        self._sequences = [group.slots for group in groups]
        self._lengths = [each.length for each in self._sequences]
        self._slots = [each.slot for each in self._sequences]
        self._is_padded = way == "aligned" and len(groups) > 1
        count = max(len(group.indices) for group in groups)
        self.past = max(self._lengths)
        self.keys = self.past + count if self._is_padded else self._furthest()
        self.layers: set[int] = set()
        sizes = [len(group.indices) for group in groups]
        is_flat = may_be_flat and min(sizes) < count
        ends = np.cumsum(sizes).tolist()
        self.spans = [
            Span(end - size, end, each.extent)
            for size, end, each in zip(sizes, ends, self._sequences, strict=True)
            if is_flat
        ]
        shape = (1, ends[-1]) if is_flat else (len(groups), count)
        self.tokens = np.zeros(shape, dtype=np.int64)
        self.positions = np.zeros(shape, dtype=np.int64)
        self.places = np.zeros((len(rows), 2), dtype=np.int64)
        for place, group in enumerate(groups):
            first = self.spans[place].first if is_flat else 0
            at = 0 if is_flat else place, slice(first, first + sizes[place])
            self.tokens[at] = [rows[index].token for index in group.indices]
            self.positions[at] = depths_of(group.slots.parents) + group.slots.length
            self.places[group.indices, 0] = at[0]
            self.places[group.indices, 1] = np.arange(first, first + sizes[place])
        self._indices: dict[torch.device, list[torch.Tensor]] = {}

    def update(
        self, index: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store a layer's new keys and values, and return all that its rows attend to.

        Args:
            index: Which layer.
            keys: [sequences, heads, rows, size]; flat, [1, heads, rows of all, size].
            values: Likewise.
        """
        self.layers.add(index)
        stored = self._store.layer(index, keys, values)
        for mine, new in zip(stored, (keys, values), strict=True):
            self._put(mine, new)
        read_keys, read_values = map(self._read, stored)
        return read_keys, read_values

    def mask(self, window: int = 0, chunk: int = 0) -> torch.Tensor:
        """Return who sees whom, bool [sequences, 1, rows, keys], for the layout in place.

        Where rows lie flat, [1, 1, rows of all, keys]: each one's of its own sequence.
        """
        families = [Family(each.length, each.parents) for each in self._sequences]
        count, far = self.tokens.shape[1], {"window": window, "chunk": chunk}
        if not self.spans:
            return torch.from_numpy(visible(families, count, self.keys, **far)[:, None])
        parts = [visible([each], len(each.parents), self.keys, **far)[0] for each in families]
        return torch.from_numpy(np.concatenate(parts)[None, None])

    @property
    def sources(self) -> list[Source]:
        """What an encoder has read for each sequence; empty without one."""
        return [each.source for each in self._sequences if each.source is not None]

    def key_positions(self) -> NDArray[np.int64]:
        """Return where keys stand in their texts, [sequences, keys], for the layout in place."""
        found = np.tile(np.arange(self.keys), (len(self._sequences), 1))
        for place, each in enumerate(self._sequences):
            count = len(each.parents)
            found[place, each.length : each.extent] = self.positions[place, :count]
        return found

    def padding(self) -> torch.Tensor:
        """Return which keys are none, int64 [sequences, keys] of 0 and 1, where aligned."""
        mask = np.ones((len(self._lengths), self.keys), dtype=np.int64)
        if self._is_padded:
            for row, length in zip(mask, self._lengths, strict=True):
                row[: self.past - length] = 0
        return torch.from_numpy(mask)

    def _furthest(self) -> int:
        return max(each.extent for each in self._sequences)

    def _put(self, mine: torch.Tensor, new: torch.Tensor) -> None:
        """Store new rows behind each sequence's committed end."""
        if len(self._sequences) == 1:
            start, end = self._lengths[0], self._sequences[0].extent
            mine[self._slots[0], :, start:end] = new[0, :, : end - start]
            return
        slots, positions, places, columns = self._indices_on(mine.device)
        mine[slots, :, positions] = new[places, :, columns]

    def _read(self, mine: torch.Tensor) -> torch.Tensor:
        first, count = self._slots[0], len(self._slots)
        if self._is_padded:
            padded = mine.new_zeros((count, mine.shape[1], self.keys, mine.shape[3]))
            for place, each in enumerate(self._sequences):
                start = self.past - each.length
                padded[place, :, start : start + each.extent] = mine[each.slot, :, : each.extent]
            return padded
        if self._slots[-1] == first + count - 1:
            return mine[first : first + count, :, : self.keys]
        return mine[:, :, : self.keys][torch.as_tensor(self._slots, device=mine.device)]

    def _indices_on(self, device: torch.device) -> list[torch.Tensor]:
        """Return slot and position there of each row, and where it lies in the pass."""
        if device not in self._indices:
            found: list[list[int]] = [[], [], [], []]
            for place, each in enumerate(self._sequences):
                count = len(each.parents)
                found[0] += [each.slot] * count
                found[1] += range(each.length, each.extent)
                first = self.spans[place].first if self.spans else 0
                found[2] += [0 if self.spans else place] * count
                found[3] += range(first, first + count)
            self._indices[device] = [torch.tensor(part, device=device) for part in found]
        return self._indices[device]
