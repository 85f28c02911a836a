"""Proposals: the law a draft token was really drawn from. A draft cannot be built without one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forerun.errors import EngineError

__all__ = ["Dense", "Point", "Proposal", "Sparse"]

_SUM_TOLERANCE = 1e-9


def _check_law(probabilities: NDArray[np.float64]) -> None:
    total = float(probabilities.sum())
    if not abs(total - 1.0) <= _SUM_TOLERANCE or float(probabilities.min(initial=0.0)) < 0.0:
        raise EngineError(
            "A proposal must be a law; these probabilities "
            f"begin at {float(probabilities.min(initial=0.0))!r} and sum to {total!r}."
        )


class Point(NamedTuple):
    """All probability on one token: what a deterministic drafter proposes."""

    token: int

    def probability(self, token: int) -> float:
        """Return q(token)."""
        return 1.0 if token == self.token else 0.0

    def dense(self, vocab_size: int) -> NDArray[np.float64]:
        """Return q, float64 [vocab_size]."""
        law = np.zeros(vocab_size)
        law[self.token] = 1.0
        return law


@dataclass(frozen=True, slots=True, eq=False)
class Sparse:
    """Probability on a few tokens.

    Attributes:
        tokens: int64 [n], distinct.
        probabilities: float64 [n], summing to 1.
    """

    tokens: NDArray[np.int64]
    probabilities: NDArray[np.float64]

    def __post_init__(self) -> None:
        _check_law(self.probabilities)
        if not len(np.unique(self.tokens)) == len(self.tokens) == len(self.probabilities):
            raise EngineError("A sparse proposal must name each of its tokens once.")

    def probability(self, token: int) -> float:
        """Return q(token)."""
        return float(self.probabilities[self.tokens == token].sum())

    def dense(self, vocab_size: int) -> NDArray[np.float64]:
        """Return q, float64 [vocab_size]."""
        if not 0 <= self.tokens.min() <= self.tokens.max() < vocab_size:
            raise EngineError(f"A sparse proposal names a token outside of {vocab_size}.")
        law = np.zeros(vocab_size)
        law[self.tokens] = self.probabilities
        return law


@dataclass(frozen=True, slots=True, eq=False)
class Dense:
    """A probability for every token: float64 [vocab_size], summing to 1."""

    probabilities: NDArray[np.float64]

    def __post_init__(self) -> None:
        _check_law(self.probabilities)

    def probability(self, token: int) -> float:
        """Return q(token)."""
        known = 0 <= token < len(self.probabilities)
        return float(self.probabilities[token]) if known else 0.0

    def dense(self, vocab_size: int) -> NDArray[np.float64]:
        """Return q, float64 [vocab_size]."""
        if len(self.probabilities) != vocab_size:
            raise EngineError(f"A law over {len(self.probabilities)} tokens, not {vocab_size}.")
        return self.probabilities


Proposal = Point | Sparse | Dense
