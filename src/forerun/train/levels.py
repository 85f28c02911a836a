"""Learners that guess several tokens over some rows of the target's head, which stay as they are.

A kind of drafter adds its network, the weights that it begins with, and its files.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from forerun.models.model import Model
from forerun.targets.protocol import Target
from forerun.train.evaluation import Measured, measure
from forerun.train.examples import Examples, Task
from forerun.train.learner import Progress, Taught, Text, Trained
from forerun.train.losses import LossName, learn
from forerun.train.network import Frozen, LevelNetwork, Weights
from forerun.train.options import Learning, LevelLearning
from forerun.train.shards import Conversation, Recipe
from forerun.train.vocabulary import choose_tokens, ids_of, token_weights

__all__ = ["FrozenHeadLearner", "LevelsLearner"]

_DECAY_OF_LEVELS = 0.8
Options = TypeVar("Options", bound=Learning)
Chosen = TypeVar("Chosen", bound=LevelLearning)


class FrozenHeadLearner(ABC, Generic[Options]):
    """A learner whose network makes what rows of the target's head are multiplied with.

    Args:
        model: The target.
        target: Its passes.
        recipe: Of the captured text.
        options: How to learn.

    Attributes:
        name: Of its kind.
        weights: What is learned.
        tokens: The draft's vocabulary, int64 [R]; known once text was taken.
        frozen: What the network takes from the target; likewise.

    Raises:
        TrainingError: The text is of another target.
    """

    name: str
    tokens: NDArray[np.int64]
    frozen: Frozen

    def __init__(self, model: Model, target: Target, recipe: Recipe, options: Options) -> None:
        recipe.check_of(model)
        self.model, self.target, self.recipe, self.options = model, target, recipe, options
        self.weights = self.initial()

    # ---- what a kind adds

    @property
    @abstractmethod
    def levels(self) -> int:
        """Guesses in a row that it learns to make."""

    @abstractmethod
    def initial(self) -> Weights:
        """Return where training begins."""

    @abstractmethod
    def network(self, weights: Weights) -> LevelNetwork:
        """Return the network of some weights, over `frozen`."""

    @abstractmethod
    def export(self, trained: Trained, folder: Path) -> dict[str, object]:
        """Measure what came of it by the target's own passes, write its files, return its card."""

    @abstractmethod
    def choose(self, text: Text) -> NDArray[np.int64]:
        """Return the draft's vocabulary."""

    def examples(self, conversations: Sequence[Conversation]) -> Examples:
        """Return conversations as batches."""
        return Examples(conversations, ids_of(self.tokens, self.recipe.vocab_size))

    # ---- what they share

    def take(self, text: Text) -> None:
        """Learn from this text from now on; its vocabulary is chosen from it."""
        self.tokens = self.choose(text)
        self._examples = self.examples(text.learned)
        self._watched = self.examples(text.watched).task(range(len(text.watched)))
        self.frozen = Frozen.of(self.model, self.tokens)
        self._network = self.network(self.weights)
        head = self.frozen.head
        self.head = head if self.options.fp32 else head.bfloat16()

    def backward(self, places: Sequence[int], progress: Progress) -> Taught:
        """Learn from a batch; early, few levels deep and by cross-entropy."""
        # Deep guesses teach little before the first ones are any good.
        levels, options = self.levels, self.options
        if progress.is_within(options.cross_entropy):
            return self.teach(self._examples.task(places), min(levels, 2), "ce")
        return self.teach(self._examples.task(places), levels, options.loss)

    def teach(self, task: Task, levels: int, loss: LossName) -> Taught:
        """Add the slopes of a batch's losses to the weights'."""
        with torch.autocast("cpu", torch.bfloat16, enabled=not self.options.fp32):
            outputs = self._network.levels(task.batch, levels)
        rows = len(task.laws.rest)
        slopes, losses = [], []
        for level, output in enumerate(outputs):
            learned = learn(output.to(self.head.dtype), self.head, task.level(level), loss)
            slopes.append(learned.slope.float() * (_DECAY_OF_LEVELS**level / rows))
            losses.append(float(learned.loss.mean()))
        torch.autograd.backward(outputs, slopes)
        return Taught(losses, rows)

    def measure(self) -> Measured:
        """Measure on the watched text, by the tokens that were kept: a lower bound of alpha."""
        return measure(self._network, self._watched, self.levels, not self.options.fp32)


class LevelsLearner(FrozenHeadLearner[Chosen]):
    """A learner that guesses several levels deep, over a vocabulary of its own."""

    @property
    def levels(self) -> int:
        """Guesses in a row that it learns to make."""
        return self.options.levels

    def choose(self, text: Text) -> NDArray[np.int64]:
        """Return the draft's vocabulary: the tokens that the captured laws use most."""
        weights = token_weights(text.learned, self.recipe.vocab_size)
        return choose_tokens(weights, min(self.options.vocabulary, len(weights)))
