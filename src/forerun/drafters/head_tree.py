"""What a head guesses below a text's root: places that are scored when they are asked about.

A row of a head's pass costs little beside the pass itself. So with a place that is asked about
those are scored that probably will be, and the rows of all ancestors are scored again, instead of
keeping them: nothing of a guess is ever in the head's memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.core.tree import ROOT
from forerun.core.warp import State
from forerun.drafters.head_ranks import HeadRanks
from forerun.drafters.head_text import HeadText, read
from forerun.drafters.protocol import Guess
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
        chance: The head's own word that it is right, and all above it.
        logits: What the head says of the next token, float32 [draft vocabulary]; None until it was
            asked, and for ever where the context ends.
        output: What the rows below are given, float32 [width].
        guesses: As many as anybody asked for.
        is_exhausted: There are no more.
        below: Nodes that somebody named, by token.
    """

    __slots__ = (
        "_state",
        "above",
        "below",
        "chance",
        "depth",
        "guesses",
        "is_exhausted",
        "logits",
        "output",
        "token",
    )

    def __init__(self, token: int, above: HeadNode | None, chance: float = 0.0) -> None:
        self.token, self.above, self.chance = token, above, chance
        self.depth: int = 0 if above is None else above.depth + 1
        self.logits: Array | None = None
        self.output: Array | None = None
        self.guesses: list[Guess] = []
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

    Attributes:
        text: The same.
        length: Tokens of the text.
        root: Has logits and output once the text was read.
    """

    def __init__(self, text: HeadText, ranks: HeadRanks, state: State) -> None:
        self.text, self.length = text, len(text.tokens)
        self.root = HeadNode(ROOT, None, 1.0)
        self._ranks, self._state = ranks, state
        self._offered: dict[int, HeadNode] = {}  # by identity

    def guesses(self, node: HeadNode, most: int) -> Sequence[Guess]:
        """Return what may follow a node that was scored, the best first."""
        if node.logits is None:
            return ()
        if len(node.guesses) < most and not node.is_exhausted:
            position, count = self.length + node.depth, max(most, _LISTED)
            known = self._ranks.guesses(node.logits, position, node.state(self._state), count)
            node.guesses, node.is_exhausted = known, len(known) < count
            for guess in known:
                child = self.child(node, guess.token)
                child.chance = node.chance * guess.confidence
        for guess in node.guesses[:most]:
            child = node.below[guess.token]
            if child.output is None:
                self._offered[id(child)] = child
        return node.guesses[:most]

    def child(self, node: HeadNode, token: int) -> HeadNode:
        """Return the node of a token that may follow, whoever guessed it."""
        if token not in node.below:
            node.below[token] = HeadNode(token, node)
        return node.below[token]

    def likeliest(self, most: int) -> list[HeadNode]:
        """Return the likeliest nodes that were offered, and not scored yet."""
        self._offered = {at: node for at, node in self._offered.items() if node.output is None}
        return sorted(self._offered.values(), key=lambda node: -node.chance)[:most]


def score_roots(head: Head, trees: Sequence[HeadTree]) -> None:
    """Read what waits of the trees' texts in one pass, and tell it to the roots."""
    texts = {id(tree.text): tree.text for tree in trees if tree.text.root is None}
    if texts:
        read(head, list(texts.values()))
    for tree in trees:
        assert tree.text.root is not None, "read just now, if not before"
        tree.root.logits, tree.root.output = tree.text.root


def score_nodes(head: Head, wanted: Sequence[tuple[HeadTree, HeadNode]]) -> None:
    """Score nodes of many trees in one pass; what is above each was scored before."""
    rows: list[Row] = []
    given: list[Array] = []
    places: dict[int, int] = {}  # a node's row, by the node's identity
    asked: dict[int, HeadNode] = {}

    def add(tree: HeadTree, node: HeadNode) -> int:
        above = node.above
        if above is None:
            return -1
        if id(node) not in places:
            parent = add(tree, above)
            assert above.output is not None, "scored before"
            places[id(node)] = len(rows)
            rows.append(Row(tree.text.sequence, node.token, tree.length + node.depth - 1, parent))
            given.append(above.output)
        return places[id(node)]

    for tree, node in wanted:
        if node.output is None and tree.length + node.depth <= head.context_length:
            asked[add(tree, node)] = node
    if not asked:
        return
    scores = head.score(rows, given=np.stack(given), logits=list(asked))
    for (row, node), logits in zip(asked.items(), scores.logits, strict=True):
        node.logits, node.output = logits, scores.outputs[row]
