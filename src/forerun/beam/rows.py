"""The likeliest tokens of many rows at once: the compiled twin of `core.beams.ranked`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.core.beams import Ranked, ranked
from forerun.core.warp import State, Warp
from forerun.native import fast_likeliest

__all__ = ["ranked_rows"]


def ranked_rows(
    warp: Warp,
    logits: NDArray[np.float32],
    states: Sequence[State],
    most: int,
    threads: int = 1,
) -> list[Ranked]:
    """Return the `most` likeliest tokens of each row, with their log-probabilities.

    Args:
        warp: The request's.
        logits: float32 [rows, vocabulary].
        states: The warp's, of the text before each row's next token.
        most: How many of each row.
        threads: That may look at rows.

    Raises:
        EngineError: A row holds NaN or infinity, or nothing that may be written.
    """
    if not warp.is_plain:
        return [ranked(warp, row, state, most) for row, state in zip(logits, states, strict=True)]
    for row in np.flatnonzero(~np.isfinite(logits.max(axis=1, initial=-np.inf))).tolist():
        warp.weigh(logits[row], states[row])  # which says what is wrong
    normalisers = warp.log_normalisers(logits, range(len(logits)))
    found = fast_likeliest(logits, most, threads)
    rows: list[Ranked] = []
    pairs = zip(found.tokens.tolist(), found.logits.tolist(), normalisers, strict=True)
    for tokens, values, (highest, log_sum) in pairs:
        count = tokens.index(-1) if -1 in tokens else len(tokens)
        log_p = tuple((value - highest) - log_sum for value in values[:count])
        rows.append(Ranked(tuple(tokens[:count]), log_p))
    return rows
