"""What every head can do: guess from a target's hidden states what follows a text, a row at a time.

A head is a small network learned from one target. A row of it stands for a token of the text, or
for a guess, and says what may follow. What it knows of the text comes from the target: *features*,
the hidden states of some layers at the position before its token. Behind guesses there are none
yet, so the row of a guess is *given* its parent row's own output instead.

A head's sequence holds keys and values of a text's rows, from the token at position 1 on: nothing
stands before the first token whose features it could have. As in a target, nothing that was scored
is kept until `commit` names the rows that stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from forerun.targets.protocol import Row

__all__ = ["Head", "HeadScores"]

Array = NDArray[np.float32]


class HeadScores(NamedTuple):
    """What a pass of a head returns.

    Attributes:
        logits: float32 [rows asked for, draft vocabulary], of the token after each row.
        outputs: float32 [rows, width]: what each row's children are given.
    """

    logits: Array
    outputs: Array


@runtime_checkable
class Head(Protocol):
    """Guesses what a target writes.

    Between `score` and `commit` a sequence's scored rows are pending; its next `score`, `rollback`
    or `free` drops them.
    """

    @property
    def layers(self) -> tuple[int, ...]:
        """The target's layers whose hidden states are a position's features, in this order."""
        ...

    @property
    def tokens(self) -> NDArray[np.int64]:
        """The draft vocabulary: the target's token of each of the logits, ascending."""
        ...

    @property
    def width(self) -> int:
        """Floats of a hidden state, and of a row's output."""
        ...

    @property
    def context_length(self) -> int:
        """Positions of a row are below this."""
        ...

    def open(self) -> int:
        """Start an empty sequence, and return its name."""
        ...

    def length(self, sequence: int) -> int:
        """Return how many rows of the sequence are committed."""
        ...

    def score(
        self,
        rows: Sequence[Row],
        *,
        features: Array | None = None,
        given: Array | None = None,
        logits: Sequence[int] | None = None,
    ) -> HeadScores:
        """Score rows of one or many sequences in one pass; parents stand before their children.

        Args:
            rows: What to score, each at its token's position in the text: without a parent, one
                more than committed rows. Those that have features stand before those that do not.
            features: float32 [rows that have them, layers x width]: the hidden states at the
                position before the row's token, those of `layers` side by side.
            given: float32 [the other rows, width]: the output of the row that stands before.
            logits: Indices of the rows whose logits are wanted, in that order; None is all.

        Raises:
            EngineError: A row names an unknown sequence or token, or a wrong parent or position,
                or stands outside of the context; or there is not what each row needs.
        """
        ...

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        """Keep the rows of the last pass on `path` (indices, first to last) and drop the others.

        Raises:
            EngineError: The rows are not a path from the sequence's committed end.
        """
        ...

    def rollback(self, sequence: int, length: int) -> None:
        """Forget all but the first `length` committed rows, and what is pending.

        Raises:
            EngineError: The sequence is not open, or holds fewer rows.
        """
        ...

    def fork(self, sequence: int) -> int:
        """Return a new sequence with the same committed rows; neither sees the other's future.

        Raises:
            EngineError: The sequence is not open.
        """
        ...

    def free(self, sequence: int) -> None:
        """Give the sequence's memory back; its name is no longer known.

        Raises:
            EngineError: The sequence is not open.
        """
        ...
