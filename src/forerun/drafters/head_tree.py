"""What a head guesses below a text's root: places that are scored when they are asked about.

The rows of all ancestors are scored again with each, instead of keeping them: nothing of a guess is
ever in the head's memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.core.tree import ROOT
from forerun.core.warp import State
from forerun.drafters.head_ranks import HeadRanks
from forerun.drafters.head_text import HeadText, read
from forerun.drafters.online import TextLesson
from forerun.drafters.protocol import Guess
from forerun.drafters.repeats import Repeated
from forerun.targets.head import Head
from forerun.targets.protocol import Row

__all__ = ["HeadNode", "HeadTree", "score_nodes", "score_roots"]

Array = NDArray[np.float32]

_LISTED = 4  # guesses that are ranked at once


class HeadNode:
    """A guess, or the root.

    Attributes:
        token: What is guessed.
        above: The node it follows; None at the root.
        depth: Guesses that lead here, itself included.
        logits: What the head says of the next token, boosted by what was learned, float32 [draft
            vocabulary]; None until it was asked, and for ever where the context ends.
        repeated: What was boosted in them, if anything is learned.
        output: What the rows below are given, float32 [width].
        guesses: As many as anybody asked for.
        is_exhausted: There are no more.
        below: Nodes that somebody named, by token.
    """

    __slots__ = (
        "_state",
        "above",
        "below",
        "depth",
        "guesses",
        "is_exhausted",
        "logits",
        "output",
        "repeated",
        "token",
    )

    def __init__(self, token: int, above: HeadNode | None) -> None:
        self.token, self.above = token, above
        self.depth: int = 0 if above is None else above.depth + 1
        self.logits: Array | None = None
        self.output: Array | None = None
        self.repeated: Repeated | None = None
        self.guesses: Sequence[Guess] = ()
        self.is_exhausted = False
        self.below: dict[int, HeadNode] = {}
        self._state: State | None = None

    @property
    def unasked(self) -> int:
        """How many guesses above it were not scored."""
        count, above = 0, self.above
        while above is not None and above.output is None:
            count, above = count + (above.above is not None), above.above
        return count

    def path(self) -> list[HeadNode]:
        """Return the nodes from below the root down to this one."""
        path, node = [], self
        while node.above is not None:
            path.append(node)
            node = node.above
        return path[::-1]

    def state(self, root: State) -> State:
        """Return the warp's state here, from that at the root."""
        if self.above is None:
            return root
        if self._state is None:
            self._state = self.above.state(root).advance(self.token)
        return self._state


class HeadTree:
    """All nodes below one text's root, as far as somebody followed them.

    Args:
        text: Whose root it is.
        ranks: Turns logits into guesses.
        state: The warp's at the root.
        lesson: What is learned of the text; None where nothing is.

    Attributes:
        text: The same.
        lesson: The same.
        length: Tokens of the text.
        root: Has logits and output once the text was read.
    """

    def __init__(
        self, text: HeadText, ranks: HeadRanks, state: State, lesson: TextLesson | None = None
    ) -> None:
        self.text, self.lesson, self.length = text, lesson, len(text.tokens)
        self.root = HeadNode(ROOT, None)
        self._ranks, self._state = ranks, state

    def tell(self, node: HeadNode, logits: Array, output: Array) -> None:
        """Take what the head says at a node."""
        node.logits, node.output = logits, output
        if self.lesson is not None:
            node.repeated = self.lesson.repeats.after([one.token for one in node.path()])
            node.logits = self.lesson.boosted(logits, node.repeated)

    def guesses(self, node: HeadNode, most: int) -> Sequence[Guess]:
        """Return what may follow a node that was scored, the best first."""
        if node.logits is None:
            return ()
        if len(node.guesses) < most and not node.is_exhausted:
            position, count = self.length + node.depth, max(most, _LISTED)
            state = node.state(self._state)
            node.guesses = self._ranks.guesses(node.logits, position, state, count)
            node.is_exhausted = len(node.guesses) < count
        return node.guesses[:most]

    def child(self, node: HeadNode, token: int) -> HeadNode:
        """Return the node of a token that may follow, whoever guessed it."""
        if token not in node.below:
            node.below[token] = HeadNode(token, node)
        return node.below[token]


def score_roots(head: Head, trees: Sequence[HeadTree]) -> None:
    """Read what waits of the trees' texts in one pass, and tell it to the roots."""
    texts = {id(tree.text): tree.text for tree in trees if tree.text.root is None}
    if texts:
        read(head, list(texts.values()))
    for tree in trees:
        assert tree.text.root is not None, "read just now, if not before"
        tree.tell(tree.root, *tree.text.root)


def score_nodes(head: Head, wanted: Sequence[tuple[HeadTree, HeadNode]]) -> None:
    """Score a node of each of some trees in one pass; what is above them was scored before."""
    rows: list[Row] = []
    given: list[Array] = []
    asked: dict[int, tuple[HeadTree, HeadNode]] = {}  # by row
    for tree, node in wanted:
        if node.output is not None or tree.length + node.depth > head.context_length:
            continue
        parent = -1
        for place, one in enumerate(node.path(), tree.length):
            assert one.above is not None
            assert one.above.output is not None, "scored before"
            rows.append(Row(tree.text.sequence, one.token, place, parent))
            given.append(one.above.output)
            parent = len(rows) - 1
        asked[parent] = tree, node
    if not asked:
        return
    scores = head.score(rows, given=np.stack(given), logits=list(asked))
    for (row, (tree, node)), logits in zip(asked.items(), scores.logits, strict=True):
        tree.tell(node, logits, scores.outputs[row])
