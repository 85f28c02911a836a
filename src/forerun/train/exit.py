"""An exit that learns: an adapter behind the target's first layers, and the file it becomes.

The adapter is a feed-forward, where Kangaroo (Liu et al. 2024) has attention: the layers below have
attended already, and without keys and values it costs nothing but its products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from forerun.errors import TrainingError
from forerun.models.head_file import HeadFacts, write_head
from forerun.models.head_shapes import EXIT, HEAD
from forerun.train.card import card_of
from forerun.train.evaluation import measure_exactly
from forerun.train.learner import Progress, Taught, Text, Trained
from forerun.train.levels import LevelsLearner
from forerun.train.network import Batch, Frozen, Weights
from forerun.train.options import ExitLearning
from forerun.train.shards import Conversation

__all__ = ["ExitLearner", "ExitNetwork"]


class ExitNetwork:
    """Computes what an adapter makes of a text.

    Args:
        weights: Its tensors; whoever changes them changes what is computed next.
        frozen: What it takes from the target.
    """

    def __init__(self, weights: Weights, frozen: Frozen) -> None:
        self.weights, self.frozen = weights, frozen

    def levels(self, batch: Batch, count: int) -> list[torch.Tensor]:
        """Return what the head's matrix is multiplied with, for guesses 1 to `count` of a draft.

        Each guess is made like the first: the first layers run over those before it as over the
        text. So level s is the first without each conversation's first s rows.

        Args:
            batch: Its features are of each row's own token.
            count: How many levels.
        """
        states = batch.features.float()
        n = self._rms(states, "input_layernorm")
        gate = functional.silu(functional.linear(n, self.weights["mlp.gate_proj.weight"]))
        up = functional.linear(n, self.weights["mlp.up_proj.weight"])
        down = functional.linear(gate * up, self.weights["mlp.down_proj.weight"])
        x = self._rms(states + down.float(), "norm")
        outputs = []
        for level in range(count):
            spans = [(line.rows.start + line.first, line.rows.stop) for line in batch.lines]
            rows = torch.cat([torch.arange(start + level, stop) for start, stop in spans])
            outputs.append(x[rows])
        return outputs

    def _rms(self, x: torch.Tensor, name: str) -> torch.Tensor:
        weight = self.weights[f"{name}.weight"]
        epsilon = self.frozen.architecture.norm_epsilon
        return functional.rms_norm(x, (len(weight),), weight, epsilon)


class ExitLearner(LevelsLearner[ExitLearning]):
    """An adapter behind one of the captured layers."""

    name = "exit"

    def initial(self) -> Weights:
        """Return the feed-forward of the target's last layer, which adds nothing yet.

        Raises:
            TrainingError: The layer asked for was not captured.
        """
        layers = self.recipe.layers
        first = next((layer for layer in layers if layer), layers[0])
        self.layer = first if self.options.layer is None else self.options.layer
        if self.layer not in layers:
            captured = ", ".join(map(str, layers))
            what = f"layer = {self.layer}: what was captured enters {captured}."
            raise TrainingError(what, f"Choose of them, or capture with --layers {self.layer}.")

        def tensor(name: str) -> torch.Tensor:
            return torch.from_numpy(self.model.file.tensor(name))

        last = f"blk.{self.model.architecture.num_layers - 1}."
        weights = {
            "input_layernorm.weight": tensor(f"{last}ffn_norm.weight"),
            "mlp.gate_proj.weight": tensor(f"{last}ffn_gate.weight"),
            "mlp.up_proj.weight": tensor(f"{last}ffn_up.weight"),
            "mlp.down_proj.weight": torch.zeros_like(tensor(f"{last}ffn_down.weight")),
            "norm.weight": tensor("output_norm.weight"),
        }
        return {name: values.clone() for name, values in weights.items()}

    def network(self, weights: Weights) -> ExitNetwork:
        """Return the adapter of some weights."""
        return ExitNetwork(weights, self.frozen)

    def take(self, text: Text) -> None:
        """Learn from this text from now on."""
        learned, held_out = (self._own(part) for part in (text.learned, text.held_out))
        super().take(replace(text, learned=learned, held_out=held_out))

    def backward(self, places: Sequence[int], progress: Progress) -> Taught:
        """Learn from a batch; its guesses are all made alike, so the first ones teach all."""
        options = self.options
        is_early = progress.is_within(options.cross_entropy)
        return self.teach(self._examples.task(places), 1, "ce" if is_early else options.loss)

    def export(self, trained: Trained, folder: Path) -> dict[str, object]:
        """Write `exit.gguf`, with its card inside.

        Raises:
            ModelFileError: It can't be written.
        """
        recipe, options, tokens = self.recipe, self.options, self.tokens
        network, held_out = self.network(trained.weights), self._own(trained.text.held_out)
        measured = measure_exactly(network, self.target, held_out, tokens, options.levels)
        own = {"layer": self.layer, "vocabulary": len(tokens)}
        card = card_of(EXIT, trained, options, measured, own)
        facts = HeadFacts(recipe.target, recipe.target_name, (self.layer,), tokens, card, EXIT)
        tensors = {n: values.numpy().astype(np.float32) for n, values in trained.weights.items()}
        if options.weights != "Q8_0":
            tensors[HEAD] = self.frozen.head.numpy().astype(np.float32)
        write_head(folder / "exit.gguf", tensors, facts, options.weights)
        return card

    def _own(self, conversations: Sequence[Conversation]) -> list[Conversation]:
        """Return conversations whose features are of the layer, each moved to the place before.

        There a batch looks for what is known of a row, which is here the row's own token.
        """
        begin = self.recipe.layers.index(self.layer) * self.recipe.width
        columns = slice(begin, begin + self.recipe.width)
        return [replace(each, features=each.features[1:, columns]) for each in conversations]
