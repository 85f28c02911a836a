"""One pass of a transformers model: the rows of many sequences laid out as a batch.

There are two ways to lay them out for speed. *In place*: each sequence's keys lie where they are
kept, by position, and masks of four dimensions say who sees whom; trees are possible, and nothing
is copied. *Aligned*: keys are padded on the left, so that every sequence's rows begin at one column
and places are as far apart as positions; a mask of two dimensions says what is padding. That is how
`generate` lays out a batch, so every model takes it; chains only, and several sequences are copied.
A third, *fixed*, is for exactness: `transformers_fixed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from forerun.targets.protocol import Row
from forerun.targets.reference_sequences import Group
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

    Attributes:
        tokens: [sequences, rows] int64; sequences with fewer rows are filled up with token 0.
        positions: [sequences, rows] int64.
        past: Keys that stand before the first row's, as masks count them.
        keys: Keys that each layer attends to.
        places: Of each row of the pass: its sequence and column.
        layers: Which have stored their keys and values.
    """

    def __init__(
        self,
        store: TensorStore,
        rows: Sequence[Row],
        groups: Sequence[Group[StoredSequence]],
        way: Way,
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
        self.tokens = np.zeros((len(groups), count), dtype=np.int64)
        self.positions = np.zeros((len(groups), count), dtype=np.int64)
        self.places = np.zeros((len(rows), 2), dtype=np.int64)
        for place, group in enumerate(groups):
            mine = slice(0, len(group.indices))
            self.tokens[place, mine] = [rows[index].token for index in group.indices]
            depths = depths_of(group.slots.parents)
            self.positions[place, mine] = depths + group.slots.length
            columns = np.arange(len(group.indices))
            self.places[group.indices] = np.stack([np.full_like(columns, place), columns], axis=1)
        self._indices: dict[torch.device, list[torch.Tensor]] = {}

    def update(
        self, index: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store a layer's new keys and values, and return all that its rows attend to.

        Args:
            index: Which layer.
            keys: [sequences, heads, rows, size].
            values: Likewise.
        """
        self.layers.add(index)
        stored = self._store.layer(index, keys, values)
        for mine, new in zip(stored, (keys, values), strict=True):
            self._put(mine, new)
        read_keys, read_values = map(self._read, stored)
        return read_keys, read_values

    def mask(self, window: int = 0, chunk: int = 0) -> torch.Tensor:
        """Return who sees whom, bool [sequences, 1, rows, keys], for the layout in place."""
        families = [Family(each.length, each.parents) for each in self._sequences]
        count = self.tokens.shape[1]
        return torch.from_numpy(
            visible(families, count, self.keys, window=window, chunk=chunk)[:, None]
        )

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
        """Return slot, position there, sequence and column of each row."""
        if device not in self._indices:
            found: list[list[int]] = [[], [], [], []]
            for place, each in enumerate(self._sequences):
                count = len(each.parents)
                found[0] += [each.slot] * count
                found[1] += range(each.length, each.extent)
                found[2] += [place] * count
                found[3] += range(count)
            self._indices[device] = [torch.tensor(part, device=device) for part in found]
        return self._indices[device]
