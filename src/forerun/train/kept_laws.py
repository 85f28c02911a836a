"""What is kept of a target's law: its likeliest tokens, and what all others have together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from forerun.core.warp import Warp
from forerun.native import fast_likeliest

__all__ = ["kept_laws"]


def kept_laws(
    logits: NDArray[np.float32], top: int, plain: Warp, threads: int
) -> tuple[NDArray[np.int32], NDArray[np.float16], NDArray[np.float32]]:
    """Return what is kept of some rows.

    Args:
        logits: float32 [rows, vocabulary].
        top: How many of the likeliest tokens.
        plain: The warp of temperature 1 that changes nothing.
        threads: To use.

    Returns:
        The likeliest tokens, int32 [rows, top], best first; their log-probabilities, float16; and
        what all others have, float32 [rows].
    """
    likely = fast_likeliest(logits, top, threads)
    normalisers = plain.log_normalisers(logits, range(len(logits)))
    below = np.array([highest + log_sum for highest, log_sum in normalisers])
    log_p = likely.logits.astype(np.float64) - below[:, np.newaxis]
    rest = np.maximum(1 - np.exp(log_p).sum(axis=1), 0)
    tokens = np.maximum(likely.tokens, 0).astype(np.int32, copy=False)
    return tokens, log_p.astype(np.float16), rest.astype(np.float32)
