"""A learned head guesses from the target's own hidden states (EAGLE-3: Li et al., 2025).

It is shown what the target made of the text so far, so a single layer says much of what comes next;
from then on it goes on from its own outputs. What it knows of the text is always true: each token's
row is made of the target's states, and guesses leave nothing behind.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.core.proposal import Point
from forerun.core.tree import Draft
from forerun.drafters.asking_price import AskingPrice
from forerun.drafters.comb import Comb
from forerun.drafters.head_ranks import HeadRanks
from forerun.drafters.head_text import HeadText
from forerun.drafters.head_tree import HeadNode, HeadTree, score_nodes, score_roots
from forerun.drafters.lessons import Lessons
from forerun.drafters.memory import Followed
from forerun.drafters.protocol import NOWHERE, DraftRequest, Guess, Outcome, Place
from forerun.drafters.table import DrafterKit

__all__ = ["Eagle"]

_BLIND = 1  # guesses of others that may stand unscored above a place that is asked about
_USUAL = 8  # rows that may wait of a text; reading more is no measure of what a place takes


class Eagle:
    """Drafts with a head, one sequence a text, the roots of all texts in one pass.

    Args:
        kit: Opens the head.

    Raises:
        OptionError: There is no head.
        StartError: Its file can't be read, or it was learned from another target.
    """

    name = "eagle"

    def __init__(self, kit: DrafterKit) -> None:
        self._head = kit.open_head()
        self._vocab_size = kit.vocab_size
        self._tokens = np.ascontiguousarray(self._head.tokens, dtype=np.uint32)
        self._texts = Followed[HeadText](self.name)
        self._bare: dict[int, HeadTree] = {}  # each text's last tree, while nobody asked it
        self._lessons = Lessons(kit.online, self._tokens, kit.vocab_size)
        self._price = AskingPrice()

    @property
    def layers(self) -> tuple[int, ...]:
        """Whose hidden states are the head's features."""
        return self._head.layers

    @property
    def price(self) -> float:
        """Seconds that one more place takes, as it was of late."""
        return self._price.seconds

    def open(self, sequence: int, tokens: Sequence[int]) -> None:
        """Follow a new text; its prompt's states are still to be shown."""
        self._texts.add(sequence, lambda: HeadText(self._head, tokens))

    def see(self, sequence: int, start: int, hidden: Mapping[int, NDArray[np.float32]]) -> None:
        """Read a part of the prompt."""
        self._texts[sequence].show(start, hidden, slice(None))

    def fork(self, sequence: int, new: int) -> None:
        """Follow text `new`, which has been `sequence` until now."""
        self._texts.add(new, self._texts[sequence].fork)
        self._lessons.fork(sequence, new)

    def rollback(self, sequence: int, length: int) -> None:
        """Forget all but the first `length` tokens of the text."""
        self._bare.pop(sequence, None)
        self._lessons.rollback(sequence, length)
        self._texts[sequence].cut(length)

    def free(self, sequence: int) -> None:
        """Stop following the text."""
        self._texts.leave(sequence).free()
        self._bare.pop(sequence, None)
        self._lessons.free(sequence)

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Take the true features of the texts' new tokens; what was guessed is gone already."""
        for outcome in outcomes:
            text, before = self._texts[outcome.sequence], len(outcome.tokens) - outcome.emitted
            kept = outcome.accepted[: outcome.emitted - 1]
            text.tokens = outcome.tokens
            rows = [0, *[1 + node for node in kept]]
            # A slice shows what stands there; a list makes copies first, in three times the time.
            is_one_piece = rows[-1] == len(rows) - 1
            text.show(before - 1, outcome.hidden, slice(len(rows)) if is_one_piece else rows)
            self._bare.pop(outcome.sequence, None)
            self._lessons.observe(outcome)
        self._price.end_round()

    def place(self, request: DraftRequest) -> Place:
        """Return the root's place; nothing is scored before it is asked."""
        tree = self._tree(request)
        return NOWHERE if tree is None else _HeadPlace(self, tree, tree.root)

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Grow all drafts together, a level a pass."""
        combs = [Comb(request, self.name) for request in requests]
        growing = [
            (comb, tree, tree.root)
            for comb in combs
            if comb.grows and (tree := self._tree(comb.request)) is not None
        ]
        if growing:
            self._score_roots([tree for _, tree, _ in growing])
        while growing:
            score_nodes(self._head, [(tree, tip) for _, tree, tip in growing])
            grown = [(comb, tree, self._grow(comb, tree, tip)) for comb, tree, tip in growing]
            growing = [(comb, tree, tip) for comb, tree, tip in grown if comb.grows]
        return [comb.draft() for comb in combs]

    def ask(self, tree: HeadTree, node: HeadNode, most: int) -> Sequence[Guess]:
        """Return what may follow a node; it is scored if it was not.

        Far behind places that nobody asked about there is no guess: each would take a pass.
        """
        if node.unasked > _BLIND:
            return ()
        begun, is_usual = time.perf_counter(), not self._lags(tree)
        if node.output is None:
            self._score(tree, node)
        guesses = tree.guesses(node, most)
        if is_usual:
            self._price.count(time.perf_counter() - begun)
        return guesses

    def _lags(self, tree: HeadTree) -> bool:
        """Whether a question will first read what waits of a prompt, or of a long copy.

        Were that taken for the price of every place, a text that begins might never be asked
        about again.
        """
        if tree.text.root is not None:
            return False
        return any(each.text.unread > _USUAL for each in (tree, *self._bare.values()))

    def _score(self, tree: HeadTree, node: HeadNode) -> None:
        above = node.above
        if above is None:
            self._score_roots([tree])
            return
        if above.output is None:  # nobody asked about it
            self._score(tree, above)
        score_nodes(self._head, [(tree, node)])

    def _score_roots(self, trees: Sequence[HeadTree]) -> None:
        """Score roots, and with them all that may be asked for in this round."""
        score_roots(self._head, [*trees, *self._bare.values()])
        self._bare.clear()

    def _grow(self, comb: Comb, tree: HeadTree, tip: HeadNode) -> HeadNode:
        """Add a level to a comb, and return its new tip."""
        request, depth = comb.request, len(comb.trunk)
        if tip.logits is None:
            comb.add(())
        elif request.coins is None:
            guesses = tree.guesses(tip, request.width)
            comb.add([(guess.token, Point(guess.token)) for guess in guesses])
        else:
            logits = np.full(self._vocab_size, -np.inf, dtype=np.float32)
            logits[self._tokens] = tip.logits
            comb.grow(logits)
        return tree.child(tip, comb.trunk[-1]) if len(comb.trunk) > depth else tip

    def _tree(self, request: DraftRequest) -> HeadTree | None:
        """Return a bare tree for a text, if all of it was shown."""
        text = self._texts[request.sequence]
        text.tokens = request.tokens
        self._bare.pop(request.sequence, None)
        if not text.is_ready:
            return None
        ranks = HeadRanks(request, self._tokens, self.name)
        tree = HeadTree(text, ranks, request.state, self._lessons.of(request))
        self._bare[request.sequence] = tree
        self._lessons.drafts_with(request.sequence, tree)
        return tree


class _HeadPlace:
    """A node of a tree, as it is asked about."""

    __slots__ = ("_eagle", "_node", "_tree")

    def __init__(self, eagle: Eagle, tree: HeadTree, node: HeadNode) -> None:
        self._eagle, self._tree, self._node = eagle, tree, node

    @property
    def parts(self) -> tuple[Place, Place]:
        return NOWHERE, self

    def guesses(self, most: int) -> Sequence[Guess]:
        return self._eagle.ask(self._tree, self._node, most)

    def after(self, token: int) -> _HeadPlace:
        return _HeadPlace(self._eagle, self._tree, self._tree.child(self._node, token))
