"""Texts that share beginnings: what the row-exactness cases read, in whichever way they read it."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

__all__ = ["NOWHERE", "Piece", "Texts", "random_piece", "random_texts"]

NOWHERE = -1
"""Stands before the first token of every text."""

_PAGE = 16  # positions; lengths close to its multiples are the likeliest
_MOST_READ = 250  # rows of a plain reading, beyond the long texts themselves
_SIZES = (1, 1, 1, 2, 3, 4, 5, 8, 15, 16, 17, 33)  # rows of a piece


@dataclass(slots=True)
class Texts:
    """Tokens as nodes of a tree; every path from a root is a text.

    Attributes:
        tokens: Of each node.
        parents: The node before, or NOWHERE; always a smaller one.
        children: Of each node, and of NOWHERE.
    """

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    children: dict[int, list[int]] = field(default_factory=lambda: {NOWHERE: []})

    def add(self, token: int, parent: int) -> int:
        """Add a node and return it."""
        node = len(self.tokens)
        self.tokens.append(token)
        self.parents.append(parent)
        self.children[parent].append(node)
        self.children[node] = []
        return node

    def path(self, node: int) -> list[int]:
        """Return the nodes from a root to `node`; none for NOWHERE."""
        path = []
        while node != NOWHERE:
            path.append(node)
            node = self.parents[node]
        return path[::-1]

    def leaves(self) -> list[int]:
        """Return the last node of every text."""
        return [node for node in range(len(self.tokens)) if not self.children[node]]


@dataclass(frozen=True, slots=True)
class Piece:
    """What one sequence scores in a pass: nodes below its end, parents before children.

    Attributes:
        nodes: One for each row; a node may come twice, as a draft may guess a token twice.
        parents: For each row the row before it, or -1: the sequence's end.
    """

    nodes: list[int]
    parents: list[int]

    def path(self, row: int) -> list[int]:
        """Return the rows from the sequence's end to `row`; none for -1."""
        path = []
        while row >= 0:
            path.append(row)
            row = self.parents[row]
        return path[::-1]


def random_texts(random: Random, vocab_size: int, longest: int) -> Texts:
    """Return one to three long texts and branches off them.

    Args:
        random: Decides.
        vocab_size: Tokens are below it.
        longest: Most tokens of a text.
    """
    texts = Texts()
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        _grow(texts, random, vocab_size, NOWHERE, _length(random, longest))
    read = len(texts.tokens)
    for _ in range(random.randrange(8)):
        node = random.randrange(len(texts.tokens))
        depth = len(texts.path(node))
        length = min(longest - depth, random.choice((1, 1, 2, 5, 18)))
        read += depth + length
        if read > _MOST_READ:
            break
        _grow(texts, random, vocab_size, node, length)
    return texts


def _length(random: Random, longest: int) -> int:
    """Return a length: mostly next to a page's border, often short."""
    pages = min(random.choice((0, 0, 0, 1, 1, 1, 2, 2, 3, 5)), longest // _PAGE)
    if random.random() < 0.02:
        pages = longest // _PAGE
    beside = random.choice((-1, 0, 1, 1, 2, random.randrange(_PAGE)))
    return max(1, min(longest, pages * _PAGE + beside))


def _grow(texts: Texts, random: Random, vocab_size: int, node: int, length: int) -> None:
    for _ in range(length):
        node = texts.add(random.randrange(vocab_size), node)


def random_piece(random: Random, texts: Texts, end: int) -> Piece:
    """Return a chain, a bush or something between of nodes below `end`; one row at least.

    Args:
        random: Decides.
        texts: The texts.
        end: The sequence's last node, or NOWHERE; it has a child.
    """
    piece = Piece([], [])
    most, bushiness = random.choice(_SIZES), random.choice((0.0, 0.3, 1.0))
    twice = random.random() < 0.2
    open_rows = [(child, -1) for child in texts.children[end]]
    random.shuffle(open_rows)
    while open_rows and len(piece.nodes) < most:
        is_free = random.random() < bushiness
        node, parent = open_rows.pop(random.randrange(len(open_rows)) if is_free else -1)
        if twice and random.random() < 0.2:
            open_rows.insert(0, (node, parent))
        children = [(child, len(piece.nodes)) for child in texts.children[node]]
        piece.nodes.append(node)
        piece.parents.append(parent)
        random.shuffle(children)
        open_rows += children
    return piece
