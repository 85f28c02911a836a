"""The texts that a head learns from while it drafts them, from their first draft to their end."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from forerun.drafters.head_tree import HeadNode, HeadTree
from forerun.drafters.online import Online, TextLesson
from forerun.drafters.protocol import DraftRequest, Outcome

__all__ = ["Lessons"]


class Lessons:
    """Follows texts for a drafter with a head; does nothing where nothing is learned.

    Args:
        online: What is learned goes there, and comes from there; None learns nothing.
        tokens: The draft vocabulary, uint32 [R], ascending.
        vocab_size: Tokens that the target knows.
    """

    def __init__(self, online: Online | None, tokens: NDArray[np.uint32], vocab_size: int) -> None:
        self._online = online
        self._texts: dict[int, tuple[str, TextLesson | None]] = {}  # and whose it is
        self._trees: dict[int, HeadTree] = {}  # of the round
        self._places = np.full(0 if online is None else vocab_size, -1, dtype=np.int64)
        if online is not None:
            self._places[tokens] = np.arange(len(tokens))

    def of(self, request: DraftRequest) -> TextLesson | None:
        """Return what a text's draft is told; it stays the same until the text ends."""
        if self._online is None:
            return None
        if request.sequence not in self._texts:
            begun = self._online.begin(request.tenant, self._places)
            self._texts[request.sequence] = request.tenant, begun
        lesson = self._texts[request.sequence][1]
        if lesson is not None:
            lesson.follow(request.tokens)
        return lesson

    def drafts_with(self, sequence: int, tree: HeadTree) -> None:
        """Remember what a text's next draft is made of, if it is learned from."""
        if tree.lesson is not None:
            self._trees[sequence] = tree

    def observe(self, outcome: Outcome) -> None:
        """Learn from the places on the text's way that the head was asked about."""
        tree = self._trees.pop(outcome.sequence, None)
        if tree is None or tree.lesson is None:
            return
        node: HeadNode | None = tree.root
        for token in outcome.tokens[len(outcome.tokens) - outcome.emitted :]:
            if node is None or node.logits is None or node.repeated is None:
                return
            tree.lesson.learn(node.logits, node.repeated, int(self._places[token]))
            node = node.below.get(token)

    def fork(self, sequence: int, new: int) -> None:
        """Follow text `new`, which has been `sequence` until now."""
        if sequence in self._texts:
            tenant, lesson = self._texts[sequence]
            self._texts[new] = tenant, None if lesson is None else lesson.fork()

    def rollback(self, sequence: int, length: int) -> None:
        """Forget all but the first `length` tokens of a text."""
        self._trees.pop(sequence, None)
        lesson = self._texts.get(sequence, ("", None))[1]
        if lesson is not None:
            lesson.repeats.cut(length)

    def free(self, sequence: int) -> None:
        """Let the tenant's later texts know what this one has taught."""
        self._trees.pop(sequence, None)
        tenant, lesson = self._texts.pop(sequence, ("", None))
        if self._online is not None and lesson is not None:
            self._online.end(tenant, lesson)
