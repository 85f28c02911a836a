"""Parallel heads guess several tokens from one hidden state (Medusa: Cai et al., 2024).

Head k guesses the k-th token from here, whatever the guesses before it are: so one product gives a
whole draft, in any shape, and the heads know neither the last token nor each other's guesses.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.core.proposal import Point
from forerun.core.tree import Draft
from forerun.core.warp import State
from forerun.drafters.asking_price import AskingPrice
from forerun.drafters.comb import Comb
from forerun.drafters.head_ranks import HeadRanks
from forerun.drafters.last_states import LastStates
from forerun.drafters.memory import Followed
from forerun.drafters.protocol import NOWHERE, DraftRequest, Guess, Outcome, Place
from forerun.drafters.table import DrafterKit
from forerun.models.head_shapes import MEDUSA

__all__ = ["Medusa"]

Array = NDArray[np.float32]

_LISTED = 4  # guesses that are ranked at once


class Medusa:
    """Drafts with parallel heads; all texts that wait are read in one product.

    Args:
        kit: Opens the heads.

    Raises:
        OptionError: There are none.
        StartError: Their file can't be read, or they were learned from another target.
    """

    name = "medusa"

    def __init__(self, kit: DrafterKit) -> None:
        self._heads = kit.open_readout(MEDUSA)
        self._vocab_size = kit.vocab_size
        self._tokens = np.ascontiguousarray(self._heads.tokens, dtype=np.uint32)
        self._texts = Followed[LastStates](self.name)
        self._unread: dict[int, _Root] = {}  # each text's last root, while nobody asked it
        self._price = AskingPrice()

    @property
    def layers(self) -> tuple[int, ...]:
        """Whose hidden states the heads read: the last."""
        return (self._heads.layer,)

    @property
    def price(self) -> float:
        """Seconds that one more place takes, as it was of late."""
        return self._price.seconds

    def open(self, sequence: int, tokens: Sequence[int]) -> None:
        """Follow a new text; its prompt's states are still to be shown."""
        self._texts.add(sequence, LastStates)

    def see(self, sequence: int, start: int, hidden: Mapping[int, Array]) -> None:
        """Read a part of the prompt."""
        self._texts[sequence].show(start, hidden[self._heads.layer], slice(None))

    def fork(self, sequence: int, new: int) -> None:
        """Follow text `new`, which has been `sequence` until now."""
        self._texts.add(new, self._texts[sequence].fork)

    def rollback(self, sequence: int, length: int) -> None:
        """Forget all but the first `length` tokens of the text."""
        self._unread.pop(sequence, None)
        self._texts[sequence].cut(length)

    def free(self, sequence: int) -> None:
        """Stop following the text."""
        self._texts.leave(sequence)
        self._unread.pop(sequence, None)

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Take the true states of the texts' new tokens."""
        for outcome in outcomes:
            text, states = self._texts[outcome.sequence], outcome.hidden.get(self._heads.layer)
            if states is not None:
                kept = outcome.accepted[: outcome.emitted - 1]
                root = len(outcome.tokens) - outcome.emitted - 1
                text.show(root, states, [0, *[1 + node for node in kept]])
            self._unread.pop(outcome.sequence, None)
        self._price.end_round()

    def place(self, request: DraftRequest) -> Place:
        """Return the root's place; nothing is read before it is asked."""
        root = self._root(request)
        return NOWHERE if root is None else _MedusaPlace(self, root, 0, request.state)

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Grow all drafts together."""
        roots = [self._root(request) for request in requests]
        self._read()
        drafts = []
        for request, root in zip(requests, roots, strict=True):
            comb, state = Comb(request, self.name), request.state
            while comb.grows and root is not None:
                level = len(comb.trunk)
                self._grow(comb, root, state)
                if len(comb.trunk) > level:
                    state = root.after(state, comb.trunk[-1])
            drafts.append(comb.draft())
        return drafts

    def ask(self, root: _Root, depth: int, state: State, most: int) -> Sequence[Guess]:
        """Return what may stand so many tokens behind a root."""
        begun = time.perf_counter()
        if root.logits is None:
            self._read()
        guesses = root.guesses(depth, state, most)
        self._price.count(time.perf_counter() - begun)
        return guesses

    @property
    def reach(self) -> int:
        """How many tokens in a row there are guesses for."""
        return self._heads.guesses

    def _read(self) -> None:
        """Read all states that may be asked for in this round."""
        roots = list(self._unread.values())
        self._unread.clear()
        if roots:
            read = self._heads.read(np.stack([root.state for root in roots]))
            for root, logits in zip(roots, read, strict=True):
                root.logits = logits

    def _grow(self, comb: Comb, root: _Root, state: State) -> None:
        """Add a level to a comb."""
        request, depth = comb.request, len(comb.trunk)
        if depth >= self.reach:
            comb.add(())
        elif request.coins is None:
            guesses = root.guesses(depth, state, request.width)
            comb.add([(guess.token, Point(guess.token)) for guess in guesses])
        else:
            assert root.logits is not None, "read just now"
            logits = np.full(self._vocab_size, -np.inf, dtype=np.float32)
            logits[self._tokens] = root.logits[depth]
            comb.grow(logits)

    def _root(self, request: DraftRequest) -> _Root | None:
        """Return a text's root, if the state before it was shown."""
        text = self._texts[request.sequence]
        self._unread.pop(request.sequence, None)
        state = text.at(len(request.tokens) - 2)
        if state is None:
            return None
        root = _Root(request, state, HeadRanks(request, self._tokens, self.name))
        self._unread[request.sequence] = root
        return root


class _Root:
    """Where a text stands, and what the heads guess behind it.

    Args:
        request: The text's.
        state: The target's, at the token before the root, float32 [width].
        ranks: Turns logits into guesses.

    Attributes:
        state: The same.
        logits: float32 [guesses, draft vocabulary]; None until they were read.
    """

    __slots__ = ("_known", "_length", "_ranks", "_warp", "logits", "state")

    def __init__(self, request: DraftRequest, state: Array, ranks: HeadRanks) -> None:
        self.state = state
        self.logits: Array | None = None
        self._ranks, self._length = ranks, len(request.tokens)
        self._warp = None if request.warp.is_plain else request.warp
        self._known: dict[int, list[Guess]] = {}  # by depth, where all places there are one

    def after(self, state: State, token: int) -> State:
        """Return the warp's state a token further, as far as guesses depend on it."""
        return state if self._warp is None else state.advance(token)

    def guesses(self, depth: int, state: State, most: int) -> Sequence[Guess]:
        """Return the best guesses for the token behind `depth` others."""
        assert self.logits is not None, "read before"
        known = self._known.get(depth, [])
        if len(known) < most:
            count = max(most, _LISTED)
            known = self._ranks.guesses(self.logits[depth], self._length + depth, state, count)
            if self._warp is None:
                self._known[depth] = known
        return known[:most]


class _MedusaPlace:
    """A place behind a root, as it is asked about."""

    __slots__ = ("_depth", "_medusa", "_root", "_state")

    def __init__(self, medusa: Medusa, root: _Root, depth: int, state: State) -> None:
        self._medusa, self._root, self._depth, self._state = medusa, root, depth, state

    @property
    def parts(self) -> tuple[Place, Place]:
        return NOWHERE, self

    def guesses(self, most: int) -> Sequence[Guess]:
        return self._medusa.ask(self._root, self._depth, self._state, most)

    def after(self, token: int) -> Place:
        depth = self._depth + 1
        if depth >= self._medusa.reach:
            return NOWHERE
        return _MedusaPlace(self._medusa, self._root, depth, self._root.after(self._state, token))
