"""What the formulas accept: each check returns its value, or refuses it with an `OptionError`.

NaN and infinities are refused everywhere: a comparison with NaN is false, so a formula fed with
one would answer without complaint.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real

import numpy as np
from numpy.typing import NDArray

from forerun.errors import OptionError

__all__ = ["LAW_TOLERANCE", "LONGEST_DRAFT", "Law", "divisor", "draft_length", "law", "laws"]
__all__ += ["non_negative", "positive", "probability"]

Law = NDArray[np.float64]
"""float64[vocabulary], checked."""

LAW_TOLERANCE = 1e-5
"""How far from 1 a law may sum: room for a softmax taken in float32, none for a wrong one."""

LONGEST_DRAFT = 1_000_000
"""The longest draft a formula is asked about, so that a search always ends."""


_LARGEST = 1e100
"""Beyond any measurement, and its products with draft lengths are still floats."""


def _finite(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise OptionError(f"{name} is {value!r}.", "Give a number.")
    try:
        number = float(value)
    except OverflowError:  # an int beyond the floats
        number = math.inf
    if not math.isfinite(number):
        raise OptionError(f"{name} is {number}.", "Give a finite number.")
    if abs(number) > _LARGEST:
        raise OptionError(f"{name} is {number}.", f"Give {_LARGEST} or less.")
    return number


def probability(name: str, value: float) -> float:
    """A number in [0, 1]."""
    number = _finite(name, value)
    if not 0.0 <= number <= 1.0:
        raise OptionError(f"{name} is {number}.", "It is a probability: give one from 0 to 1.")
    return number


def non_negative(name: str, value: float) -> float:
    """A finite number of at least 0."""
    number = _finite(name, value)
    if number < 0.0:
        raise OptionError(f"{name} is {number}.", "Give 0 or more.")
    return number


def positive(name: str, value: float) -> float:
    """A finite number above 0."""
    number = _finite(name, value)
    if number <= 0.0:
        raise OptionError(f"{name} is {number}.", "Give a number above 0.")
    return number


def divisor(name: str, value: float) -> float:
    """A finite number above 0 whose inverse is finite, too."""
    number = positive(name, value)
    if number < 1 / _LARGEST:
        raise OptionError(f"{name} is {number}.", f"Give {1 / _LARGEST} or more.")
    return number


def draft_length(name: str, value: int) -> int:
    """A whole number from 0 to `LONGEST_DRAFT`; 0 means plain decoding."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise OptionError(f"{name} is {value!r}.", "Give a whole number.")
    if not 0 <= value <= LONGEST_DRAFT:
        # A number of a million digits is not worth printing, and Python refuses to.
        shown = str(value) if abs(value) < 10**20 else "a number of more than 20 digits"
        raise OptionError(f"{name} is {shown}.", f"Give one from 0 to {LONGEST_DRAFT}.")
    return int(value)


def law(name: str, values: Sequence[float]) -> Law:
    """Probabilities over a vocabulary, one per token, that sum to 1 within `LAW_TOLERANCE`."""
    array = np.asarray(values)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "fiu":
        raise OptionError(
            f"{name} is not a list of numbers but {array.dtype} of shape {array.shape}.",
            "Give one probability per token.",
        )
    numbers = array.astype(np.float64)
    # Written so that NaN, which is neither inside nor outside an interval, counts as outside.
    outside = np.flatnonzero(~((numbers >= 0.0) & (numbers <= 1.0)))
    if outside.size:
        token = int(outside[0])
        raise OptionError(f"{name}[{token}] is {numbers[token]}.", "Give one from 0 to 1.")
    total = float(numbers.sum())
    if abs(total - 1.0) > LAW_TOLERANCE:
        raise OptionError(f"{name} sums to {total}.", "Give a law: probabilities that sum to 1.")
    return numbers


def laws(p: Sequence[float], q: Sequence[float]) -> tuple[Law, Law]:
    """The target's law and the proposal, over one vocabulary."""
    if len(p) != len(q):
        raise OptionError(
            f"p has {len(p)} tokens and q has {len(q)}.", "Give two laws over one vocabulary."
        )
    return law("p", p), law("q", q)
