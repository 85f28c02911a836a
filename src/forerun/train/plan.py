"""How some hours are kept: a share of them for capture, and what is left for learning.

A trial of a few passes says how much a capture may bring, and no more: it ends when its share of
the time does. Learning is then given the rest, less what measuring the result takes, which is
tried. Whatever follows from a clock is written down before it is acted on, so that whoever is
killed goes on with the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Annotated

from pydantic import Field, with_config

from forerun.errors import TrainingError
from forerun.models.model import Model
from forerun.targets.protocol import Target
from forerun.train.capture import CaptureNews, capture_rate
from forerun.train.evaluation import measure_exactly
from forerun.train.examples import split
from forerun.train.folder import AS_WRITTEN, read_record, write_record
from forerun.train.head_learner import HeadLearner
from forerun.train.learner import Text
from forerun.train.loop import HELD_OUT
from forerun.train.options import Capturing, HeadLearning, Hours
from forerun.train.shards import Shards

__all__ = ["Plan", "Schedule", "seconds_to_measure"]

_TO_CAPTURE = 0.4  # of the time; a token of text teaches more the first time than the third
_LEAST_TO_LEARN = 0.1
_SLACK = 0.02  # for writing files
_MOST_TEXT = 5_000_000  # tokens: past that, time goes into learning
_LEAST_TEXT = 2000
_PASSES = 12  # of the trial
_TRIED = 3  # held-out conversations


@with_config(AS_WRITTEN)
@dataclass(frozen=True, slots=True)
class Plan:
    """What will be done.

    Attributes:
        hours: That it was made for.
        tokens: To capture at most; as many as were captured, once that is over.
        spent: Seconds of work so far, as of the last shard.
        learning: Seconds to learn for; None until the capture is over.
    """

    hours: Annotated[float, Field(gt=0)]
    tokens: Annotated[int, Field(ge=1)]
    spent: Annotated[float, Field(ge=0)] = 0.0
    learning: Annotated[float, Field(ge=0)] | None = None

    def text(self) -> str:
        """Return it in words."""
        if self.learning is not None:
            return f"{self.tokens:,} tokens are captured; learn for {_minutes(self.learning)}."
        capture = _minutes(_TO_CAPTURE * 3600 * self.hours)
        whole = _minutes(3600 * self.hours)
        return f"Capture for {capture}, at most {self.tokens:,} tokens; then learn. {whole} in all."


class Schedule:
    """A folder's plan, and the time that goes into it; the first time it is made and written down.

    Args:
        model: The target.
        target: Its passes.
        options: The hours, and the folder.

    Attributes:
        plan: As it is written down.
        has_text: Whether the capture's time is up.

    Raises:
        TrainingError: The folder has a plan for other hours, or a damaged one.
    """

    def __init__(self, model: Model, target: Target, options: Hours) -> None:
        self._path = Path(options.folder) / "plan.json"
        self._began = monotonic()
        self.has_text = False
        known = read_record(self._path, Plan, "Delete the file to plan anew.")
        if known is None:
            rate = capture_rate(model, target, Capturing(), _PASSES)
            tokens = min(int(_TO_CAPTURE * 3600 * options.hours * rate), _MOST_TEXT)
            self._path.parent.mkdir(parents=True, exist_ok=True)
            known = Plan(options.hours, max(tokens, _LEAST_TEXT))
            self._write(known)
        elif known.hours != options.hours:
            what = f"{options.folder} has a plan for {known.hours} hours, not {options.hours}."
            raise TrainingError(what, "Give the same, or name another folder.")
        self.plan = known
        self._before = known.spent

    def captured(self, news: CaptureNews) -> None:
        """Note the time of a shard; the text is complete if it is up."""
        if not news.written:  # what was there before
            return
        spent = self._before + monotonic() - self._began
        self.has_text = spent >= _TO_CAPTURE * 3600 * self.plan.hours
        tokens = news.tokens if self.has_text else self.plan.tokens
        self._write(replace(self.plan, tokens=tokens, spent=spent))

    def learning(self, behind: Callable[[], float]) -> float:
        """Return for how many seconds to learn, once the capture is over.

        Args:
            behind: Tells how many seconds follow the last step.
        """
        if self.plan.learning is None:
            whole, last = 3600 * self.plan.hours, behind()
            spent = self._before + monotonic() - self._began
            left = whole * (1 - _SLACK) - spent - last
            seconds = max(left, whole * _LEAST_TO_LEARN)
            self._write(replace(self.plan, spent=spent, learning=seconds))
        assert self.plan.learning is not None
        return self.plan.learning

    def _write(self, plan: Plan) -> None:
        write_record(self._path, asdict(plan))
        self.plan = plan


def seconds_to_measure(model: Model, target: Target, options: HeadLearning) -> float:
    """Return how long the last look and measuring by enumeration will take; both are tried.

    Args:
        model: The target.
        target: Its passes.
        options: Of the training, the folder among them.
    """
    shards = Shards(Path(options.folder))
    learned, held_out = split(list(shards.conversations()), HELD_OUT)
    if not learned or not held_out:
        return 0.0  # too little text, as the training will say
    learner = HeadLearner(model, target, shards.recipe, options)
    learner.take(Text(shards.recipe, learned, held_out, shards.num_tokens))
    began = monotonic()
    learner.measure()
    looked = monotonic()
    network, some = learner.network(learner.weights), held_out[:_TRIED]
    measure_exactly(network, target, some, learner.tokens, options.levels)
    share = sum(len(each.tokens) for each in some) / sum(len(each.tokens) for each in held_out)
    return looked - began + (monotonic() - looked) / share


def _minutes(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:.1f} hours" if hours >= 2 else f"{seconds / 60:.1f} minutes"
