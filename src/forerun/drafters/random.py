"""Guesses at random: the adversary that no output may notice."""

from __future__ import annotations

import numpy as np

from forerun.core.tree import Draft
from forerun.drafters.comb import Comb
from forerun.drafters.memory import Memoryless
from forerun.drafters.protocol import DraftRequest
from forerun.drafters.table import DrafterKit
from forerun.native import fast_noise

__all__ = ["Random"]

_SEED = 0x52414E444F4D  # its logits are noise of their own, never the text's


class Random(Memoryless):
    """Has a law that knows nothing: its logits are noise addressed by the position alone.

    Args:
        kit: The vocabulary's size.
    """

    name = "random"

    def __init__(self, kit: DrafterKit) -> None:
        self._vocab_size = kit.vocab_size
        self._noise = fast_noise(_SEED)

    def guess(self, request: DraftRequest) -> Draft:
        """Return a comb of the request's full length, as far as masks allow."""
        comb = Comb(request, self.name)
        while comb.grows:
            position = len(request.tokens) + len(comb.trunk)
            logits = self._noise.gumbel(position, self._vocab_size)
            comb.grow(logits.astype(np.float32))
        return comb.draft()
