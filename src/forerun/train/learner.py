"""What the training loop knows of a drafter that learns: its name, its weights, four questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from forerun.train.evaluation import Look, Measured
from forerun.train.network import Weights
from forerun.train.shards import Conversation, Recipe

__all__ = ["Learner", "Progress", "Taught", "Text", "Trained", "TrainingNews"]

_WATCHED = 48  # held-out conversations that are looked at as it goes


@dataclass(frozen=True, slots=True)
class Text:
    """What an epoch learns from.

    Attributes:
        recipe: What the text is of.
        learned: Conversations to learn from.
        held_out: Those that are never learned from.
        tokens: Of all shards.
    """

    recipe: Recipe
    learned: Sequence[Conversation]
    held_out: Sequence[Conversation]
    tokens: int

    @property
    def watched(self) -> Sequence[Conversation]:
        """The held-out conversations that are looked at as it goes."""
        return self.held_out[:_WATCHED]


class Progress(NamedTuple):
    """How far a training is, before a step.

    Attributes:
        step: Steps made.
        learned: Tokens that were learned from, repeats counted.
        budget: When it ends.
    """

    step: int
    learned: int
    budget: int

    def is_within(self, share: float) -> bool:
        """Whether it is in the first part of its budget, of that share."""
        return self.learned < share * self.budget


class Taught(NamedTuple):
    """What a batch taught.

    Attributes:
        losses: Means over its rows; one for each guess of a draft.
        rows: Tokens that were learned from.
    """

    losses: list[float]
    rows: int


class Learner(Protocol):
    """A drafter that learns. Its state is its weights; all else follows from options and text.

    Attributes:
        name: Of its kind, such as `head`: so the folder of its state and its files are called.
        weights: What is learned. The loop changes them in place.
    """

    name: str
    weights: Weights

    def take(self, text: Text) -> None:
        """Learn from this text from now on."""

    def backward(self, places: Sequence[int], progress: Progress) -> Taught:
        """Add the slopes of a batch's losses to those of the weights.

        Args:
            places: Which of `text.learned` make it up.
            progress: How far the training is.
        """

    def measure(self) -> Measured:
        """Measure on `text.watched`."""

    def export(self, trained: Trained, folder: Path) -> dict[str, object]:
        """Measure what came of it by the target's own passes, write its files, return its card."""


@dataclass(frozen=True, slots=True)
class TrainingNews:
    """How far a training is.

    Attributes:
        step: Steps made.
        learned: Tokens that were learned from, repeats counted.
        wanted: When it ends.
        loss: Of the last step, at the first guess.
        rate: Tokens a second.
        held_out: What was last measured on held-out text.
        is_look: Whether that was now.
    """

    step: int
    learned: int
    wanted: int
    loss: float
    rate: float
    held_out: Measured | None
    is_look: bool = False

    def as_json(self) -> dict[str, object]:
        """Return it as plain data."""
        return asdict(self)

    def text(self) -> str:
        """Return it in words."""
        told = f"{self.learned:,} of {self.wanted:,} tokens, {self.rate:,.0f} tokens/s"
        told += f", loss {self.loss:.3f}"
        return f"{told}; held out: {self.held_out.text()}" if self.held_out else told


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """What came of a training.

    Attributes:
        learner: Who learned; it has taken the last epoch's text.
        weights: The best ones on held-out text.
        text: Of the last epoch.
        history: One record for each look at held-out text.
        learned: Tokens learned from, repeats counted.
        budget: How many there were to be.
        seconds: That all of it took.
        is_over: Whether it came to its end.
    """

    learner: Learner
    weights: Weights
    text: Text
    history: Sequence[Look]
    learned: int
    budget: int
    seconds: float
    is_over: bool
