"""What speculation gives: tokens per pass, wall-time factor, operations factor.

Source: Leviathan, Kalman and Matias 2023, sections 3.1, 3.3 and 3.4. α is the acceptance of a
draft token, c the drafter's time per token over the target's time per pass, v(M) the time of a
pass of M rows over that of one row. Factors compare with plain decoding: 2.0 is twice as fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from forerun.errors import OptionError
from forerun.theory import domain

__all__ = ["PassCost", "measured_speedup", "minimum_speedup", "operations_factor", "speedup"]
__all__ += ["speedup_along", "tokens_along", "tokens_per_pass"]

PassCost = Mapping[int, float] | Callable[[int], float]
"""v(M): rows of a pass to its time over that of a one-row pass, so v(1) = 1."""

_UNIT_TOLERANCE = 1e-6


def tokens_per_pass(alpha: float, draft_length: int) -> float:
    """E[tokens] = (1 − α^(γ+1)) / (1 − α), γ + 1 at α = 1 (equation 1).

    It holds for acceptances that are independent and alike; else see `tokens_along`.

    Args:
        alpha: Acceptance α in [0, 1].
        draft_length: γ, a whole number from 0 on.

    Returns:
        Emitted tokens per target pass, the corrected or bonus token included: 1 to γ + 1.

    Raises:
        OptionError: An argument outside its domain.
    """
    alpha = domain.probability("alpha", alpha)
    rows = domain.draft_length("draft_length", draft_length) + 1
    if alpha == 1.0:
        return float(rows)
    if alpha == 0.0:
        return 1.0
    # expm1, since 1 − α^(γ+1) loses all its digits as α nears 1.
    return math.expm1(rows * math.log(alpha)) / (alpha - 1.0)


def tokens_along(acceptances: Sequence[float]) -> float:
    """E[tokens] = 1 + Σ_i Π_(j≤i) α_j for a chain whose positions differ.

    α_j is the acceptance of the j-th draft token given that those before it survived. It equals
    `tokens_per_pass` where all are alike (the tail-sum form of equation 1).

    Args:
        acceptances: α_1 … α_γ, each in [0, 1]; none means plain decoding.

    Returns:
        Emitted tokens per target pass, the corrected or bonus token included.

    Raises:
        OptionError: An acceptance outside [0, 1], or NaN.
    """
    return math.fsum(_survival(acceptances))


def _survival(acceptances: Sequence[float]) -> list[float]:
    """1, α_1, α_1 α_2, …: the probability that each emitted position is reached."""
    reached = [1.0]
    for index, value in enumerate(acceptances):
        reached.append(reached[-1] * domain.probability(f"acceptances[{index}]", value))
    return reached


def speedup(alpha: float, draft_length: int, cost: float) -> float:
    """The wall-time factor E[tokens] / (γ c + 1) (Theorem 3.8).

    It assumes that γ + 1 rows cost the target no more than one; else see `measured_speedup`.

    Args:
        alpha: Acceptance α in [0, 1].
        draft_length: γ, a whole number from 0 on.
        cost: c, the drafter's time per token over the target's per pass, ≥ 0.

    Returns:
        Plain decoding's time over speculative decoding's, for the same tokens.

    Raises:
        OptionError: An argument outside its domain.
    """
    tokens = tokens_per_pass(alpha, draft_length)
    return tokens / (draft_length * domain.non_negative("cost", cost) + 1.0)


def measured_speedup(alpha: float, draft_length: int, cost: float, pass_cost: PassCost) -> float:
    """The wall-time factor E[tokens] / (v(γ+1) + γ c), where rows are not free.

    Theorem 3.8 with the pass as it was measured; v = 1 everywhere gives `speedup`.

    Args:
        alpha: Acceptance α in [0, 1].
        draft_length: γ, a whole number from 0 on.
        cost: c, the drafter's time per token over the target's one-row pass, ≥ 0.
        pass_cost: v as a mapping or a function, v(1) = 1, every value finite and above 0.

    Returns:
        Plain decoding's time over speculative decoding's, for the same tokens.

    Raises:
        OptionError: An argument outside its domain, or v has no value for 1 or γ + 1 rows.
    """
    tokens = tokens_per_pass(alpha, draft_length)
    return tokens / _round_time(draft_length, cost, pass_cost)


def speedup_along(acceptances: Sequence[float], cost: float, pass_cost: PassCost) -> float:
    """The wall-time factor of a chain whose positions differ: `tokens_along` / (v(γ+1) + γ c).

    Args:
        acceptances: α_1 … α_γ, each in [0, 1]; none means plain decoding.
        cost: c, the drafter's time per token over the target's one-row pass, ≥ 0.
        pass_cost: v as a mapping or a function, v(1) = 1, every value finite and above 0.

    Returns:
        Plain decoding's time over speculative decoding's, for the same tokens.

    Raises:
        OptionError: An argument outside its domain, or v has no value for 1 or γ + 1 rows.
    """
    return tokens_along(acceptances) / _round_time(len(acceptances), cost, pass_cost)


def _round_time(draft_length: int, cost: float, pass_cost: PassCost) -> float:
    """v(γ+1) + γ c, in one-row passes."""
    one = _rows_time(pass_cost, 1)
    if abs(one - 1.0) > _UNIT_TOLERANCE:
        raise OptionError(
            f"pass_cost of one row is {one}.", "Divide all times by that of a one-row pass."
        )
    drafting = draft_length * domain.non_negative("cost", cost)
    return _rows_time(pass_cost, draft_length + 1) + drafting


def _rows_time(pass_cost: PassCost, rows: int) -> float:
    if not isinstance(pass_cost, Mapping):
        value = pass_cost(rows)
    elif rows in pass_cost:
        value = pass_cost[rows]
    else:
        raise OptionError(
            f"pass_cost has no value for {rows} rows.", "Measure it, or give a function."
        )
    return domain.divisor(f"pass_cost of {rows} rows", value)


def minimum_speedup(alpha: float, cost: float) -> float:
    """The factor (1 + α) / (1 + c) that some draft length reaches if α > c (Corollary 3.9).

    It is Theorem 3.8 at γ = 1.

    Args:
        alpha: Acceptance α in [0, 1], above `cost`.
        cost: c, the drafter's time per token over the target's per pass, ≥ 0.

    Returns:
        A lower bound, above 1, of the factor at the optimal draft length.

    Raises:
        OptionError: α ≤ c, where the corollary promises nothing, or outside the domain.
    """
    alpha = domain.probability("alpha", alpha)
    cost = domain.non_negative("cost", cost)
    if alpha <= cost:
        raise OptionError(
            f"alpha {alpha} is not above cost {cost}.", "No draft length is sure to pay: use 0."
        )
    return speedup(alpha, 1, cost)


def operations_factor(alpha: float, draft_length: int, operations_cost: float) -> float:
    """Arithmetic operations per token over plain decoding's (Theorem 3.11).

    (1 − α)(γ ĉ + γ + 1) / (1 − α^(γ+1)), hence (γ ĉ + γ + 1) / E[tokens].

    Args:
        alpha: Acceptance α in [0, 1].
        draft_length: γ, a whole number from 0 on.
        operations_cost: ĉ, the drafter's operations per token over the target's, ≥ 0.

    Returns:
        A factor from 1 on where ĉ ≥ 0: 1.63 means 63 % more arithmetic.

    Raises:
        OptionError: An argument outside its domain.
    """
    tokens = tokens_per_pass(alpha, draft_length)
    drafting = draft_length * domain.non_negative("operations_cost", operations_cost)
    return (drafting + draft_length + 1.0) / tokens
