"""The target's sequences under the running beams: what is scored, kept, forked and forgotten.

Each running beam has a *stem*: a sequence whose committed tokens are a text of the tree, the stem's
*tip*. It holds all of the beam but its last token; where `ahead` is allowed it may hold more, a
draft that was scored and may come true. What a pass asks about the beam hangs below the tip, which
is rolled back to where all of that branches off; rows in between are scored again.

After the steps a pass has brought, the running beams have new texts. Of those that come from one
stem, one keeps it, with the path of the pass's rows that helps all of them most. The others get
forks of it, rolled back to where they part: what they share is not scored again, nor copied, where
the target's forks share what is committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forerun.beam.tree import TextNode, common, path
from forerun.targets.protocol import Row, Scores, Target

__all__ = ["Pass", "Stems"]


class _Stem:
    """A sequence of the target.

    Attributes:
        name: As the target calls it.
        tip: Its committed text.
        pending: The rows of the last pass by their texts.
    """

    __slots__ = ("name", "pending", "tip")

    def __init__(self, name: int, tip: TextNode) -> None:
        self.name, self.tip = name, tip
        self.pending: dict[TextNode, int] = {}

    def holds(self, node: TextNode) -> bool:
        """Whether keys and values of a text's last token are there."""
        return node in self.pending or common(node, self.tip) is node


class Pass(NamedTuple):
    """What a pass scored.

    Attributes:
        new: Texts whose next token was not known before, nor of those before the running beams.
        logits: Theirs, float32 [texts, vocabulary].
        hidden: Of each layer asked for, float32 [texts, width].
        rows: How many rows it had.
    """

    new: list[TextNode]
    logits: NDArray[np.float32]
    hidden: Mapping[int, NDArray[np.float32]]
    rows: int


class Stems:
    """The stems of one search.

    Args:
        target: Whose sequences they are.
        sequence: Holds all of the prompt but its last token; it is given back by `free`.
        prompt: The text of the prompt, and the first running beam.
        start: Position of its last token.
        ahead: Whether a stem may hold more than its beam.
    """

    def __init__(
        self, target: Target, sequence: int, prompt: TextNode, start: int, *, ahead: bool
    ) -> None:
        self._target, self._start, self._ahead = target, start, ahead
        self._stems = {prompt: _Stem(sequence, prompt.above)}
        self.forks = 0

    def sequence(self, beam: TextNode) -> int | None:
        """Return the sequence that holds all of a running beam but its last token, if one does."""
        stem = self._stems[beam]
        return stem.name if stem.tip is beam.parent else None

    def held(self, beam: TextNode) -> TextNode:
        """Return the text that a running beam's stem holds."""
        return self._stems[beam].tip

    def score(
        self, wanted: Mapping[TextNode, Sequence[TextNode]], layers: Sequence[int] = ()
    ) -> Pass:
        """Have the target score texts in one pass.

        Args:
            wanted: For each running beam, longer texts or itself, none of them known. Where the
                target scores chains only, each beam's are on one path.
            layers: Whose hidden states are wanted.
        """
        rows: list[Row] = []
        new: list[TextNode] = []
        asked: list[int] = []
        for beam, texts in wanted.items():
            if texts:
                self._lay_out(self._stems[beam], texts, rows)
                places = self._stems[beam].pending
                fresh = [node for node in places if node.row is None and node.depth >= beam.depth]
                new += fresh
                asked += [places[node] for node in fresh]
        scores: Scores = self._target.score(rows, logits=asked, layers=layers)
        hidden = {layer: scores.hidden[layer][asked] for layer in layers}
        return Pass(new, scores.logits, hidden, len(rows))

    def follow(self, running: Sequence[tuple[TextNode, TextNode]]) -> None:
        """Take the running beams that a pass has led to.

        Args:
            running: Each new beam and the old one that it begins with; best first.
        """
        old, self._stems = self._stems, {}
        heirs: dict[TextNode, list[TextNode]] = {}
        for beam, before in running:
            heirs.setdefault(before, []).append(beam)
        with ExitStack() as on_failure:  # nothing is left behind, whichever call fails
            on_failure.callback(self._stems.clear)
            for stem in old.values():
                on_failure.callback(self._target.free, stem.name)
            for before, beams in heirs.items():
                self._share(old[before], beams, on_failure)
            on_failure.pop_all()
        for before, stem in old.items():
            if before not in heirs:
                self._target.free(stem.name)

    def free(self) -> None:
        """Give all sequences back."""
        stems, self._stems = self._stems, {}
        with ExitStack() as all_of_them:
            for stem in stems.values():
                all_of_them.callback(self._target.free, stem.name)

    def _lay_out(self, stem: _Stem, texts: Sequence[TextNode], rows: list[Row]) -> None:
        """Add a stem's rows to a pass."""
        end = stem.tip
        for text in texts:
            end = common(end, text.above)
        self._roll_back(stem, end)
        for text in texts:
            for node in path(text, end):
                if node in stem.pending:
                    continue
                parent = stem.pending.get(node.above, -1)
                stem.pending[node] = len(rows)
                rows.append(Row(stem.name, node.token, self._start + node.depth, parent))

    def _share(self, stem: _Stem, beams: Sequence[TextNode], on_failure: ExitStack) -> None:
        """Give the stem to one of the beams that come from it, and forks to the others."""
        ends = [self._end(stem, beam) for beam in beams]
        helped = [sum(common(end, beam).depth for beam in beams) for end in ends]
        heir = helped.index(max(helped))
        self._commit(stem, ends[heir])
        for place, beam in enumerate(beams):
            if place == heir:
                self._stems[beam] = stem
                continue
            fork = _Stem(self._target.fork(stem.name), stem.tip)
            on_failure.callback(self._target.free, fork.name)
            self.forks += 1
            self._roll_back(fork, common(stem.tip, beam.above))
            self._stems[beam] = fork

    def _end(self, stem: _Stem, beam: TextNode) -> TextNode:
        """Return how far a stem can be the beam's: the longest text it holds on its path."""
        end = beam.above
        while not stem.holds(end):
            end = end.above
        if not self._ahead or not stem.holds(beam):
            return end
        end = beam if beam in stem.pending else stem.tip
        while following := [node for node in end.children.values() if node in stem.pending]:
            end = following[0]
        return end

    def _commit(self, stem: _Stem, end: TextNode) -> None:
        """Keep what leads to `end`, and drop all else."""
        if end not in stem.pending:
            self._roll_back(stem, end)
            return
        rows = [stem.pending[node] for node in path(end, stem.tip)]
        self._target.commit(stem.name, rows)
        stem.tip, stem.pending = end, {}

    def _roll_back(self, stem: _Stem, end: TextNode) -> None:
        if stem.pending or end is not stem.tip:
            self._target.rollback(stem.name, self._start + 1 + end.depth)
            stem.tip, stem.pending = end, {}
