"""How far to draft: the best fixed draft length, and what an oracle would reach.

Source: Leviathan, Kalman and Matias 2023, section 3.5. Every length is tried, since a measured
pass cost v(M) need not be monotone and climbing would stop at its first bump. Length 0, plain
decoding, is always among the choices, and of equal factors the shortest draft wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from forerun.errors import OptionError
from forerun.theory import domain
from forerun.theory.speedup import (
    PassCost,
    measured_speedup,
    speedup,
    speedup_along,
)

__all__ = ["optimal_length", "optimal_length_along", "optimal_length_measured"]
__all__ += ["oracle_speedup", "oracle_tokens"]


def optimal_length(alpha: float, cost: float, max_length: int) -> int:
    """The γ in 0 … max_length that maximises Theorem 3.8's factor (section 3.5, figure 3).

    Args:
        alpha: Acceptance α in [0, 1].
        cost: c, the drafter's time per token over the target's per pass, ≥ 0.
        max_length: The longest draft to consider; with c = 0 the longest always wins.

    Returns:
        The best draft length; 0 where drafting does not pay.

    Raises:
        OptionError: An argument outside its domain.
    """
    lengths = _lengths(max_length)
    return max(lengths, key=lambda length: speedup(alpha, length, cost))


def optimal_length_measured(alpha: float, cost: float, pass_cost: PassCost, max_length: int) -> int:
    """The γ in 0 … max_length that maximises E[tokens] / (v(γ+1) + γ c).

    Args:
        alpha: Acceptance α in [0, 1].
        cost: c, the drafter's time per token over the target's one-row pass, ≥ 0.
        pass_cost: v, v(1) = 1. Of a mapping only the numbers of rows it holds are considered.
        max_length: The longest draft to consider.

    Returns:
        The best draft length; 0 where drafting does not pay.

    Raises:
        OptionError: An argument outside its domain.
    """
    lengths = _measured(_lengths(max_length), pass_cost)
    return max(lengths, key=lambda length: measured_speedup(alpha, length, cost, pass_cost))


def optimal_length_along(acceptances: Sequence[float], cost: float, pass_cost: PassCost) -> int:
    """Where to cut a chain whose positions differ, so that `speedup_along` is largest.

    Args:
        acceptances: α_1 … α_n, each in [0, 1], of the longest chain to consider.
        cost: c, the drafter's time per token over the target's one-row pass, ≥ 0.
        pass_cost: v, v(1) = 1. Of a mapping only the numbers of rows it holds are considered.

    Returns:
        The best draft length, 0 to n; 0 where drafting does not pay.

    Raises:
        OptionError: An argument outside its domain.
    """
    lengths = _measured(_lengths(len(acceptances)), pass_cost)
    return max(lengths, key=lambda length: speedup_along(acceptances[:length], cost, pass_cost))


def _lengths(max_length: int) -> range:
    return range(domain.draft_length("max_length", max_length) + 1)


def _measured(lengths: Iterable[int], pass_cost: PassCost) -> list[int]:
    """The lengths whose pass has a measured cost; 0 stays, and is refused if v(1) is missing."""
    if not isinstance(pass_cost, Mapping):
        return list(lengths)
    return [length for length in lengths if length == 0 or length + 1 in pass_cost]


def oracle_tokens(alpha: float) -> float:
    """1 / (1 − α) tokens per pass, if each draft ended just before its first rejection.

    The mean of the uncapped geometric law (section 3.5), and the bound for drafters that cost
    nothing (section 3.6).

    Args:
        alpha: Acceptance α in [0, 1).

    Returns:
        Emitted tokens per target pass, 1 or more.

    Raises:
        OptionError: Outside the domain; α = 1, since the oracle would draft for ever.
    """
    alpha = domain.probability("alpha", alpha)
    if alpha == 1.0:
        raise OptionError("alpha is 1.0.", "An oracle never stops drafting there: give less.")
    return 1.0 / (1.0 - alpha)


def oracle_speedup(alpha: float, cost: float) -> float:
    """The oracle's wall-time factor 1 / ((1 − α) + c α).

    A round emits 1/(1 − α) tokens and drafts α/(1 − α), so it takes 1 + c α/(1 − α) passes
    (derived from section 3.5).

    Args:
        alpha: Acceptance α in [0, 1]; below 1 if `cost` is 0.
        cost: c, the drafter's time per token over the target's per pass, ≥ 0.

    Returns:
        Plain decoding's time over speculative decoding's, for the same tokens: an upper bound
        of `speedup` over all draft lengths.

    Raises:
        OptionError: Outside the domain; α = 1 and c = 0, since the factor has no bound there.
    """
    alpha = domain.probability("alpha", alpha)
    time = (1.0 - alpha) + domain.non_negative("cost", cost) * alpha
    if time == 0.0:
        raise OptionError("alpha is 1.0 and cost is 0.0.", "The factor has no bound there.")
    return 1.0 / time
