"""Exact chance: every outcome of a program that asks coins, with its probability.

`ExactCoins` stands where `AddressedCoins` stands in production. Each address owns one uniform
number, of which only an interval is known; a question splits the interval, and one side is taken.
So an address that is asked again answers *given what it said before*, and a rule that uses a
number twice shows the same wrong law here as it would in the world.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from forerun.core.coins import Address, AddressedCoins, pick
from forerun.core.noise import Domain, Noise, uniform
from forerun.errors import EngineError
from forerun.native import fast_noise

__all__ = ["ExactCoins", "FixedCoins", "coin_problems", "enumerate_outcomes", "twin_problems"]

T = TypeVar("T")


class ExactCoins:
    """Coins that follow a script of choices, and go on with the first choice after its end.

    Args:
        script: Which of its possible answers each question with more than one gets.
    """

    def __init__(self, script: Sequence[int] = ()) -> None:
        self._script = script
        self._known: dict[Address, tuple[float, float]] = {}
        self.choices: list[tuple[int, int]] = []  # (taken, of how many), question by question

    @property
    def probability(self) -> float:
        """The probability of all answers so far: the size of what the numbers may still be."""
        return math.prod(high - low for low, high in self._known.values())

    def accept(self, address: Address, probability: float) -> bool:
        """Return one of the answers that are still possible."""
        # NaN is below nothing, in production too.
        border = min(probability, 1.0) if probability > 0.0 else 0.0
        return self._choose(address, (0.0, border, 1.0)) == 0

    def draw(self, address: Address, weights: NDArray[np.float64]) -> int:
        """Return an index that is still possible; cells lie as in `forerun.core.coins.pick`."""
        cumulated = np.cumsum(weights)
        if not cumulated[-1] > 0.0 or not (weights >= 0.0).all():
            raise EngineError(f"No token can be drawn by the weights {weights.tolist()}.")
        return self._choose(address, (0.0, *(cumulated / cumulated[-1]).tolist()))

    def _choose(self, address: Address, borders: Sequence[float]) -> int:
        """Take a cell between two borders, and remember that the number lies in it."""
        low, high = self._known.get(address, (0.0, 1.0))
        cells = [(max(low, a), min(high, b)) for a, b in itertools.pairwise(borders)]
        possible = [i for i, (a, b) in enumerate(cells) if a < b]
        taken = 0
        if len(possible) > 1:
            at = len(self.choices)
            taken = self._script[at] if at < len(self._script) else 0
            self.choices.append((taken, len(possible)))
        index = possible[taken]
        self._known[address] = cells[index]
        return index


def enumerate_outcomes(run: Callable[[ExactCoins], T]) -> Iterator[tuple[T, float]]:
    """Yield every outcome of `run` with the probability of the answers that lead to it.

    The program is run again for each outcome, depth first. The probabilities sum to 1.

    Args:
        run: Depends on its coins only.
    """
    script: list[int] = []
    while True:
        coins = ExactCoins(script)
        outcome = run(coins)
        yield outcome, coins.probability
        choices = coins.choices
        while choices and choices[-1][0] + 1 == choices[-1][1]:
            choices.pop()
        if not choices:
            return
        script = [taken for taken, _ in choices[:-1]] + [choices[-1][0] + 1]


class FixedCoins(AddressedCoins):
    """Production's coins with one number put in the place of chance.

    Args:
        u: What every address holds.
    """

    def __init__(self, u: float) -> None:
        super().__init__(0)
        self.u = u

    def uniform(self, address: Address) -> float:
        """Return the number that was put in."""
        return self.u


_PLACE = Address(0, 1, Domain.ACCEPT)
_RATIOS = (0.0, 5e-324, 2.0**-53, 1e-9, 0.1, 1 / 3, 0.5, 0.9999999, 1.0 - 2.0**-53, 1.0, 7.0)


def coin_problems() -> list[str]:
    """Check production's coins number by number: thresholds, cells, range, distinct addresses."""
    return [*_threshold_problems(), *_cell_problems(), *_number_problems()]


def _threshold_problems() -> Iterator[str]:
    for ratio in _RATIOS:
        for u in (2.0**-53, 0.25, math.nextafter(ratio, 0.0), ratio, math.nextafter(ratio, 2.0)):
            answer = FixedCoins(u).accept(_PLACE, ratio)
            if answer is not (u < ratio):
                yield f"a coin of {u!r} answers {answer} at probability {ratio!r}"


def _cell_problems() -> Iterator[str]:
    """Measure each cell of `pick` by bisection over the number."""
    for weights in ((0.5, 0.25, 0.25), (0.1, 0.0, 0.7, 0.2), (0.0, 3.0, 1.0, 0.0), (1e-12, 1.0)):
        array = np.array(weights)
        borders = [_first_above(array, i) for i in range(len(weights) + 1)]
        lengths = [b - a for a, b in itertools.pairwise(borders)]
        for i, (length, weight) in enumerate(zip(lengths, weights, strict=True)):
            wanted = weight / math.fsum(weights)
            if abs(length - wanted) > 1e-15:
                yield f"weights {weights} give token {i} {length!r} of the line, not {wanted!r}"
        if any(weights[pick(u, array)] == 0 for u in (2.0**-53, 1.0 - 2.0**-53)):
            yield f"weights {weights} give a token of weight 0 at an end of the line"


def _first_above(weights: NDArray[np.float64], index: int) -> float:
    """Return where on the line tokens of at least `index` begin."""
    low, high = 0.0, 1.0
    if index == 0:
        return low
    while low < (middle := (low + high) / 2) < high:
        if FixedCoins(middle).draw(_PLACE, weights) >= index:
            high = middle
        else:
            low = middle
    return high


def twin_problems() -> Iterator[str]:
    """Compare the noise that texts are written with, and its draws, with `core`'s own."""
    size = 1031
    for seed, position in itertools.product((0, 1, 2**64 - 1), range(4)):
        ours, fast = Noise(seed, 3), fast_noise(seed, 3)
        row = ours.gumbel(position, size)
        if fast.gumbel(position, size).tobytes() != row.tobytes():
            yield f"seed {seed}, position {position}: the compiled noise is another"
        for scores in (np.zeros(size), 4.0 * row[::-1], np.where(row > 2, -row, -np.inf)):
            if fast.draw(scores, position) != ours.draw(scores, position):
                yield f"seed {seed}, position {position}: the compiled draw is another"


def _number_problems() -> Iterator[str]:
    ends = float(uniform(0, 0)), float(uniform(0xFFFFFFFF, 0xFFFFFFFF))
    if not (0.0 < ends[0] < 1e-15 and 1.0 - 1e-15 < ends[1] < 1.0):
        yield f"uniform numbers go from {ends[0]!r} to {ends[1]!r}, ends included"
    purposes = (Domain.DRAFT, Domain.ACCEPT, Domain.RESIDUAL, Domain.BONUS)
    seeds = (0, 1, 2**32, 2**63 + 5)
    owners: dict[float, str] = {}
    for seed, sample in itertools.product(seeds, range(2)):
        coins, noise = AddressedCoins(seed, sample), Noise(seed, sample)
        places = itertools.starmap(Address, itertools.product(range(3), range(3), purposes))
        numbers = [(f"{place}", coins.uniform(place)) for place in places]
        for position in range(3):
            values = noise.gumbel(position, 6).tolist()
            numbers += [(f"noise {position}, {x}", value) for x, value in enumerate(values)]
        for name, value in numbers:
            owner = f"seed {seed}, sample {sample}, {name}"
            if value in owners:
                yield f"{owner} holds the number of {owners[value]}"
            owners[value] = owner
