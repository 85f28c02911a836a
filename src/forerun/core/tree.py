"""The draft: a tree of proposed tokens below the last token of the text."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from forerun.core.proposal import Point, Proposal
from forerun.errors import EngineError

__all__ = ["ROOT", "Draft", "Node"]

ROOT = -1  # the last token of the text; every draft hangs below it


class _NodeParts(NamedTuple):
    token: int
    parent: int
    proposal: Proposal
    drafter: str


class Node(_NodeParts):
    """One proposed token.

    Attributes:
        token: The token.
        parent: Index of the node before it, or ROOT.
        proposal: The law this token was drawn from, *given its earlier siblings*.
        drafter: Whose guess it is.
    """

    __slots__ = ()

    def __new__(cls, token: int, parent: int, proposal: Proposal, drafter: str) -> Self:
        """Return a node that its own proposal can have given."""
        # Plain integers, whatever numpy kind a drafter computed with: events become JSON.
        if type(token) is not int:
            token = operator.index(token)
        if type(parent) is not int:
            parent = operator.index(parent)
        if not proposal.probability(token) > 0.0:
            raise EngineError(f"Token {token} can't have been drawn from its own proposal.")
        return super().__new__(cls, token, parent, proposal, drafter)


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """A tree of nodes; parents stand before their children, siblings in the order drawn."""

    nodes: tuple[Node, ...] = ()
    _children: dict[int, tuple[int, ...]] = field(init=False, repr=False)
    _depths: dict[int, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        children: dict[int, tuple[int, ...]] = {}
        depths = {ROOT: 0}
        for index, node in enumerate(self.nodes):
            parent = node.parent
            if not ROOT <= parent < index:
                raise EngineError(f"Draft node {index} has parent {parent}.")
            children[parent] = (*children[parent], index) if parent in children else (index,)
            depths[index] = depths[parent] + 1
        object.__setattr__(self, "_children", children)
        object.__setattr__(self, "_depths", depths)

    def __len__(self) -> int:
        return len(self.nodes)

    @classmethod
    def chain(cls, tokens: Iterable[int], drafter: str) -> Draft:
        """Return a chain of deterministic guesses."""
        nodes = [Node(token, i - 1, Point(token), drafter) for i, token in enumerate(tokens)]
        return cls(tuple(nodes))

    @classmethod
    def merged(cls, continuations: Iterable[Sequence[int]], drafter: str) -> Draft:
        """Return the tree of several deterministic continuations, common beginnings shared."""
        nodes: list[Node] = []
        places: dict[tuple[int, int], int] = {}
        for continuation in continuations:
            parent = ROOT
            for token in continuation:
                if (parent, token) not in places:
                    places[parent, token] = len(nodes)
                    nodes.append(Node(token, parent, Point(token), drafter))
                parent = places[parent, token]
        return cls(tuple(nodes))

    def children(self, node: int) -> tuple[int, ...]:
        """Return the nodes below `node` (or below ROOT), in the order drawn."""
        return self._children.get(node, ())

    def child(self, node: int, token: int) -> int | None:
        """Return the child of `node` that carries `token`, if there is one."""
        for child in self._children.get(node, ()):
            if self.nodes[child].token == token:
                return child
        return None

    def path(self, node: int) -> tuple[int, ...]:
        """Return the nodes from below the root down to `node`, itself included."""
        path: list[int] = []
        while node != ROOT:
            path.append(node)
            node = self.nodes[node].parent
        return tuple(reversed(path))

    def first_line(self, node: int) -> list[int]:
        """Return `node`, its first child, that one's first child and so on, to the end."""
        line = [node]
        while children := self._children.get(line[-1]):
            line.append(children[0])
        return line

    def depth(self, node: int) -> int:
        """Return how many drafted tokens lead to `node`: 0 at ROOT."""
        return self._depths[node]

    @property
    def height(self) -> int:
        """How many drafted tokens the longest path has."""
        return max(self._depths.values())

    @property
    def breadth(self) -> int:
        """How many children a node has at most, the root included."""
        return max(map(len, self._children.values()), default=0)

    @property
    def is_chain(self) -> bool:
        """Whether no node has two children."""
        return all(len(children) == 1 for children in self._children.values())
