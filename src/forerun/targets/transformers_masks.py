"""Who sees whom in a pass: masks by position, from the ancestors of each row.

The keys of a sequence lie by position, its pending rows after its committed end in the order in
which they came. A row sees the committed tokens, its ancestors and itself; in a layer with a window
or with chunks, those that are near enough by position, wherever they lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Family", "depths_of", "visible"]


class Family(NamedTuple):
    """The rows of one sequence.

    Attributes:
        length: Committed tokens.
        parents: Of each row: an earlier row's index, or -1 for the committed end.
    """

    length: int
    parents: Sequence[int]


def depths_of(parents: Sequence[int]) -> NDArray[np.int64]:
    """Return how far each row stands after the committed end; 0 is right after it."""
    depths: list[int] = []
    for parent in parents:
        depths.append(0 if parent < 0 else depths[parent] + 1)
    return np.array(depths, dtype=np.int64)


def visible(
    families: Sequence[Family], rows: int, keys: int, *, window: int = 0, chunk: int = 0
) -> NDArray[np.bool_]:
    """Return which keys each row sees, bool [sequences, rows, keys].

    Rows that fill a sequence up to `rows` see its first key, lest they see nothing.

    Args:
        families: The rows of each sequence.
        rows: Most rows of a sequence.
        keys: Most committed tokens and rows of a sequence.
        window: A row sees so many positions, its own included; 0 is all.
        chunk: A row sees positions of its own chunk of so many; 0 is all.
    """
    seen = np.zeros((len(families), rows, keys), dtype=np.bool_)
    for mask, (length, parents) in zip(seen, families, strict=True):
        count = len(parents)
        mask[count:, 0] = True
        own, depths = mask[:count], depths_of(parents) + length
        own[:, :length] = True
        own[:, length : length + count] = _ancestry(parents)
        positions = np.concatenate([np.arange(length), depths])
        near = own[:, : length + count]
        if window:
            near &= depths[:, None] - positions < window
        if chunk:
            near &= depths[:, None] // chunk == positions // chunk
    return seen


def _ancestry(parents: Sequence[int]) -> NDArray[np.bool_]:
    """Return which rows are ancestors of each row, itself included, bool [rows, rows]."""
    count = len(parents)
    if all(parent == row - 1 for row, parent in enumerate(parents)):
        return np.tri(count, dtype=np.bool_)
    above = np.eye(count, dtype=np.bool_)
    for row, parent in enumerate(parents):
        if parent >= 0:
            above[row] |= above[parent]
    return above
