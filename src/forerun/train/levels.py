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

from forerun.errors import TrainingError
from forerun.models.model import Model
from forerun.models.target_checksum import target_checksum
from forerun.targets.protocol import Target
from forerun.train.evaluation import Measured, measure
from forerun.train.examples import Examples, Task
from forerun.train.learner import Progress, Taught, Text, Trained
from forerun.train.losses import LossName, learn
from forerun.train.network import Frozen, LevelNetwork, Weights
from forerun.train.options import LevelLearning
from forerun.train.shards import Recipe
from forerun.train.vocabulary import choose_tokens, ids_of, token_weights

__all__ = ["LevelsLearner"]

_DECAY_OF_LEVELS = 0.8
Chosen = TypeVar("Chosen", bound=LevelLearning)


class LevelsLearner(ABC, Generic[Chosen]):
    """A learner whose network makes what rows of the target's head are multiplied with.

    Args:
        model: The target.
        target: Its passes.
        recipe: Of the captured text.
        options: How to learn.

    Attributes:
        weights: What is learned.
        tokens: The draft's vocabulary, int64 [R]; known once text was taken.
        frozen: What the network takes from the target; likewise.

    Raises:
        TrainingError: The text is of another target.
    """

    name: str
    tokens: NDArray[np.int64]
    frozen: Frozen

    def __init__(self, model: Model, target: Target, recipe: Recipe, options: Chosen) -> None:
        if recipe.target != target_checksum(model):
            what = f"The captured text is of another target ({recipe.target_name})."
            raise TrainingError(what, f"Capture text of {model.name} into another folder.")
        self.model, self.target, self.recipe, self.options = model, target, recipe, options
        self.weights = self.initial()

    # ---- what a kind adds

    @abstractmethod
    def initial(self) -> Weights:
        """Return where training begins."""

    @abstractmethod
    def network(self, weights: Weights) -> LevelNetwork:
        """Return the network of some weights, over `frozen`."""

    @abstractmethod
    def export(self, trained: Trained, folder: Path) -> dict[str, object]:
        """Measure what came of it by the target's own passes, write its files, return its card."""

    def choose(self, text: Text) -> NDArray[np.int64]:
        """Return the draft's vocabulary: the tokens that the captured laws use most."""
        weights = token_weights(text.learned, self.recipe.vocab_size)
        return choose_tokens(weights, min(self.options.vocabulary, len(weights)))

    # ---- what they share

    def take(self, text: Text) -> None:
        """Learn from this text from now on; its vocabulary is chosen from it."""
        self.tokens = self.choose(text)
        ids = ids_of(self.tokens, self.recipe.vocab_size)
        self._examples = Examples(text.learned, ids)
        self._watched = Examples(text.watched, ids).task(range(len(text.watched)))
        self.frozen = Frozen.of(self.model, self.tokens)
        self._network = self.network(self.weights)
        head = self.frozen.head
        self._head = head if self.options.fp32 else head.bfloat16()

    def backward(self, places: Sequence[int], progress: Progress) -> Taught:
        """Learn from a batch; early, few levels deep and by cross-entropy."""
        # Deep guesses teach little before the first ones are any good.
        levels, options = self.options.levels, self.options
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
            learned = learn(output.to(self._head.dtype), self._head, task.level(level), loss)
            slopes.append(learned.slope.float() * (_DECAY_OF_LEVELS**level / rows))
            losses.append(float(learned.loss.mean()))
        torch.autograd.backward(outputs, slopes)
        return Taught(losses, rows)

    def measure(self) -> Measured:
        """Measure on the watched text, by the tokens that were kept: a lower bound of alpha."""
        return measure(self._network, self._watched, self.options.levels, not self.options.fp32)
