"""How many hours become a capture and a training: by what this machine does in a second.

The plan is written down before anything else is, so that whoever is killed goes on with the same.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from forerun.errors import ModelFileError, TrainingError
from forerun.models.model import Model
from forerun.targets.protocol import Target
from forerun.train.capture import capture_rate, recipe_of
from forerun.train.folder import read_record, write_record
from forerun.train.head_learner import HeadLearner
from forerun.train.learner import Text
from forerun.train.loop import learning_rate
from forerun.train.options import Capturing, HeadLearning, Hours
from forerun.train.shards import Conversation, Recipe

__all__ = ["Plan", "plan_for"]

_TO_CAPTURE = 0.4  # of the time; a token of text teaches more the first time than the third
_TO_LEARN = 0.5  # the rest goes into looks at held-out text, and the last one
_MOST_TEXT = 5_000_000  # tokens: past that, time goes into learning
_PROBED = 12  # passes, or steps


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be done.

    Attributes:
        hours: That it was made for.
        tokens: To capture.
        budget: To learn from, repeats counted.
    """

    hours: float
    tokens: int
    budget: int

    def text(self) -> str:
        """Return it in words."""
        return f"Capture {self.tokens:,} tokens, then learn from {self.budget:,}."


def plan_for(model: Model, target: Target, options: Hours) -> Plan:
    """Return a folder's plan; the first time it is made and written down.

    Args:
        model: The target.
        target: Its passes.
        options: The hours, and the folder.

    Raises:
        TrainingError: The folder has a plan for other hours, or a damaged one.
    """
    path = Path(options.folder) / "plan.json"
    try:
        record: Any = read_record(path)
    except ModelFileError as error:
        raise TrainingError(error.what, "Delete the file to plan anew.") from None
    if record is not None:
        try:
            plan = Plan(**record)
        except TypeError:
            raise TrainingError(f"{path} holds no plan.", "Delete it to plan anew.") from None
        if plan.hours != options.hours:
            what = f"{options.folder} has a plan for {plan.hours} hours, not {options.hours}."
            raise TrainingError(what, "Give the same, or name another folder.")
        return plan
    seconds = options.hours * 3600
    captured = capture_rate(model, target, Capturing(), _PROBED)
    recipe = recipe_of(model, Capturing(), [])
    learning = HeadLearning(threads=options.threads)
    learner = HeadLearner(model, target, recipe, learning)
    learned = learning_rate(learner, _random_text(recipe), learning, _PROBED)
    tokens = min(int(_TO_CAPTURE * seconds * captured), _MOST_TEXT)
    left = seconds * (1 - 0.1) - tokens / captured
    plan = Plan(options.hours, max(tokens, 2000), max(int(left * learned), 1000))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_record(path, asdict(plan))
    return plan


def _random_text(recipe: Recipe) -> Text:
    """Text of a usual length that says nothing: a step takes as long on it as on any."""
    random, length = np.random.default_rng(0), 256
    width = len(recipe.layers) * recipe.width
    conversations = [
        Conversation(
            number=number,
            temperature=1.0,
            answer=length // 4,
            tokens=random.integers(recipe.vocab_size, size=length, dtype=np.int32),
            features=random.standard_normal((length, width)).astype(np.float16),
            likely=random.integers(recipe.vocab_size, size=(length, recipe.top), dtype=np.int32),
            log_p=np.full((length, recipe.top), -5, np.float16),
            rest=np.zeros(length, np.float32),
        )
        for number in range(2)
    ]
    return Text(recipe, conversations, conversations, 2 * length)
