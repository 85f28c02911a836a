"""Keys and values of one sequence: a slot for each position, and the rows of the last pass beside.

A pass's rows are kept beside the slots until `commit`. To score a row, its ancestors are copied
into the slots after the committed end, so that its context is always the plain slice of the first
position + 1 slots: the same memory layout whether it came by prefill, chain, tree or alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forerun.errors import EngineError

__all__ = ["KVSlots"]

Array = NDArray[np.float32]
_FIRST_CAPACITY = 64


class _Move(NamedTuple):
    """What to copy into the slots before a row is scored.

    Attributes:
        depth: The row's depth; 0 stands right after the committed end.
        start: Depth of the first row to copy.
        path: The rows to copy, each the parent of the next.
    """

    depth: int
    start: int
    path: NDArray[np.intp]


class KVSlots:
    """One sequence's keys and values in all layers.

    Args:
        layers: Number of layers.
        kv_heads: Key and value heads of a layer.
        head_dim: Components of a head.
    """

    def __init__(self, layers: int, kv_heads: int, head_dim: int) -> None:
        self._shape = layers, kv_heads, head_dim
        self._keys, self._values = self._empty(0), self._empty(0)
        self._length = 0
        self._parents: tuple[int, ...] = ()
        self._moves: list[_Move] = []
        self._pending_keys, self._pending_values = self._empty(0), self._empty(0)

    @property
    def length(self) -> int:
        """Committed tokens."""
        return self._length

    @property
    def nbytes(self) -> int:
        """Bytes of the slots."""
        return self._keys.nbytes + self._values.nbytes

    def begin(self, parents: Sequence[int]) -> None:
        """Start a pass with these rows; the last pass's are dropped.

        Args:
            parents: Of each row: an earlier row's index, or -1 for the committed end.
        """
        self._parents = tuple(parents)
        self._moves, deepest = _plan_moves(self._parents)
        self._pending_keys = self._empty(len(parents))
        self._pending_values = self._empty(len(parents))
        self._reserve(self._length + deepest)

    def put(self, layer: int, keys: Array, values: Array) -> None:
        """Store the rows' keys and values of a layer, float32 [rows, kv_heads, head_dim]."""
        self._pending_keys[layer] = keys.transpose(1, 0, 2)
        self._pending_values[layer] = values.transpose(1, 0, 2)

    def context(self, layer: int, row: int) -> tuple[Array, Array]:
        """Return keys and values that a row sees: committed tokens, its ancestors and itself.

        In each layer rows must be asked for in order: what one moves into place, the next use.

        Returns:
            Views, float32 [kv_heads, position + 1, head_dim]; valid until the next call.
        """
        keys, values = self._keys[layer], self._values[layer]
        depth, start, path = self._moves[row]
        if len(path):
            first = self._length + start
            keys[:, first : first + len(path)] = self._pending_keys[layer][:, path]
            values[:, first : first + len(path)] = self._pending_values[layer][:, path]
        end = self._length + depth + 1
        return keys[:, :end], values[:, :end]

    def commit(self, path: Sequence[int]) -> None:
        """Keep these rows of the last pass, first to last, and drop the others.

        Raises:
            EngineError: They are not a path from the committed end.
        """
        before = -1
        for row in path:
            if not 0 <= row < len(self._parents) or self._parents[row] != before:
                raise EngineError(f"Rows {list(path)} are no path from the committed end.")
            before = row
        end = self._length + len(path)
        index = np.asarray(path, dtype=np.intp)
        self._keys[:, :, self._length : end] = self._pending_keys[:, :, index]
        self._values[:, :, self._length : end] = self._pending_values[:, :, index]
        self._length = end
        self._drop()

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` committed tokens.

        Raises:
            EngineError: There are not so many.
        """
        if not 0 <= length <= self._length:
            raise EngineError(f"Rollback to {length} of {self._length} tokens.")
        self._length = length
        self._drop()

    def fork(self) -> KVSlots:
        """Return a copy of the committed part."""
        other = KVSlots(*self._shape)
        other._reserve(self._length)
        other._keys[:, :, : self._length] = self._keys[:, :, : self._length]
        other._values[:, :, : self._length] = self._values[:, :, : self._length]
        other._length = self._length
        return other

    def _drop(self) -> None:
        self._parents, self._moves = (), []
        self._pending_keys, self._pending_values = self._empty(0), self._empty(0)

    def _empty(self, slots: int) -> Array:
        layers, kv_heads, head_dim = self._shape
        return np.empty((layers, kv_heads, slots, head_dim), dtype=np.float32)

    def _reserve(self, slots: int) -> None:
        capacity = self._keys.shape[2]
        if slots <= capacity:
            return
        capacity = max(slots, 2 * capacity, _FIRST_CAPACITY)
        for name in ("_keys", "_values"):
            grown = self._empty(capacity)
            grown[:, :, : self._length] = getattr(self, name)[:, :, : self._length]
            setattr(self, name, grown)


def _plan_moves(parents: Sequence[int]) -> tuple[list[_Move], int]:
    """Plan which rows to copy into the slots before each row is scored, in order.

    A row's path is moved together with its line of first children, which come next in a chain: a
    chain of any length is one move.

    Returns:
        Each row's move, and how many slots the deepest path needs.
    """
    depths: list[int] = []
    first_child: dict[int, int] = {}
    for row, parent in enumerate(parents):
        depths.append(0 if parent < 0 else depths[parent] + 1)
        first_child.setdefault(parent, row)
    nothing = np.empty(0, dtype=np.intp)
    moves: list[_Move] = []
    in_place: list[int] = []
    for row, depth in enumerate(depths):
        if depth < len(in_place) and in_place[depth] == row:
            moves.append(_Move(depth, 0, nothing))
            continue
        path, above = [row], parents[row]
        # A row's path is unique: all above a row that is in place is in place.
        while above >= 0 and in_place[depths[above] : depths[above] + 1] != [above]:
            path.append(above)
            above = parents[above]
        path.reverse()
        start = depths[path[0]]
        while path[-1] in first_child:
            path.append(first_child[path[-1]])
        in_place[start:] = path
        moves.append(_Move(depth, start, np.asarray(path, dtype=np.intp)))
    return moves, max(depths, default=-1) + 1
