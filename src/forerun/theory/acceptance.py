"""How often a draft token survives: from the target's law p and the proposal q to α.

Source: Leviathan, Kalman and Matias 2023, "Fast Inference from Transformers via Speculative
Decoding", sections 3.1 to 3.2 and appendix A.2. Laws are probabilities after the warp, one per
token of the vocabulary; every result is a pure number. Anything else is an `OptionError`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from forerun.errors import OptionError
from forerun.theory import domain

__all__ = ["acceptance", "kl_divergence", "lk_divergence", "mean_acceptance"]
__all__ += ["rejection_sampling_acceptance"]


def acceptance(p: Sequence[float], q: Sequence[float]) -> float:
    """The probability β = Σ min(p, q) that a token drawn from q survives (Theorem 3.5).

    Args:
        p: The target's law, summing to 1.
        q: The proposal, over the same vocabulary, summing to 1.

    Returns:
        β in [0, 1]: 1 iff p = q, 0 iff they share no token.

    Raises:
        OptionError: Not two laws over one vocabulary.
    """
    target, proposal = domain.laws(p, q)
    # Laws that sum to 1 + 1e-7 must not give an acceptance above 1.
    return min(1.0, float(np.minimum(target, proposal).sum()))


def lk_divergence(p: Sequence[float], q: Sequence[float]) -> float:
    """D_LK(p, q) = Σ |p − (p + q)/2|, the total variation distance (Definition 3.3).

    By Lemma 3.4 it equals 1 − Σ min(p, q), hence `1 - acceptance(p, q)`.

    Args:
        p: A law, summing to 1.
        q: A law over the same vocabulary, summing to 1.

    Returns:
        A distance in [0, 1], symmetric, 0 iff p = q and 1 iff they share no token.

    Raises:
        OptionError: Not two laws over one vocabulary.
    """
    first, second = domain.laws(p, q)
    return min(1.0, float(np.abs(first - second).sum()) / 2.0)


def mean_acceptance(positions: Iterable[tuple[Sequence[float], Sequence[float]]]) -> float:
    """α = E[Σ min(p, q)], the acceptance expected over many positions (Corollary 3.6).

    Args:
        positions: One (p, q) per position, each two laws over one vocabulary.

    Returns:
        α in [0, 1], every position weighing the same.

    Raises:
        OptionError: No position, or one that is not two laws over one vocabulary.
    """
    betas = [acceptance(p, q) for p, q in positions]
    if not betas:
        raise OptionError("There is no position to average over.", "Give at least one (p, q).")
    return math.fsum(betas) / len(betas)


def rejection_sampling_acceptance(p: Sequence[float], q: Sequence[float]) -> float:
    """What one try of classic rejection sampling accepts, 1 / max(p/q) (appendix A.2).

    It accepts x ~ q with probability p(x) / (M q(x)), M = max p/q, so 1/M in all:
    Σ_x p(x) · min_x' q(x')/p(x') ≤ Σ min(p, q). Never better than `acceptance`.

    Args:
        p: The target's law, summing to 1.
        q: The proposal, over the same vocabulary, summing to 1.

    Returns:
        A probability in [0, 1]; 0 if q misses a token of p (then M is infinite).

    Raises:
        OptionError: Not two laws over one vocabulary.
    """
    target, proposal = domain.laws(p, q)
    kept = target > 0.0
    # min q/p and not 1 / max p/q: q may be 0. Capped first, since q/p may overflow.
    return float((np.minimum(proposal, target)[kept] / target[kept]).min())


def kl_divergence(p: Sequence[float], q: Sequence[float]) -> float:
    """The Kullback-Leibler divergence KL(p ‖ q) = Σ p ln(p/q), in nats.

    Args:
        p: A law, summing to 1; in its place the expectation is taken.
        q: A law over the same vocabulary, summing to 1.

    Returns:
        0 iff p = q, infinity if q misses a token of p.

    Raises:
        OptionError: Not two laws over one vocabulary.
    """
    first, second = domain.laws(p, q)
    kept = first > 0.0
    first, second = first[kept], second[kept]
    if not second.all():
        return math.inf
    # A difference of logarithms: the ratio of a normal to a subnormal number may overflow.
    return max(0.0, float((first * (np.log(first) - np.log(second))).sum()))
