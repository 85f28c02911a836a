"""The draft's vocabulary: the target's most used tokens, by coverage on captured text."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from forerun.train.shards import Conversation

__all__ = ["choose_tokens", "ids_of", "token_weights"]


def token_weights(conversations: Iterable[Conversation], vocab_size: int) -> NDArray[np.float64]:
    """Return how much of the answers' laws falls on each token, float64 [vocabulary].

    The laws say more than the tokens that happened to be drawn from them.
    """
    weights = np.zeros(vocab_size)
    for each in conversations:
        answer = slice(max(each.answer - 1, 0), len(each.tokens) - 1)
        p = np.exp(each.log_p[answer].astype(np.float64))
        weights += np.bincount(each.likely[answer].ravel(), p.ravel(), vocab_size)
    return weights


def choose_tokens(weights: NDArray[np.float64], size: int) -> NDArray[np.int64]:
    """Return the `size` heaviest tokens, ascending, int64; of equals the lowest ids."""
    chosen = np.argsort(-weights, kind="stable")[:size]
    return np.sort(chosen).astype(np.int64)


def ids_of(tokens: NDArray[np.int64], vocab_size: int) -> NDArray[np.int64]:
    """Return, for each of the target's tokens, its id in the draft's vocabulary, or -1."""
    ids = np.full(vocab_size, -1, np.int64)
    ids[tokens] = np.arange(len(tokens))
    return ids
