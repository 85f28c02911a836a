"""Uniform numbers with an address, for the rules that sample: u(seed, sample, round, node, use).

A rule never holds a number: it names an address and asks a question, "true with this probability?"
or "which token, by these weights?". So no number can be used twice by accident, and the audit can
put an exact enumeration of all outcomes in the place of chance.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from forerun.core.noise import Domain, key_of, philox, uniform

__all__ = ["Address", "AddressedCoins", "Coins", "pick"]


class Address(NamedTuple):
    """Where a number is used.

    Attributes:
        round: Which round of the request, from 0.
        node: 0 for the draft's root, i + 1 for its node i.
        purpose: What for: draft, accept, residual or bonus.
    """

    round: int
    node: int
    purpose: Domain


class Coins(Protocol):
    """Answers questions of chance by address."""

    def accept(self, address: Address, probability: float) -> bool:
        """Return True with this probability (0 never, 1 or more always)."""
        ...

    def draw(self, address: Address, weights: NDArray[np.float64]) -> int:
        """Return an index drawn in proportion to `weights` (float64 [n], not all zero)."""
        ...


class AddressedCoins:
    """The coins of one text: every answer follows from seed, sample and address alone."""

    def __init__(self, seed: int, sample: int = 0) -> None:
        self.seed = seed
        self.sample = sample
        self._key = key_of(seed, sample)

    def uniform(self, address: Address) -> float:
        """Return u in (0, 1) with 53 bits."""
        counter = (address.node, address.round, self.sample, int(address.purpose))
        high, low, _, _ = philox(counter, self._key)
        return float(uniform(high, low))

    def accept(self, address: Address, probability: float) -> bool:
        """Return True with this probability."""
        # Strictly below: a coin can't accept what has probability 0.
        return self.uniform(address) < probability

    def draw(self, address: Address, weights: NDArray[np.float64]) -> int:
        """Return an index drawn in proportion to `weights`."""
        return pick(self.uniform(address), weights)


def pick(u: float, weights: NDArray[np.float64]) -> int:
    """Return the index whose cell of the cumulated weights holds u in (0, 1)."""
    cumulated = np.cumsum(weights)
    index = int(np.searchsorted(cumulated, u * cumulated[-1], side="right"))
    # Rounding may carry u * total to the total itself; the last index with weight holds it.
    return index if index < len(weights) else int(np.flatnonzero(weights)[-1])
