"""What learns to be a head: its network, where it begins, and the file it becomes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from forerun.models.head_file import HEAD, HeadFacts, write_head
from forerun.train.card import card_of
from forerun.train.evaluation import measure_exactly
from forerun.train.head import Network, initial_weights
from forerun.train.learner import Trained
from forerun.train.levels import LevelsLearner
from forerun.train.network import Weights
from forerun.train.options import HeadLearning

__all__ = ["HeadLearner"]


class HeadLearner(LevelsLearner[HeadLearning]):
    """A decoder layer over the target's features, unrolled over its own outputs."""

    name = "head"

    def initial(self) -> Weights:
        """Return the target's last layer, reading the last feature."""
        return initial_weights(self.model, len(self.recipe.layers), self.options.seed)

    def network(self, weights: Weights) -> Network:
        """Return the head of some weights."""
        return Network(weights, self.frozen)

    def export(self, trained: Trained, folder: Path) -> dict[str, object]:
        """Write `head.gguf`, with its card inside.

        Raises:
            ModelFileError: It can't be written.
        """
        recipe, options, tokens = self.recipe, self.options, self.tokens
        measured = measure_exactly(
            self.network(trained.weights),
            self.target,
            trained.text.held_out,
            tokens,
            options.levels,
        )
        own = {"features": list(recipe.layers), "vocabulary": len(tokens)}
        card = card_of("eagle3", trained, options, measured, own)
        facts = HeadFacts(recipe.target, recipe.target_name, recipe.layers, tokens, card)
        tensors = {n: values.numpy().astype(np.float32) for n, values in trained.weights.items()}
        if options.weights != "Q8_0":
            tensors[HEAD] = self.frozen.head.numpy().astype(np.float32)
        write_head(folder / "head.gguf", tensors, facts, options.weights)
        return card
