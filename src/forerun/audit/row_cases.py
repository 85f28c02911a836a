"""One case of row-exactness: the same texts read plainly, and again through a random history.

Plainly is one text a pass, from its first token to its last, on one thread. A history splits the
texts into pieces, mixes pieces of several sequences in a pass, scores trees, commits paths of them,
rolls back, forks and frees. Whenever a token is scored, its logits and the hidden states at its
row must be those of the plain reading, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from forerun.audit.row_texts import NOWHERE, Piece, Texts, random_piece
from forerun.targets.protocol import Row, Scores, Target

__all__ = ["Difference", "Expected", "History", "read_plainly"]

Array = NDArray[np.float32]


class Difference(Exception):
    """Two ways to score one row gave different bits; says where."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What every row of some texts must give.

    Attributes:
        logits: float32 [nodes, vocabulary].
        hidden: float32 [layers + 1, nodes, width].
    """

    logits: Array
    hidden: Array

    def check(self, scores: Scores, nodes: Sequence[int], asked: Sequence[int]) -> int:
        """Compare a pass with what it must give and return how many rows of logits there were.

        Args:
            scores: What the pass gave.
            nodes: Of each row.
            asked: The rows whose logits it gave, in order.

        Raises:
            Difference: A bit differs.
        """
        _compare("logits", scores.logits, self.logits[[nodes[row] for row in asked]])
        for layer, states in scores.hidden.items():
            _compare(f"hidden states of layer {layer}", states, self.hidden[layer][nodes])
        return len(asked)


def _compare(what: str, found: Array, expected: Array) -> None:
    if found.shape != expected.shape:
        raise Difference(f"{what} have the shape {found.shape}, not {expected.shape}")
    # As whole numbers: -0 is not 0, and a NaN is itself.
    differing = (found.view(np.uint32) != expected.view(np.uint32)).any(axis=-1)
    if differing.any():
        row = int(differing.argmax())
        column = int((found[row].view(np.uint32) != expected[row].view(np.uint32)).argmax())
        raise Difference(
            f"{what}, row {row} of {len(found)}: component {column} is {found[row, column]!s}, "
            f"read plainly {expected[row, column]!s}"
        )


def read_plainly(target: Target, texts: Texts, num_layers: int, *, by_token: bool) -> Expected:
    """Read each text alone and return what its rows give.

    Args:
        target: Reads.
        texts: What.
        num_layers: Of the target.
        by_token: A pass for every token instead of one for every text.

    Raises:
        Difference: Texts that begin alike gave different bits there.
    """
    result: Expected | None = None
    known = [False] * len(texts.tokens)
    for leaf in texts.leaves():
        path = texts.path(leaf)
        scores = _read(target, [texts.tokens[n] for n in path], num_layers, by_token=by_token)
        if result is None:
            result = _empty(scores, len(texts.tokens))
        shared = sum(known[node] for node in path)
        for layer, states in scores.hidden.items():
            old = result.hidden[layer]
            _compare(f"hidden states of layer {layer}", states[:shared], old[path[:shared]])
            old[path] = states
        _compare("logits", scores.logits[:shared], result.logits[path[:shared]])
        result.logits[path] = scores.logits
        for node in path:
            known[node] = True
    assert result is not None
    return result


def _empty(like: Scores, nodes: int) -> Expected:
    width = like.hidden[0].shape[1]
    return Expected(
        np.empty((nodes, like.logits.shape[1]), np.float32),
        np.empty((len(like.hidden), nodes, width), np.float32),
    )


def _read(target: Target, tokens: Sequence[int], num_layers: int, *, by_token: bool) -> Scores:
    """Score a text from its beginning, all rows and all layers."""
    layers = range(num_layers + 1)
    sequence, passes = target.open(), []
    size = 1 if by_token else len(tokens)
    for start in range(0, len(tokens), size):
        rows = [
            Row(sequence, token, start + i, i - 1)
            for i, token in enumerate(tokens[start : start + size])
        ]
        passes.append(target.score(rows, layers=layers))
        target.commit(sequence, range(len(rows)))
    target.free(sequence)
    logits = np.concatenate([scores.logits for scores in passes])
    return Scores(logits, {n: np.concatenate([s.hidden[n] for s in passes]) for n in layers})


class History:
    """A random way through some texts.

    Args:
        random: Decides everything.
        target: Reads.
        texts: What.
        expected: What each row must give.

    Attributes:
        rows: Rows compared so far.
        passes: Passes so far.
    """

    def __init__(self, random: Random, target: Target, texts: Texts, expected: Expected) -> None:
        self.rows = 0
        self.passes = 0
        self._random = random
        self._target = target
        self._texts = texts
        self._expected = expected
        self._ends: dict[int, int] = {}  # of each open sequence, the node of its last token

    def run(self, steps: int) -> None:
        """Go so many passes, and give everything back.

        Raises:
            Difference: A row gave other bits than it must.
        """
        try:
            for _ in range(self._random.choice((1, 1, 2, 3))):
                self._open()
            for _ in range(steps):
                self._step()
                self._stir()
        finally:
            for sequence in self._ends:
                self._target.free(sequence)

    def _open(self) -> None:
        """Begin a sequence anywhere: with a prompt that the target reads in its own way."""
        node = self._random.randrange(-1, len(self._texts.tokens))
        prompt = [self._texts.tokens[n] for n in self._texts.path(node)]
        self._ends[self._target.open(prompt)] = node

    def _step(self) -> None:
        """Score a piece for some of the sequences in one pass, compare, and keep a path of each."""
        random = self._random
        for sequence, end in self._ends.items():
            if not self._texts.children[end]:
                self._roll_back(sequence)
        chosen = random.sample(list(self._ends), random.randrange(1, len(self._ends) + 1))
        pieces = {s: random_piece(random, self._texts, self._ends[s]) for s in chosen}
        rows, nodes, places = self._mixed(pieces)
        asked = random.sample(range(len(rows)), random.randrange(len(rows) + 1))
        layers = random.sample(
            range(len(self._expected.hidden)), random.randrange(len(self._expected.hidden) + 1)
        )
        scores = self._target.score(rows, logits=asked, layers=layers)
        self.passes += 1
        self.rows += self._expected.check(scores, nodes, asked)
        for sequence, piece in pieces.items():
            if random.random() < 0.85:
                self._keep(sequence, piece, places[sequence])

    def _mixed(
        self, pieces: Mapping[int, Piece]
    ) -> tuple[list[Row], list[int], dict[int, list[int]]]:
        """Return the pass's rows, the node of each, and where each sequence's rows stand."""
        turns = [sequence for sequence, piece in pieces.items() for _ in piece.nodes]
        if self._random.random() < 0.5:
            self._random.shuffle(turns)
        rows: list[Row] = []
        nodes: list[int] = []
        places: dict[int, list[int]] = {sequence: [] for sequence in pieces}
        for sequence in turns:
            piece, place = pieces[sequence], places[sequence]
            at = len(place)
            node, parent = piece.nodes[at], piece.parents[at]
            before = place[parent] if parent >= 0 else -1
            position = rows[before].position + 1 if before >= 0 else self._target.length(sequence)
            place.append(len(rows))
            rows.append(Row(sequence, self._texts.tokens[node], position, before))
            nodes.append(node)
        return rows, nodes, places

    def _keep(self, sequence: int, piece: Piece, place: Sequence[int]) -> None:
        """Commit the path to some row; the last one of a chain is the likeliest."""
        last = len(piece.nodes) - 1
        row = last if self._random.random() < 0.5 else self._random.randrange(-1, last + 1)
        path = piece.path(row)
        self._target.commit(sequence, [place[step] for step in path])
        if path:
            self._ends[sequence] = piece.nodes[row]

    def _stir(self) -> None:
        """Roll back, fork, free or open something, or nothing."""
        random = self._random
        sequence, move = random.choice(list(self._ends)), random.random()
        if move < 0.2:
            self._roll_back(sequence)
        elif move < 0.45 and len(self._ends) < 6:
            self._ends[self._target.fork(sequence)] = self._ends[sequence]
        elif move < 0.55 and len(self._ends) > 1:
            self._target.free(sequence)
            del self._ends[sequence]
        elif move < 0.6:
            self._open()

    def _roll_back(self, sequence: int) -> None:
        """Forget a few tokens or many, and the pending rows."""
        path = self._texts.path(self._ends[sequence])
        few = self._random.choice((1, 1, 2, 3, 16, 17, len(path)))
        length = max(0, len(path) - few)
        self._target.rollback(sequence, length)
        self._ends[sequence] = path[length - 1] if length else NOWHERE
