"""Counts which token followed which in this text, and guesses that it will again.

The cheapest drafter with a law (Leviathan et al., 2023, section 3.6), learned online from the
prompt and the output of the text itself. At temperature above 0 its guesses rank by log q + g;
its counts are of a text written at that temperature, and stand for the law after it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.core.tree import Draft
from forerun.core.warp import State
from forerun.drafters.comb import Comb
from forerun.drafters.grow import grow
from forerun.drafters.memory import Follower
from forerun.drafters.protocol import DraftRequest, Guess
from forerun.drafters.ranked import Listed, Ranker
from forerun.drafters.table import DrafterKit

__all__ = ["LISTED", "Bigram", "Successors"]

LISTED = 16  # the most frequent successors that a guess looks at


class Successors:
    """How often each token followed each other one in one text."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._counts: dict[int, Counter[int]] = {}
        self._laws: dict[int, Listed] = {}

    def __len__(self) -> int:
        return len(self._tokens)

    def push(self, token: int) -> None:
        """Count one more pair."""
        if self._tokens:
            last = self._tokens[-1]
            counts = self._counts.get(last)
            if counts is None:
                counts = self._counts[last] = Counter()
            counts[token] += 1
            self._laws.pop(last, None)
        self._tokens.append(token)

    def cut(self, length: int) -> None:
        """Take the last pairs back."""
        self._laws.clear()
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

    def law(self, token: int) -> Listed | None:
        """Return the law of what follows `token`; None if nothing ever did.

        What has not been seen yet has as many counts as different tokens have been seen (Witten,
        Bell, 1991, method C).
        """
        law = self._laws.get(token)
        if law is None and (counts := self._counts.get(token)):
            # Of equals the one that began to follow last: text moves on.
            latest = list(counts.items())[::-1]
            ranked = sorted(latest, key=_by_count)[:LISTED]
            whole = counts.total() + len(counts)
            q = [count / whole for _, count in ranked]
            tokens, log_q = [next_ for next_, _ in ranked], list(map(math.log, q))
            law = self._laws[token] = Listed(tokens, q, log_q, 1.0 - sum(q))
        return law


def _by_count(pair: tuple[int, int]) -> int:
    return -pair[1]


class _After:
    """A token, wherever it stands: what followed it."""

    __slots__ = ("_memory", "_position", "_ranker", "_state", "_token")

    def __init__(
        self, memory: Successors, ranker: Ranker, token: int, position: int, state: State
    ) -> None:
        self._memory, self._ranker, self._token = memory, ranker, token
        self._position, self._state = position, state  # of the token to be guessed

    def guesses(self, most: int) -> Sequence[Guess]:
        law = self._memory.law(self._token)
        if law is None:
            return ()
        if self._ranker.warp is not None:
            rest = law.rest / law.q[0]
            law = self._ranker.weighed(law.tokens, law.log_q, rest, self._state, 1.0)
        return self._ranker.guesses(law, self._position, most)

    def after(self, token: int) -> _After:
        state = self._state if self._ranker.warp is None else self._state.advance(token)
        return _After(self._memory, self._ranker, token, self._position + 1, state)


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
        if request.coins is None:
            return grow(self._place(memory, request), request) if request.tokens else Draft()
        comb = Comb(request, self.name)
        last = request.tokens[-1] if request.tokens else None
        while comb.grows and last is not None and (counts := memory.after(last)):
            before = len(comb.trunk)
            comb.grow(self._logits(counts))
            last = comb.trunk[-1] if len(comb.trunk) > before else None
        return comb.draft()

    def place(self, request: DraftRequest) -> _After:
        """Return what follows the text's last token."""
        return self._place(self._in_step(request.sequence, request.tokens), request)

    def _place(self, memory: Successors, request: DraftRequest) -> _After:
        last = request.tokens[-1] if request.tokens else -1
        ranker = Ranker(request, self.name)
        return _After(memory, ranker, last, len(request.tokens), request.state)

    def _logits(self, counts: Counter[int]) -> NDArray[np.float32]:
        logits = np.full(self._vocab_size, -np.inf, dtype=np.float32)
        for token, count in counts.items():
            logits[token] = math.log(count)
        return logits
