"""What is left of the target's law after a proposal had its chance."""

from __future__ import annotations

import numpy as np

from forerun.core.warp import Law

__all__ = ["odds", "residual"]


def residual(p: Law, q: Law) -> Law:
    """Return norm(max(0, p - q)) (Leviathan et al., 2023, section 2.3; Chen et al., 2023).

    Where nothing is left p = q, up to rounding: rejection has probability 0 there, and p is what a
    token must be drawn from if rounding still led here.
    """
    left = np.maximum(p - q, 0.0)
    total = float(left.sum())
    return left / total if total > 0 else p


def odds(left: float, reach: float) -> float:
    """Return S / (S + 1 - a): the chance of the next try, after one that left mass S of the target.

    Args:
        left: S, the target's mass that the failed proposal did not cover.
        reach: a, the probability with which the place had to be accepted.
    """
    missing = 1.0 - reach  # exact for a = 1, so that what is certain stays certain
    return left / (left + missing) if left + missing > 0 else 1.0
