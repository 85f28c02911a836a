"""The targets that pass the conformance suite: one line a target, made when its tests begin."""

from __future__ import annotations

from collections.abc import Callable

from forerun.targets.protocol import Target
from forerun.targets.toy import ToyTarget

__all__ = ["TARGETS"]

# Each has at least 5 tokens of vocabulary and 40 of context, and is small: the suite runs some
# thousand passes. Order 4, so that a wrong ancestor is seen several rows later.
TARGETS: dict[str, Callable[[], Target]] = {
    "toy": lambda: ToyTarget.random(6, 4, 5, context=64),
}
