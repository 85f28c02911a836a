"""What learns to be a small model: from captured text, then from its own drafts as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from forerun.models.model import Model
from forerun.targets.protocol import Target
from forerun.train.card import card_of
from forerun.train.draft_evaluation import measure_drafts
from forerun.train.examples import TextExamples
from forerun.train.learner import Progress, Taught, Text, Trained
from forerun.train.levels import FrozenHeadLearner
from forerun.train.model_files import write_model_files
from forerun.train.network import Weights
from forerun.train.options import ModelLearning
from forerun.train.own_drafts import OwnDrafts
from forerun.train.shards import Conversation, Recipe
from forerun.train.student import Student, chosen_layers, frozen_for, initial_student
from forerun.train.vocabulary import ids_of

__all__ = ["ModelLearner"]


class ModelLearner(FrozenHeadLearner[ModelLearning]):
    """Some of the target's layers over its embedding and head, as a model of its own.

    Args:
        model: The target.
        target: Its passes.
        recipe: Of the captured text.
        options: How to learn.

    Raises:
        TrainingError: The text is of another target.
        OptionError: The target has not all layers that are named.
    """

    name = "model"

    def __init__(
        self, model: Model, target: Target, recipe: Recipe, options: ModelLearning
    ) -> None:
        self.layers = chosen_layers(model, options.layers)
        super().__init__(model, target, recipe, options)

    @property
    def levels(self) -> int:
        """One: behind accepted guesses it reads what it reads behind any text."""
        return 1

    def initial(self) -> Weights:
        """Return the target's layers, one after the other."""
        return initial_student(self.model, self.layers)

    def network(self, weights: Weights) -> Student:
        """Return the model of some weights."""
        return Student(weights, frozen_for(self.frozen, len(self.layers)))

    def choose(self, text: Text) -> NDArray[np.int64]:
        """Return all tokens: it stands on its own."""
        return np.arange(self.recipe.vocab_size)

    def examples(self, conversations: Sequence[Conversation]) -> TextExamples:
        """Return conversations as batches of tokens."""
        return TextExamples(conversations, ids_of(self.tokens, self.recipe.vocab_size))

    def take(self, text: Text) -> None:
        """Learn from this text from now on, and draft from it."""
        super().take(text)
        self._text, self._student = text, self.network(self.weights)
        self._drafts = OwnDrafts(
            self.target,
            length=self.options.draft_tokens,
            top=self.recipe.top,
            seed=self.options.seed,
        )

    def backward(self, places: Sequence[int], progress: Progress) -> Taught:
        """Learn from a batch; late, from drafts that leave it as well."""
        options = self.options
        if progress.is_within(1 - options.own_drafts):
            return super().backward(places, progress)
        chosen = [self._text.learned[place] for place in places]
        with torch.autocast("cpu", torch.bfloat16, enabled=not options.fp32):
            task = self._drafts.task(self._student, self.head, chosen, progress.step)
        is_early = progress.is_within(options.cross_entropy)
        return self.teach(task, 1, "ce" if is_early else options.loss)

    def export(self, trained: Trained, folder: Path) -> dict[str, object]:
        """Write `model.gguf` and the folder `model-hf`, as far as the target's own files allow it.

        Raises:
            ModelFileError: They can't be written.
        """
        students = [self.network(self.initial()), self.network(trained.weights)]
        held_out, length = trained.text.held_out, self.options.draft_tokens
        before, measured = measure_drafts(students, self.target, held_out, length)
        told = {"tokens_per_pass": before.tokens_per_pass, **asdict(before)}
        own: dict[str, object] = {"layers": list(self.layers), "before": told}
        card = card_of("model", trained, self.options, measured, own)
        return write_model_files(
            self.model, len(self.layers), trained.weights, card, folder, self.options.weights
        )
