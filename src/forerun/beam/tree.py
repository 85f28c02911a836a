"""Texts as a tree: what they share is there once; each node knows what the target said of it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from forerun.core.beams import Ranked
from forerun.core.warp import State

__all__ = ["TextNode", "common", "path"]


class TextNode:
    """A text: its parent's and one token more.

    Attributes:
        token: The last one.
        parent: The text without it; None at the base, which holds all of the prompt but its last
            token.
        depth: Tokens after the prompt; 0 is the prompt, -1 the base.
        children: By token.
        log_p: What the last token added to the score.
        row: What may follow, once the target has scored the text's last token.
        logits: Its row, float32 [vocabulary], for drafters; None where nobody wants it.
        hidden: Of each layer that the drafter watches, float32 [width].
    """

    __slots__ = (
        "_state",
        "children",
        "depth",
        "hidden",
        "log_p",
        "logits",
        "parent",
        "row",
        "token",
    )

    def __init__(
        self, token: int, parent: TextNode | None, depth: int, state: State | None = None
    ) -> None:
        self.token, self.parent, self.depth = token, parent, depth
        self.children: dict[int, TextNode] = {}
        self.log_p = 0.0
        self.row: Ranked | None = None
        self.logits: NDArray[np.float32] | None = None
        self.hidden: Mapping[int, NDArray[np.float32]] = {}
        self._state = state

    def child(self, token: int) -> TextNode:
        """Return the text with `token` behind it."""
        found = self.children.get(token)
        if found is None:
            found = self.children[token] = TextNode(token, self, self.depth + 1)
        return found

    @property
    def above(self) -> TextNode:
        """The parent, of a text that is not the base."""
        assert self.parent is not None
        return self.parent

    @property
    def state(self) -> State:
        """The warp's state after the text."""
        if self._state is None:
            self._state = self.above.state.advance(self.token)
        return self._state

    def at(self, depth: int) -> TextNode:
        """Return the text's beginning of that depth, at most its own."""
        node = self
        while node.depth > depth:
            node = node.above
        return node

    def forget(self, kept: set[TextNode]) -> None:
        """Drop what is known after this text, and all longer ones but those in `kept`."""
        self.row, self.logits, self.hidden = None, None, {}
        self.children = {token: node for token, node in self.children.items() if node in kept}


def path(node: TextNode, below: TextNode) -> list[TextNode]:
    """Return the texts from one token more than `below` to `node`; none if they are the same."""
    nodes: list[TextNode] = []
    while node is not below:
        nodes.append(node)
        node = node.above
    return nodes[::-1]


def common(one: TextNode, other: TextNode) -> TextNode:
    """Return the longest text that both begin with."""
    while one is not other:
        if one.depth >= other.depth:
            one = one.above
        else:
            other = other.above
    return one
