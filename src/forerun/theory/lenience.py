"""What the one lossy rule does to the law, so that its distance is known and not guessed.

Source: Leviathan, Kalman and Matias 2023, appendix A.5. Lenience l in (0, 1] multiplies q where
Algorithm 1 tests a draft: a token drawn from q is accepted with probability min(1, p/(l q)), else
one is drawn from norm(max(0, p − q)), as in the exact rule, which is l = 1. So only tokens with
p < q gain, and the law moves by α_l − α; a residual of p − l q would move it further.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from forerun.errors import OptionError
from forerun.theory import domain
from forerun.theory.acceptance import kl_divergence, lk_divergence

__all__ = ["lenient_acceptance", "lenient_distance", "lenient_kl", "lenient_law"]


def lenient_acceptance(p: Sequence[float], q: Sequence[float], lenience: float) -> float:
    """α_l = Σ min(p/l, q), the acceptance of one position under lenience l (appendix A.5).

    Args:
        p: The target's law, summing to 1.
        q: The proposal, over the same vocabulary, summing to 1.
        lenience: l in (0, 1].

    Returns:
        A probability, never below `acceptance(p, q)` and equal to it at l = 1.

    Raises:
        OptionError: Not two laws over one vocabulary, or l outside (0, 1].
    """
    target, proposal = domain.laws(p, q)
    return min(1.0, float(_accepted(target, proposal, _lenience(lenience)).sum()))


def lenient_law(p: Sequence[float], q: Sequence[float], lenience: float) -> list[float]:
    """The law of the token that one step of the lenient rule emits (appendix A.5).

    min(p/l, q) + (1 − α_l) · norm(max(0, p − q)). No token's probability exceeds p/l.

    Args:
        p: The target's law, summing to 1.
        q: The proposal, over the same vocabulary, summing to 1.
        lenience: l in (0, 1]; at 1 the result is p.

    Returns:
        Probabilities, one per token of the vocabulary.

    Raises:
        OptionError: Not two laws over one vocabulary, or l outside (0, 1].
    """
    target, proposal = domain.laws(p, q)
    lenience = _lenience(lenience)
    accepted = _accepted(target, proposal, lenience)
    residual = np.maximum(0.0, target - proposal)
    total = float(residual.sum())
    if total > 0.0:  # else p = q, and nothing is ever rejected
        accepted += max(0.0, 1.0 - float(accepted.sum())) / total * residual
    return [float(mass) for mass in np.minimum(1.0, accepted)]


def lenient_distance(p: Sequence[float], q: Sequence[float], lenience: float) -> float:
    """The total variation distance of one lenient step from the target's law, α_l − α.

    Tokens with p < q gain min(p/l, q) − p each, which sums to α_l − α; all others lose.

    Args:
        p: The target's law, summing to 1.
        q: The proposal, over the same vocabulary, summing to 1.
        lenience: l in (0, 1]; at 1 the distance is 0.

    Returns:
        A distance in [0, 1], at most min(D_LK(p, q), 1 − l).

    Raises:
        OptionError: Not two laws over one vocabulary, or l outside (0, 1].
    """
    return lk_divergence(lenient_law(p, q, lenience), p)


def lenient_kl(p: Sequence[float], q: Sequence[float], lenience: float) -> float:
    """The divergence KL(lenient law ‖ p) of one step, in nats.

    Finite, since no token's probability exceeds p/l: at most ln(1/l).

    Args:
        p: The target's law, summing to 1.
        q: The proposal, over the same vocabulary, summing to 1.
        lenience: l in (0, 1]; at 1 the divergence is 0.

    Returns:
        `kl_divergence(lenient_law(p, q, l), p)`.

    Raises:
        OptionError: Not two laws over one vocabulary, or l outside (0, 1].
    """
    return kl_divergence(lenient_law(p, q, lenience), p)


def _accepted(target: domain.Law, proposal: domain.Law, lenience: float) -> domain.Law:
    """min(p/l, q): the probability that each token is drafted and accepted."""
    # As min(p, l q) / l, since p/l may overflow; where q is the smaller one, q itself, unrounded.
    capped = np.minimum(target, lenience * proposal) / lenience
    return np.where(target >= lenience * proposal, proposal, capped)


def _lenience(value: float) -> float:
    number = domain.positive("lenience", value)
    if number > 1.0:
        raise OptionError(f"lenience is {number}.", "Give a number above 0 and up to 1.")
    return number
