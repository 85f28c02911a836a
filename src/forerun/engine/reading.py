"""Prompts on their way into the target: several in one pass, beside the rows of running texts.

A prompt that is read alone keeps all others waiting, and one of few tokens costs almost as much as
one of many. Where a target's rows cost the same whatever stands beside them
(`Capabilities.reads_beside`), each round's pass also reads up to `PREFILL_ROWS` tokens of prompts,
first come first read. A running text's row then costs what one of a large pass does, which is a
fraction of what it costs in a small one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forerun.engine.request import Request
from forerun.targets.checks import PREFILL_ROWS
from forerun.targets.protocol import Row, Target

__all__ = ["Part", "keep", "next_parts"]


class Part(NamedTuple):
    """What a pass reads of one prompt.

    Attributes:
        request: Whose prompt; its sequence holds what stands before.
        tokens: To be read.
    """

    request: Request
    tokens: Sequence[int]

    def rows(self, first: int) -> list[Row]:
        """Return the rows, of which the first is row `first` of the pass."""
        sequence, at = self.request.sequence, self.request.read
        assert sequence is not None
        return [
            Row(sequence, token, at + i, first + i - 1 if i else -1)
            for i, token in enumerate(self.tokens)
        ]


def next_parts(requests: Sequence[Request], most_rows: int = PREFILL_ROWS) -> list[Part]:
    """Return what the next pass reads of the prompts of running requests, so many rows at most."""
    parts: list[Part] = []
    for request in requests:
        if most_rows > 0 and not request.is_read:
            last = min(len(request.prompt) - 1, request.read + most_rows)
            parts.append(Part(request, request.prompt[request.read : last]))
            most_rows -= len(parts[-1].tokens)
    return parts


def keep(
    target: Target, parts: Sequence[Part], first: int, hidden: Mapping[int, NDArray[np.float32]]
) -> None:
    """Commit what a pass has read, and show it to whoever watches.

    Args:
        target: Whose pass it was.
        parts: What it read, in the order of its rows.
        first: The first part's first row.
        hidden: Of all layers that anyone watches, by the rows of the pass.
    """
    for part in parts:
        request, last = part.request, first + len(part.tokens)
        assert request.sequence is not None
        target.commit(request.sequence, range(first, last))
        if request.watch is not None:
            seen = {layer: hidden[layer][first:last] for layer in request.watch.layers}
            request.watch.see(request.read, seen)
        request.has_read(len(part.tokens))
        first = last
