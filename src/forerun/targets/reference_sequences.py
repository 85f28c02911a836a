"""Sequences of targets that keep slots for each: by name, with the rows that wait in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from forerun.errors import EngineError
from forerun.targets.protocol import Row

__all__ = ["Group", "KeepsSlots", "SlotSequences", "Slots"]


class Slots(Protocol):
    """Where one sequence's keys and values are kept; `forerun.cache.kv_slots` says what each does.

    Rows are those of the sequence alone, in its own numbering.
    """

    @property
    def length(self) -> int:
        """Committed tokens."""
        ...

    def begin(self, parents: Sequence[int]) -> None:
        """Start a pass with these rows; the last pass's are dropped."""
        ...

    def commit(self, path: Sequence[int]) -> None:
        """Keep these rows of the last pass, first to last, and drop the others."""
        ...

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` committed tokens."""
        ...

    def fork(self) -> Self:
        """Return a copy of the committed part."""
        ...


AnySlots = TypeVar("AnySlots", bound=Slots)


class Group(NamedTuple, Generic[AnySlots]):
    """The rows of one sequence in a pass: row i of the slots is row indices[i] of the pass."""

    slots: AnySlots
    indices: list[int]


class _Sequence(Generic[AnySlots]):
    """One sequence: its slots, and where its rows stood in the last pass that had any."""

    def __init__(self, slots: AnySlots) -> None:
        self.slots = slots
        self.pending: dict[int, int] = {}


class SlotSequences(Generic[AnySlots]):
    """Sequences by name.

    Args:
        new_slots: Makes the slots of an empty one.
    """

    def __init__(self, new_slots: Callable[[], AnySlots]) -> None:
        self._new_slots = new_slots
        self._sequences: dict[int, _Sequence[AnySlots]] = {}
        self._next_name = 0

    def __len__(self) -> int:
        """How many are open."""
        return len(self._sequences)

    def open(self) -> int:
        """Start an empty sequence and return its name."""
        return self._add(self._new_slots())

    def slots(self, sequence: int) -> AnySlots:
        """Return where the sequence's keys and values are kept."""
        return self._known(sequence).slots

    def length(self, sequence: int) -> int:
        """Return how many of the sequence's rows are committed."""
        return self._known(sequence).slots.length

    def lengths(self, rows: Sequence[Row]) -> dict[int, int]:
        """Return the length of each open sequence that the rows name."""
        named = {row.sequence for row in rows} & self._sequences.keys()
        return {name: self._sequences[name].slots.length for name in named}

    def begin(self, rows: Sequence[Row]) -> list[Group[AnySlots]]:
        """Tell each sequence its rows, with parents in its own numbering."""
        indices: dict[int, list[int]] = {}
        local: list[int] = []
        for index, row in enumerate(rows):
            group = indices.setdefault(row.sequence, [])
            local.append(len(group))
            group.append(index)
        groups = []
        for name, group in indices.items():
            known = self._sequences[name]
            parents = [rows[index].parent for index in group]
            known.slots.begin([-1 if parent < 0 else local[parent] for parent in parents])
            known.pending = {index: local[index] for index in group}
            groups.append(Group(known.slots, group))
        return groups

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        """Keep the rows of the last pass on `path` (indices, first to last) and drop the others.

        Raises:
            EngineError: The rows are not a path from the sequence's committed end.
        """
        known = self._known(sequence)
        try:
            local = [known.pending[index] for index in path]
        except KeyError as error:
            raise EngineError(f"Row {error} is no pending row of sequence {sequence}.") from None
        known.slots.commit(local)
        known.pending = {}

    def rollback(self, sequence: int, length: int) -> None:
        """Forget all but the first `length` committed rows."""
        known = self._known(sequence)
        known.slots.rollback(length)
        known.pending = {}

    def fork(self, sequence: int) -> int:
        """Return a new sequence with the same committed rows."""
        return self._add(self._known(sequence).slots.fork())

    def free(self, sequence: int) -> AnySlots:
        """Forget the sequence, and return its slots; its name is no longer known."""
        slots = self._known(sequence).slots
        del self._sequences[sequence]
        return slots

    def _add(self, slots: AnySlots) -> int:
        name = self._next_name
        self._next_name += 1
        self._sequences[name] = _Sequence(slots)
        return name

    def _known(self, sequence: int) -> _Sequence[AnySlots]:
        try:
            return self._sequences[sequence]
        except KeyError:
            raise EngineError(f"Sequence {sequence} is not open.") from None


class KeepsSlots:
    """What targets and heads that keep slots have in common: the care of their sequences."""

    _sequences: SlotSequences[Any]

    def length(self, sequence: int) -> int:
        """Return how many of the sequence's rows are committed."""
        return self._sequences.length(sequence)

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        """Keep the rows of the last pass on `path` (indices, first to last) and drop the others.

        Raises:
            EngineError: The rows are not a path from the sequence's committed end.
        """
        self._sequences.commit(sequence, path)

    def rollback(self, sequence: int, length: int) -> None:
        """Forget all but the first `length` committed rows, and what is pending."""
        self._sequences.rollback(sequence, length)

    def fork(self, sequence: int) -> int:
        """Return a new sequence with the same committed rows; neither sees the other's future."""
        return self._sequences.fork(sequence)

    def free(self, sequence: int) -> None:
        """Give the sequence's memory back; its name is no longer known."""
        self._sequences.free(sequence)
