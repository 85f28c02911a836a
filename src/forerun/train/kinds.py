"""The kinds of drafter that learn, one line each; what is listed here is tested as all are."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from forerun.train.exit import ExitLearner
from forerun.train.head_learner import HeadLearner
from forerun.train.learner import Learner
from forerun.train.medusa import MedusaLearner
from forerun.train.model_learner import ModelLearner

__all__ = ["KINDS"]

KINDS: Mapping[str, Callable[..., Learner]] = {
    "head": HeadLearner,
    "medusa": MedusaLearner,
    "exit": ExitLearner,
    "model": ModelLearner,
}
"""By name; each is made of the target, its passes, the text's recipe and its own options."""
