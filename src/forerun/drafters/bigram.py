"""Counts which token followed which in this text, and guesses that it will again.

The cheapest drafter with a law (Leviathan et al., 2023, section 3.6), learned online from the
prompt and the output of the text itself.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from forerun.core.tree import Draft
from forerun.drafters.comb import Comb
from forerun.drafters.memory import Follower
from forerun.drafters.protocol import DraftRequest
from forerun.drafters.table import DrafterKit

__all__ = ["Bigram", "Successors"]


class Successors:
    """How often each token followed each other one in one text."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._counts: dict[int, Counter[int]] = {}

    def __len__(self) -> int:
        return len(self._tokens)

    def push(self, token: int) -> None:
        """Count one more pair."""
        if self._tokens:
            self._counts.setdefault(self._tokens[-1], Counter())[token] += 1
        self._tokens.append(token)

    def cut(self, length: int) -> None:
        """Take the last pairs back."""
        while len(self._tokens) > length:
            token = self._tokens.pop()
            if self._tokens:
                counts = self._counts[self._tokens[-1]]
                counts[token] -= 1
                if not counts[token]:
                    del counts[token]
                if not counts:
                    del self._counts[self._tokens[-1]]

    def copy(self) -> Successors:
        """Return one that knows the same."""
        twin = Successors()
        twin._tokens = self._tokens.copy()
        twin._counts = {token: counts.copy() for token, counts in self._counts.items()}
        return twin

    def after(self, token: int) -> Counter[int]:
        """Return how often each token followed `token`; do not write to it."""
        return self._counts.get(token, Counter())


class Bigram(Follower[Successors]):
    """Its law after a token is how often each other one followed it in the text so far.

    Args:
        kit: The vocabulary's size.
    """

    name = "bigram"

    def __init__(self, kit: DrafterKit) -> None:
        super().__init__(Successors)
        self._vocab_size = kit.vocab_size

    def guess(self, memory: Successors, request: DraftRequest) -> Draft:
        """Return a comb that ends where a token has no follower yet."""
        comb = Comb(request, self.name)
        last = request.tokens[-1] if request.tokens else None
        while comb.grows and last is not None and (counts := memory.after(last)):
            before = len(comb.trunk)
            comb.grow(self._logits(counts))
            last = comb.trunk[-1] if len(comb.trunk) > before else None
        return comb.draft()

    def _logits(self, counts: Counter[int]) -> NDArray[np.float32]:
        logits = np.full(self._vocab_size, -np.inf, dtype=np.float32)
        for token, count in counts.items():
            logits[token] = np.log(np.float32(count))
        return logits
