"""A learned exit guesses: the target's first layers, and a small adapter behind them.

It is of the kind of Kangaroo's (Liu et al. 2024), but for what the adapter is.

The first layers are the target's own, over its own keys and values: nothing of a text is read
twice, and there is no second cache. The adapter is a feed-forward without attention, for the layers
below it have attended already: so it remembers nothing, and rolls nothing back.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.core.tree import Draft
from forerun.core.warp import State
from forerun.drafters.asking_price import AskingPrice
from forerun.drafters.comb import Comb, grow_together
from forerun.drafters.head_ranks import HeadRanks
from forerun.drafters.memory import Memoryless
from forerun.drafters.protocol import NOWHERE, DraftRequest, Guess, Outcome, Place
from forerun.drafters.table import DrafterKit
from forerun.errors import CapabilityError, EngineError
from forerun.models.head_shapes import EXIT
from forerun.targets.protocol import Row

__all__ = ["Exit"]

Array = NDArray[np.float32]

_LISTED = 4  # guesses that are ranked at once


class Exit(Memoryless):
    """Drafts with the target's first layers and an adapter, all texts in one pass a level.

    Args:
        kit: The target, and the adapter.

    Raises:
        CapabilityError: The target's passes are whole.
        OptionError: There is no adapter.
        StartError: Its file can't be read, or it was learned from another target.
    """

    name = "exit"

    def __init__(self, kit: DrafterKit) -> None:
        if kit.target is None or kit.target.capabilities.layers == 0:
            raise CapabilityError(
                "Drafter 'exit' runs the target's first layers alone, and this target's passes "
                "are whole.",
                "Choose another drafter.",
            )
        self._target, self._adapter = kit.target, kit.open_readout(EXIT)
        self._vocab_size = kit.vocab_size
        self._tokens = np.ascontiguousarray(self._adapter.tokens, dtype=np.uint32)
        self._price = AskingPrice()

    @property
    def price(self) -> float:
        """Seconds that one more place takes, as it was of late."""
        return self._price.seconds

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Reckon what asking took; of the texts nothing is to be kept."""
        self._price.end_round()

    def place(self, request: DraftRequest) -> Place:
        """Return the root's place; nothing is scored before it is asked."""
        if not 0 < len(request.tokens) <= self._target.context_length:
            return NOWHERE
        ranks = HeadRanks(request, self._tokens, self.name)
        return _ExitPlace(self, request, ranks, (), request.state)

    def guess(self, request: DraftRequest) -> Draft:
        """Return a draft for one text."""
        return self.draft([request])[0]

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Grow all drafts together, a level a pass."""
        combs = [Comb(request, self.name) for request in requests]
        return grow_together(combs, self._target.context_length, self._level)

    def ask(self, request: DraftRequest, path: Sequence[int]) -> Array | None:
        """Return what may follow some guesses, float32 [draft vocabulary]; None without room."""
        if len(request.tokens) + len(path) > self._target.context_length:
            return None
        begun = time.perf_counter()
        logits: Array = self._read([(request, path)])[0]
        self._price.count(time.perf_counter() - begun)
        return logits

    def _level(self, combs: Sequence[Comb]) -> Array:
        """Return what is read at each comb's tip, float32 [combs, vocabulary]."""
        logits = np.full((len(combs), self._vocab_size), -np.inf, dtype=np.float32)
        logits[:, self._tokens] = self._read([(comb.request, comb.trunk) for comb in combs])
        return logits

    def _read(self, texts: Sequence[tuple[DraftRequest, Sequence[int]]]) -> Array:
        """Return what may follow each text and its guesses, float32 [texts, draft vocabulary].

        Each pass scores the guesses anew, from the root on: rows of such a pass can't be kept, and
        a few of them cost about what one does.
        """
        rows: list[Row] = []
        tips: list[int] = []
        for request, path in texts:
            if request.target_sequence is None:
                raise EngineError(f"Text {request.sequence} is in no target, to be left early.")
            root = len(request.tokens) - 1
            for depth, token in enumerate((request.tokens[root], *path)):
                parent = -1 if depth == 0 else len(rows) - 1
                rows.append(Row(request.target_sequence, token, root + depth, parent))
            tips.append(len(rows) - 1)
        layer = self._adapter.layer
        # Of a pass that ends before the first layer there is nothing but the embedding.
        scores = self._target.score(rows, logits=(), layers=(layer,), until=max(layer, 1))
        read: Array = self._adapter.read(scores.hidden[layer][tips])[:, 0]
        return read


class _ExitPlace:
    """A place behind a root, as it is asked about."""

    __slots__ = (
        "_exit",
        "_guesses",
        "_is_exhausted",
        "_logits",
        "_path",
        "_ranks",
        "_request",
        "_state",
    )

    def __init__(
        self,
        exit_: Exit,
        request: DraftRequest,
        ranks: HeadRanks,
        path: tuple[int, ...],
        state: State,
    ) -> None:
        self._exit, self._request, self._ranks = exit_, request, ranks
        self._path, self._state = path, state
        self._logits: Array | None = None
        self._guesses: list[Guess] = []
        self._is_exhausted = False

    @property
    def parts(self) -> tuple[Place, Place]:
        return NOWHERE, self

    def guesses(self, most: int) -> Sequence[Guess]:
        if len(self._guesses) < most and not self._is_exhausted:
            if self._logits is None:
                self._logits = self._exit.ask(self._request, self._path)
            if self._logits is None:
                self._is_exhausted = True
                return ()
            count = max(most, _LISTED)
            position = len(self._request.tokens) + len(self._path)
            self._guesses = self._ranks.guesses(self._logits, position, self._state, count)
            self._is_exhausted = len(self._guesses) < count
        return self._guesses[:most]

    def after(self, token: int) -> _ExitPlace:
        state = self._state if self._request.warp.is_plain else self._state.advance(token)
        path = (*self._path, token)
        return _ExitPlace(self._exit, self._request, self._ranks, path, state)
