"""Token recycling: the target's own last word on what follows a token, used again.

Every row that a pass scores, drafted in vain or not, names the tokens that the target found likely
after its token. Luo et al. (2024), "Turning trash into treasure: accelerating inference of large
language models with token recycling", keep them by that token and build the next draft from them.
Here their log-probabilities are kept too, so that at temperature above 0 guesses rank by log q + g;
and they are kept by the last two tokens besides, which says more where it has been seen.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.core.tree import ROOT, Draft
from forerun.core.warp import State
from forerun.drafters.comb import Comb
from forerun.drafters.grow import grow
from forerun.drafters.memory import Follower
from forerun.drafters.protocol import DraftRequest, Guess, Outcome
from forerun.drafters.ranked import Listed, Ranker
from forerun.drafters.table import DrafterKit
from forerun.native import fast_likeliest

__all__ = ["LISTED", "Recycle", "Row", "Rows"]

LISTED = 8  # successors kept of each row
_TRUST_ONE, _TRUST_TWO = 0.5, 0.8  # what a row is worth by how much of its context is the same


class Row:
    """What the target found likely in one place.

    Args:
        tokens: The likeliest, best first.
        logits: Theirs.
        rest: What all others weigh, as `Likeliest` has it.
        learned: How many tokens of the text had been written.
    """

    __slots__ = ("_law", "learned", "logits", "rest", "tokens")

    def __init__(
        self, tokens: Sequence[int], logits: Sequence[float], rest: float, learned: int
    ) -> None:
        self.tokens, self.logits, self.rest, self.learned = tokens, logits, rest, learned
        self._law: Listed | None = None

    def law(self, temperature: float) -> Listed:
        """Return the law; a text has one temperature."""
        if self._law is None:
            self._law = Listed.of_logits(self.tokens, self.logits, self.rest, temperature)
        return self._law


class Rows:
    """The last row of each token and of each pair of tokens, in one text."""

    def __init__(self) -> None:
        self.by_one: dict[int, Row] = {}
        self.by_two: dict[tuple[int, int], Row] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def push(self, token: int) -> None:
        """Go on: a token alone teaches nothing, only its row does."""
        self._length += 1

    def cut(self, length: int) -> None:
        """Forget all rows that were learned further on."""
        self._length = length
        self.by_one = {key: row for key, row in self.by_one.items() if row.learned <= length}
        self.by_two = {key: row for key, row in self.by_two.items() if row.learned <= length}

    def copy(self) -> Rows:
        """Return one that knows the same."""
        twin = Rows()
        twin.by_one, twin.by_two = self.by_one.copy(), self.by_two.copy()
        twin._length = self._length
        return twin

    def learn(self, before: int, token: int, row: Row) -> None:
        """Keep the row of `token`, which stood behind `before`."""
        self.by_one[token] = row
        self.by_two[before, token] = row

    def find(self, before: int, token: int) -> tuple[Row | None, float]:
        """Return what is known to follow, and how far it may be trusted."""
        row = self.by_two.get((before, token))
        if row is not None:
            return row, _TRUST_TWO
        return self.by_one.get(token), _TRUST_ONE


class _After:
    """The last two tokens of the text or a guess: what the target said after them."""

    __slots__ = ("_before", "_position", "_ranker", "_rows", "_state", "_token")

    def __init__(
        self, rows: Rows, ranker: Ranker, pair: tuple[int, int], position: int, state: State
    ) -> None:
        self._rows, self._ranker = rows, ranker
        self._before, self._token = pair
        self._position, self._state = position, state  # of the token to be guessed

    def guesses(self, most: int) -> Sequence[Guess]:
        row, trust = self._rows.find(self._before, self._token)
        if row is None:
            return ()
        ranker = self._ranker
        if ranker.warp is None:
            law = row.law(ranker.temperature)
        else:
            law = ranker.weighed(row.tokens, row.logits, row.rest, self._state, ranker.temperature)
        return ranker.guesses(law, self._position, most, trust)

    def after(self, token: int) -> _After:
        state = self._state if self._ranker.warp is None else self._state.advance(token)
        return _After(self._rows, self._ranker, (self._token, token), self._position + 1, state)


class Recycle(Follower[Rows]):
    """Its law after a token is what the target's last row for that token said.

    Args:
        kit: The vocabulary's size, and how many threads may look at rows.
    """

    name = "recycle"

    def __init__(self, kit: DrafterKit) -> None:
        super().__init__(Rows)
        self._vocab_size = kit.vocab_size
        self._threads = kit.threads

    def guess(self, memory: Rows, request: DraftRequest) -> Draft:
        """Return a comb that ends where no row is known."""
        if request.coins is None:
            return grow(self._place(memory, request), request)
        comb = Comb(request, self.name)
        before, token = _last_two(request.tokens)
        while comb.grows and (row := memory.find(before, token)[0]) is not None:
            depth = len(comb.trunk)
            comb.grow(self._logits(row))
            if len(comb.trunk) == depth:  # nothing is left that may be written
                break
            before, token = token, comb.trunk[-1]
        return comb.draft()

    def place(self, request: DraftRequest) -> _After:
        """Return what is known to follow the text's last two tokens."""
        return self._place(self._in_step(request.sequence, request.tokens), request)

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Keep what every scored row said, whatever became of its token."""
        super().observe(outcomes)
        for outcome in outcomes:
            self._learn(outcome)

    def _learn(self, outcome: Outcome) -> None:
        memory = self._memory(outcome.sequence)
        found = fast_likeliest(outcome.logits, LISTED, self._threads)
        learned = len(outcome.tokens) - outcome.emitted
        root = _last_two(outcome.tokens[max(learned - 2, 0) : learned])
        keys = [root]
        for node in outcome.draft.nodes:
            before = root[1] if node.parent == ROOT else outcome.draft.nodes[node.parent].token
            keys.append((before, node.token))
        rows = zip(
            keys, found.tokens.tolist(), found.logits.tolist(), found.rest.tolist(), strict=True
        )
        for (before, token), tokens, logits, rest in rows:
            if tokens[-1] < 0:  # fewer have a finite logit
                count = tokens.index(-1)
                tokens, logits = tokens[:count], logits[:count]
            memory.learn(before, token, Row(tokens, logits, rest, learned))

    def _place(self, memory: Rows, request: DraftRequest) -> _After:
        ranker = Ranker(request, self.name)
        pair = _last_two(request.tokens)
        return _After(memory, ranker, pair, len(request.tokens), request.state)

    def _logits(self, row: Row) -> NDArray[np.float32]:
        logits = np.full(self._vocab_size, -np.inf, dtype=np.float32)
        logits[list(row.tokens)] = row.logits
        return logits


def _last_two(tokens: Sequence[int]) -> tuple[int, int]:
    """Return the last two tokens, -1 where there are none."""
    last = (-1, -1, *tokens[-2:])
    return last[-2], last[-1]
