"""Parallel heads that learn (Medusa: Cai et al. 2024): their network, and the file it becomes.

Head s reads the target's last hidden state s tokens before the last but one, and all heads share
some rows of the target's own head, which stay as they are. So each has a matrix and a bias to
learn, and begins with zeros: with what the target itself would say next.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from forerun.errors import TrainingError
from forerun.models.head_file import HeadFacts, write_head
from forerun.models.head_shapes import HEAD, MEDUSA, MedusaShape
from forerun.train.card import card_of
from forerun.train.evaluation import measure_exactly
from forerun.train.last_layer import LastLayer
from forerun.train.learner import Progress, Taught, Trained
from forerun.train.levels import LevelsLearner
from forerun.train.network import Batch, Frozen, Weights
from forerun.train.options import MedusaLearning

__all__ = ["MedusaLearner", "MedusaNetwork"]


class MedusaNetwork:
    """Computes what all heads make of a text.

    Args:
        weights: Their tensors; whoever changes them changes what is computed next.
        frozen: What they take from the target.
        norm: The target's final one, float32 [width].
        last: Its last layer, if the features are what enters it; None if they are what leaves it.
    """

    def __init__(
        self, weights: Weights, frozen: Frozen, norm: torch.Tensor, last: LastLayer | None
    ) -> None:
        self.weights, self.frozen = weights, frozen
        self._norm, self._last = norm, last

    def levels(self, batch: Batch, count: int) -> list[torch.Tensor]:
        """Return what the head's matrix is multiplied with, for heads 0 to `count` - 1.

        Level s has, of each conversation, a row for each token of the answer but the first s: the
        rows that guess it, [rows, width].
        """
        x = self._states(batch)
        starts = [line.rows.start + line.first for line in batch.lines]
        stops = [line.rows.stop for line in batch.lines]
        outputs = []
        for level in range(count):
            spans = zip(starts, stops, strict=True)
            read = x[torch.cat([torch.arange(start, stop - level) for start, stop in spans])]
            product, bias = (self.weights[f"{level}.0.linear.{x}"] for x in ("weight", "bias"))
            outputs.append(read + functional.silu(functional.linear(read, product, bias)).float())
        return outputs

    def _states(self, batch: Batch) -> torch.Tensor:
        """Return the target's last hidden states, normed, float32 [rows, width]."""
        width = self._norm.shape[0]
        # Features are of the position before the row's token, and so are the states.
        states = batch.features[:, -width:].float()
        if self._last is not None:
            states = self._last(states, batch.positions - 1, batch.lines)
        epsilon = self.frozen.architecture.norm_epsilon
        return functional.rms_norm(states, (width,), self._norm, epsilon)


class MedusaLearner(LevelsLearner[MedusaLearning]):
    """Parallel heads, as many as levels are asked for."""

    name = "medusa"

    def initial(self) -> Weights:
        """Return zeros.

        Raises:
            TrainingError: What enters the last layer was not captured, nor what leaves it.
        """
        layers, count = self.recipe.layers, self.model.architecture.num_layers
        if layers[-1] not in (count - 1, count):
            raise TrainingError(
                f"Of the target's {count} layers, {layers[-1]} is the last of which anything was "
                "captured, and parallel heads read what leaves the last one.",
                f"Capture with --layers {count}, or {count - 1}.",
            )
        self._norm = torch.from_numpy(self.model.file.tensor("output_norm.weight"))
        shape = MedusaShape(self.model.architecture.width, self.options.levels)
        return {name: torch.zeros(size) for name, size in shape.tensors(1).items()}

    def network(self, weights: Weights) -> MedusaNetwork:
        """Return the heads of some weights."""
        is_entered = self.recipe.layers[-1] < self.model.architecture.num_layers
        last = LastLayer(self.model, self.frozen) if is_entered else None
        return MedusaNetwork(weights, self.frozen, self._norm, last)

    def backward(self, places: Sequence[int], progress: Progress) -> Taught:
        """Learn from a batch, all heads from the beginning: none waits for another."""
        options = self.options
        is_early = progress.is_within(options.cross_entropy)
        task = self._examples.task(places)
        return self.teach(task, options.levels, "ce" if is_early else options.loss)

    def export(self, trained: Trained, folder: Path) -> dict[str, object]:
        """Write `medusa.gguf`, with its card inside.

        Raises:
            ModelFileError: It can't be written.
        """
        recipe, options, tokens = self.recipe, self.options, self.tokens
        network = self.network(trained.weights)
        held_out = trained.text.held_out
        measured = measure_exactly(network, self.target, held_out, tokens, options.levels)
        card = card_of(MEDUSA, trained, options, measured, {"vocabulary": len(tokens)})
        layers = (self.model.architecture.num_layers,)
        facts = HeadFacts(recipe.target, recipe.target_name, layers, tokens, card, MEDUSA)
        tensors = {n: values.numpy().astype(np.float32) for n, values in trained.weights.items()}
        if options.weights != "Q8_0":
            tensors[HEAD] = self.frozen.head.numpy().astype(np.float32)
        write_head(folder / "medusa.gguf", tensors, facts, options.weights)
        return card
