"""Keys and values of the sequences of a transformers model, where a pass can use them uncopied.

Each layer holds one tensor for all sequences, [slots, heads, capacity, size], and each sequence a
slot of it: the token at position p lies at p, and a pass's rows after the committed end. Occupied
slots are always the first ones, so a pass of all sequences, or of one, reads a view. Rolling back
is forgetting a length; keeping a path of a tree moves its rows together. Nothing is evicted, also
where a layer attends to a window only: any sequence can be rolled back to any length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch

from forerun.errors import EngineError, NotEnoughMemoryError
from forerun.targets.transformers_source import Source

__all__ = ["StoredSequence", "TensorStore", "is_short_of_memory"]

_FIRST_CAPACITY = 64


class TensorStore:
    """The slots of all sequences of one model."""

    def __init__(self) -> None:
        self.layers: dict[int, list[torch.Tensor]] = {}
        self._owners: list[StoredSequence] = []
        self._slots, self._capacity = 0, 0

    def take(self, owner: StoredSequence) -> int:
        """Give a sequence the next slot, and return its number.

        Raises:
            NotEnoughMemoryError: There is none for another one.
        """
        self._owners.append(owner)
        try:
            self.reserve(0)
        except BaseException:
            self._owners.pop()
            raise
        return len(self._owners) - 1

    def give(self, slot: int) -> None:
        """Take a slot back; the last sequence moves into it."""
        last = self._owners.pop()
        if last.slot != slot:
            for each in self._tensors():
                each[slot, :, : last.extent] = each[last.slot, :, : last.extent]
            last.slot = slot
            self._owners[slot] = last

    def reserve(self, tokens: int) -> None:
        """Make room for so many tokens in each slot, and more while there is memory for it.

        Raises:
            NotEnoughMemoryError: There is not; what is stored stays.
        """
        owners, least = len(self._owners), max(tokens, _FIRST_CAPACITY)
        if tokens <= self._capacity and owners <= self._slots:
            return
        try:
            self._grow(_grown(self._slots, owners), _grown(self._capacity, least))
            return
        except (RuntimeError, MemoryError) as error:
            if not is_short_of_memory(error):
                raise
        try:
            self._grow(max(self._slots, owners), max(self._capacity, least))
        except (RuntimeError, MemoryError) as error:
            if not is_short_of_memory(error):
                raise
            what = f"Keys and values of {owners} texts of {max(self._capacity, least)} tokens "
            what += "need more memory than there is."
            raise NotEnoughMemoryError(
                what, "Write fewer texts at once, or shorter ones."
            ) from error

    def _grow(self, slots: int, capacity: int) -> None:
        """Enlarge all layers; some may be, where memory ends, and do no harm."""
        for pair in self.layers.values():
            pair[:] = [_enlarged(each, slots, capacity) for each in pair]
        self._slots, self._capacity = slots, capacity

    def layer(self, index: int, keys: torch.Tensor, values: torch.Tensor) -> list[torch.Tensor]:
        """Return a layer's two tensors, made when it is first asked for.

        Args:
            index: Which layer.
            keys: Such as it will hold: [any, heads, any, size].
            values: Likewise.
        """
        if index not in self.layers:
            self.layers[index] = [
                _enlarged(each[:0, :, :0], self._slots, self._capacity) for each in (keys, values)
            ]
        return self.layers[index]

    def copy(self, source: int, slot: int, length: int) -> None:
        """Copy the first tokens of one slot into another."""
        for each in self._tensors():
            each[slot, :, :length] = each[source, :, :length]

    def gather(self, slot: int, start: int, path: Sequence[int]) -> None:
        """Move rows `path` after `start` together."""
        for each in self._tensors():
            index = torch.as_tensor(path, device=each.device) + start
            each[slot, :, start : start + len(path)] = each[slot].index_select(1, index)

    def _tensors(self) -> list[torch.Tensor]:
        return [each for pair in self.layers.values() for each in pair]


class StoredSequence:
    """One sequence's slot, and the rows of its last pass.

    Args:
        store: Where it lies.

    Attributes:
        slot: Its number; it changes as others are freed.
        parents: Of each row of the last pass: an earlier row's index, or -1 for the committed end.
        source: What an encoder has read, if there is one; forks share it.
    """

    def __init__(self, store: TensorStore) -> None:
        self.parents: tuple[int, ...] = ()
        self.source: Source | None = None
        self._store = store
        self._length = 0
        self.slot = store.take(self)

    @property
    def length(self) -> int:
        """Committed tokens."""
        return self._length

    @property
    def extent(self) -> int:
        """Committed tokens and pending rows."""
        return self._length + len(self.parents)

    def begin(self, parents: Sequence[int]) -> None:
        """Start a pass with these rows; the last pass's are dropped."""
        self.parents = tuple(parents)
        self._store.reserve(self.extent)

    def commit(self, path: Sequence[int]) -> None:
        """Keep these rows of the last pass, first to last, and drop the others.

        Raises:
            EngineError: They are not a path from the committed end.
        """
        before = -1
        for row in path:
            if not 0 <= row < len(self.parents) or self.parents[row] != before:
                raise EngineError(f"Rows {list(path)} are no path from the committed end.")
            before = row
        if list(path) != list(range(len(path))):
            self._store.gather(self.slot, self._length, path)
        self._length += len(path)
        self.parents = ()

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` committed tokens.

        Raises:
            EngineError: There are not so many.
        """
        if not 0 <= length <= self._length:
            raise EngineError(f"Rollback to {length} of {self._length} tokens.")
        self._length, self.parents = length, ()

    def fork(self) -> Self:
        """Return a copy of the committed part."""
        other = type(self)(self._store)
        self._store.copy(self.slot, other.slot, self._length)
        other._length, other.source = self._length, self.source
        return other

    def free(self) -> None:
        """Give the slot back."""
        self._store.give(self.slot)


def is_short_of_memory(error: BaseException) -> bool:
    """Return whether an allocation failed; on a CPU torch says so in words alone."""
    kinds = (torch.OutOfMemoryError, MemoryError)
    return isinstance(error, kinds) or "can't allocate memory" in str(error)


def _enlarged(old: torch.Tensor, slots: int, capacity: int) -> torch.Tensor:
    """Zeros, since what was never written is read, masked, and must be a number."""
    if old.shape[0] >= slots and old.shape[2] >= capacity:
        return old
    held, heads, tokens, size = old.shape
    new = old.new_zeros((max(slots, held), heads, max(capacity, tokens), size))
    new[:held, :, :tokens] = old
    return new


def _grown(size: int, needed: int) -> int:
    """Twice the size, where it is not enough: growing costs as much as it adds."""
    return size if needed <= size else max(needed, 2 * size)
