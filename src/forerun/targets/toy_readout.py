"""A readout for toys: guesses by arithmetic of small whole numbers, exact in any order.

Every number it gives depends on the whole hidden state, so a drafter that shows it another token's
guesses otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.targets.toy import HIDDEN, ToyTarget

__all__ = ["ToyReadout"]

Array = NDArray[np.float32]
_STEPS = 32.0 * 4.0**3  # a toy's codes are multiples of one over this, where it has few layers


class ToyReadout:
    """Guesses what a toy may write.

    Args:
        toy: The target.
        tokens: The draft vocabulary, ascending; None is all.
        layer: Of the toy's, whose hidden states it reads.
        guesses: How many tokens it guesses from one.
    """

    def __init__(
        self,
        toy: ToyTarget,
        tokens: Sequence[int] | None = None,
        layer: int = 1,
        guesses: int = 3,
    ) -> None:
        named = range(toy.vocab_size) if tokens is None else tokens
        self.tokens = np.array(named, dtype=np.int64)
        self.layer, self.guesses = layer, guesses

    def read(self, hidden: Array) -> Array:
        """Return what may follow, float32 [rows, guesses, draft vocabulary]."""
        known = np.rint(hidden.astype(np.float64) * _STEPS).astype(np.int64)
        summed = (known * np.arange(1, HIDDEN + 1)).sum(axis=1)[:, None, None]
        places = np.arange(1, self.guesses + 1)[:, None]
        mixed = (summed * places + 7 * (self.tokens + 1) * (summed % 5 + places)) % 23
        made: Array = (mixed / 8.0).astype(np.float32)
        return made
