"""Token recycling: the target's own last word on what follows a token, used again.

Every row that a pass scores, drafted in vain or not, names the tokens that the target found likely
after its token. Luo et al. (2024), "Turning trash into treasure: accelerating inference of large
language models with token recycling", keep them by that token and build the next draft from them.
Here their log-probabilities are kept too, so that at temperature above 0 guesses rank by log q + g;
and they are kept by the last two tokens besides, which says more where it has been seen. What a
text has taught is used again in later texts of the same tenant.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from forerun.core.tree import ROOT, Draft
from forerun.core.warp import State
from forerun.drafters.comb import Comb
from forerun.drafters.grow import grow
from forerun.drafters.memory import Leaving
from forerun.drafters.protocol import DraftRequest, Guess, Outcome
from forerun.drafters.ranked import Listed, Ranker
from forerun.drafters.table import DrafterKit
from forerun.native import fast_likeliest

__all__ = ["LISTED", "TENANTS", "Recycle", "Row", "Rows"]

LISTED = 8  # successors kept of each row
TENANTS = 8  # tenants whose rows are kept between texts, those that wrote last
_TOKENS_A_ROW = 128  # of the store's bound; a row takes about as much memory as these
# What a row is worth by where it was seen, and how much of its context is the same.
_TRUST_TWO, _TRUST_ONE = 0.8, 0.5
_TRUST_OTHERS_TWO, _TRUST_OTHERS_ONE = 0.6, 0.3

K = TypeVar("K")


class Row:
    """What the target found likely in one place.

    Args:
        tokens: The likeliest, best first.
        logits: Theirs.
        rest: What all others weigh, as `Likeliest` has it.
        learned: How many tokens of the text had been written.
    """

    __slots__ = ("_at", "_law", "learned", "logits", "rest", "tokens")

    def __init__(
        self, tokens: Sequence[int], logits: Sequence[float], rest: float, learned: int
    ) -> None:
        self.tokens, self.logits, self.rest, self.learned = tokens, logits, rest, learned
        self._law: Listed | None = None
        self._at = 0.0

    def law(self, temperature: float) -> Listed:
        """Return the law at a temperature, kept as long as that is asked for."""
        if self._law is None or self._at != temperature:
            self._law = Listed.of_logits(self.tokens, self.logits, self.rest, temperature)
            self._at = temperature
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

    def add(self, newer: Rows, most: int) -> None:
        """Keep another text's rows, and of all the `most` that were learned last."""
        _renew(self.by_one, newer.by_one, most)
        _renew(self.by_two, newer.by_two, most)


def _renew(rows: dict[K, Row], newer: dict[K, Row], most: int) -> None:
    for key, row in newer.items():
        rows.pop(key, None)  # a dict keeps the order of first insertion
        rows[key] = row
    for key in list(rows)[: max(len(rows) - most, 0)]:
        del rows[key]


def _find(rows: Rows, others: Rows | None, before: int, token: int) -> tuple[Row | None, float]:
    """Return what is known to follow two tokens, in the text or in others; and its worth."""
    row = rows.by_two.get((before, token))
    if row is not None:
        return row, _TRUST_TWO
    if others is not None and (row := others.by_two.get((before, token))) is not None:
        return row, _TRUST_OTHERS_TWO
    row = rows.by_one.get(token)
    if row is not None or others is None:
        return row, _TRUST_ONE
    return others.by_one.get(token), _TRUST_OTHERS_ONE


class _After:
    """The last two tokens of the text or a guess: what the target said after them."""

    __slots__ = ("_before", "_position", "_ranker", "_sources", "_state", "_token")

    def __init__(
        self,
        sources: tuple[Rows, Rows | None],
        ranker: Ranker,
        pair: tuple[int, int],
        position: int,
        state: State,
    ) -> None:
        self._sources, self._ranker = sources, ranker
        self._before, self._token = pair
        self._position, self._state = position, state  # of the token to be guessed

    def guesses(self, most: int) -> Sequence[Guess]:
        row, trust = _find(*self._sources, self._before, self._token)
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
        pair = self._token, token
        return _After(self._sources, self._ranker, pair, self._position + 1, state)


class Recycle(Leaving[Rows]):
    """Its law after a token is what the target's last row for that token said.

    A text's rows become its tenant's when it is freed. Under rules that draw coins those are not
    asked: a seed would then give another text after other texts.

    Args:
        kit: The vocabulary's size, how many threads may look at rows, and whether there is a
            store: without one nothing outlives a text.
    """

    name = "recycle"

    def __init__(self, kit: DrafterKit) -> None:
        super().__init__(Rows)
        self._vocab_size = kit.vocab_size
        self._threads = kit.threads
        self._most = 0 if kit.store is None else kit.store.most // _TOKENS_A_ROW
        self._shared: OrderedDict[str, Rows] = OrderedDict()

    def guess(self, memory: Rows, request: DraftRequest) -> Draft:
        """Return a comb that ends where no row is known."""
        if request.coins is None:
            return grow(self._place(memory, request), request)
        self.owned(request)
        comb = Comb(request, self.name)
        before, token = _last_two(request.tokens)
        while comb.grows and (row := _find(memory, None, before, token)[0]) is not None:
            depth = len(comb.trunk)
            comb.grow(self._logits(row))
            if len(comb.trunk) == depth:  # nothing is left that may be written
                break
            before, token = token, comb.trunk[-1]
        return comb.draft()

    def place(self, request: DraftRequest) -> _After:
        """Return what is known to follow the text's last two tokens."""
        return self._place(self._in_step(request.sequence, request.tokens), request)

    def leave(self, tenant: str, memory: Rows) -> None:
        """Keep the text's rows; of tenants, those that wrote last are kept."""
        if not self._most:
            return
        self._shared.setdefault(tenant, Rows()).add(memory, self._most)
        self._shared.move_to_end(tenant)
        if len(self._shared) > TENANTS:
            self._shared.popitem(last=False)

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Keep what every scored row said, whatever became of its token."""
        super().observe(outcomes)
        for outcome in outcomes:
            self._learn(outcome)

    def _learn(self, outcome: Outcome) -> None:
        memory = self._memories[outcome.sequence]
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
        self.owned(request)
        others = None if request.noise is None else self._shared.get(request.tenant)
        ranker = Ranker(request, self.name)
        pair = _last_two(request.tokens)
        return _After((memory, others), ranker, pair, len(request.tokens), request.state)

    def _logits(self, row: Row) -> NDArray[np.float32]:
        logits = np.full(self._vocab_size, -np.inf, dtype=np.float32)
        logits[list(row.tokens)] = row.logits
        return logits


def _last_two(tokens: Sequence[int]) -> tuple[int, int]:
    """Return the last two tokens, -1 where there are none."""
    last = (-1, -1, *tokens[-2:])
    return last[-2], last[-1]
