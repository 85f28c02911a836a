"""Cosines and sines of every position, computed once in blocks that never depend on the pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.models.architecture import Rope

__all__ = ["RotaryTable"]

_BLOCK = 256


class RotaryTable:
    """Turning angles by position; computed in float64, kept in float32.

    Args:
        rope: Pairs and their frequencies.
    """

    def __init__(self, rope: Rope) -> None:
        self._frequencies = rope.frequencies()
        empty = np.empty((0, len(self._frequencies)), dtype=np.float32)
        self._cosines, self._sines = empty, empty

    def __call__(self, positions: Sequence[int]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return cosines and sines, float32 [len(positions), pairs]."""
        cosines, sines = self.through(max(positions, default=-1))
        index = np.asarray(positions, dtype=np.intp)
        return cosines[index], sines[index]

    def through(self, last: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return those of all positions from 0 to `last`, and of some more: float32 [n, pairs]."""
        while last >= len(self._cosines):
            start = len(self._cosines)
            angles = np.outer(np.arange(start, start + _BLOCK), self._frequencies)
            self._cosines = np.concatenate([self._cosines, np.cos(angles).astype(np.float32)])
            self._sines = np.concatenate([self._sines, np.sin(angles).astype(np.float32)])
        return self._cosines, self._sines
