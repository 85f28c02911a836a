"""A text as a head follows it: its rows, and the features that are still to be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.targets.head import Head
from forerun.targets.protocol import Row

__all__ = ["HeadText", "read"]

Array = NDArray[np.float32]

_KEPT = 64  # positions whose features are kept, should the text be rolled back to one of them
_ROOM = 2 * _KEPT  # positions whose features there is room for
_WAITING = 64  # positions that may wait to be read; a text that nobody asks about is read on


class HeadText:
    """One text's rows in a head, all of them with true features.

    The row of the token at position t + 1 has the features of position t. Rows are scored when the
    head is asked, or so many wait; a text of which states were missed is followed no further.

    Args:
        head: Holds the rows.
        tokens: The text.

    Attributes:
        sequence: The head's name for the text.
        tokens: The text as it was told of last.
        rows: How many the head holds.
        seen: Of how many positions the features were shown.
        root: Logits and output of the last row, float32 [draft vocabulary] and [width]; None while
            they are not known.
    """

    def __init__(self, head: Head, tokens: Sequence[int]) -> None:
        self._head = head
        self.sequence = head.open()
        self.tokens = tokens
        self.rows = self.seen = 0
        self.root: tuple[Array, Array] | None = None
        width = len(head.layers) * head.width
        self._features = np.empty((0, width), dtype=np.float32)  # of the last positions seen
        self._held = 0  # of how many; behind them is room

    def fork(self) -> HeadText:
        """Return a text that goes its own way from here."""
        twin = HeadText.__new__(HeadText)
        twin._head, twin.sequence = self._head, self._head.fork(self.sequence)
        twin.tokens, twin.rows, twin.seen, twin.root = self.tokens, self.rows, self.seen, self.root
        twin._features, twin._held = self._features.copy(), self._held
        return twin

    def cut(self, length: int) -> None:
        """Forget all but the first `length` tokens."""
        self.tokens = tuple(self.tokens[:length])
        left = max(length - 1, 0)  # positions whose features stand before a token
        if self.rows > left:
            self._head.rollback(self.sequence, left)
            self.rows = left
        if self.seen > left:
            self._held = max(self._held - (self.seen - left), 0)
            self.seen, self.root = left, None

    def free(self) -> None:
        """Give the head's rows back."""
        self._head.free(self.sequence)

    def show(self, start: int, hidden: Mapping[int, Array], rows: Sequence[int] | slice) -> None:
        """Take the hidden states of some rows of a pass, of which the first stands at `start`."""
        head = self._head
        if start != self.seen or not all(layer in hidden for layer in head.layers):
            return
        parts = [hidden[layer][rows] for layer in head.layers]
        count = len(parts[0])
        if self.seen + count >= head.context_length:
            return
        self._make_room(count)
        np.concatenate(parts, axis=1, out=self._features[self._held : self._held + count])
        self._held += count
        self.seen += count
        self.root = None
        if self.seen - self.rows > _WAITING:
            read(head, [self], but=1)
            self._make_room(0)

    def _make_room(self, count: int) -> None:
        """See to it that so many more positions find room, in no more than they need."""
        if self._held + count <= len(self._features) <= _ROOM:
            return
        kept = min(max(_KEPT, self.seen - self.rows), self._held)
        last = self._features[self._held - kept : self._held]
        features = np.empty((max(_ROOM, kept + count), last.shape[1]), dtype=np.float32)
        features[:kept] = last
        self._features, self._held = features, kept

    @property
    def unread(self) -> int:
        """How many positions wait whose features were shown."""
        return self.seen - self.rows

    @property
    def is_ready(self) -> bool:
        """Whether the last token's row is there, or can be made."""
        is_told = 0 < self.seen == len(self.tokens) - 1
        return is_told and (self.root is not None or self._held > 0)

    def waiting(self, but: int) -> tuple[range, Array]:
        """Return the positions whose rows are to be scored, and their features.

        Args:
            but: Leave out the last so many.
        """
        if self.rows == self.seen and not but:
            # Read before, but what the last row said is not known any more.
            self.rows -= 1
            self._head.rollback(self.sequence, self.rows)
        last = self._held - but
        first = last - (self.seen - but - self.rows)
        return range(self.rows, self.seen - but), self._features[first:last]


def read(head: Head, texts: Sequence[HeadText], but: int = 0) -> None:
    """Score and keep the rows that wait, of all texts in one pass.

    Args:
        head: Theirs.
        texts: Each has rows that wait, or is ready.
        but: Leave out the last so many of each; 0 tells what the last row of each says.
    """
    rows: list[Row] = []
    features: list[Array] = []
    parts: list[range] = []
    for text in texts:
        positions, known = text.waiting(but)
        first = len(rows)
        for at in positions:
            parent = len(rows) - 1 if len(rows) > first else -1
            rows.append(Row(text.sequence, text.tokens[at + 1], at + 1, parent))
        features.append(known)
        parts.append(range(first, len(rows)))
    asked = [] if but else [part[-1] for part in parts]
    scores = head.score(rows, features=np.concatenate(features), logits=asked)
    for i, (text, part) in enumerate(zip(texts, parts, strict=True)):
        head.commit(text.sequence, part)
        text.rows += len(part)
        if not but:
            text.root = scores.logits[i], scores.outputs[part[-1]]
