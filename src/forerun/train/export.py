"""What a training leaves: the head's file, and a card that says how it was made and its worth."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

import numpy as np

from forerun.models.head_file import HEAD, HeadFacts, write_head
from forerun.models.model import Model
from forerun.targets.protocol import Target
from forerun.train.evaluation import Measured, measure_exactly
from forerun.train.head import Network
from forerun.train.loop import Trained
from forerun.train.options import HeadLearning
from forerun.train.shards import Recipe

__all__ = ["card_of", "export_head"]


def export_head(
    trained: Trained,
    model: Model,
    target: Target,
    recipe: Recipe,
    options: HeadLearning,
    path: Path,
) -> dict[str, object]:
    """Measure a head exactly, write its file, and return its card.

    Args:
        trained: The training's result.
        model: The target.
        target: Its passes.
        recipe: Of the text it learned from.
        options: Of the training.
        path: Of the file.

    Raises:
        ModelFileError: It can't be written.
    """
    network = Network(trained.weights, trained.frozen)
    measured = measure_exactly(
        network, model, target, trained.held_out, trained.tokens, options.levels
    )
    card = card_of(trained, recipe, options, measured)
    facts = HeadFacts(recipe.target, recipe.target_name, recipe.layers, trained.tokens, card)
    tensors = {name: values.numpy().astype(np.float32) for name, values in trained.weights.items()}
    if options.weights != "Q8_0":
        tensors[HEAD] = trained.frozen.head.numpy().astype(np.float32)
    write_head(path, tensors, facts, options.weights)
    return card


def card_of(
    trained: Trained, recipe: Recipe, options: HeadLearning, measured: Measured
) -> dict[str, object]:
    """Return how a head was made and what it is worth, as plain data."""
    return {
        "kind": "eagle3",
        "target": {"name": recipe.target_name, "sha256": recipe.target},
        "features": list(recipe.layers),
        "vocabulary": len(trained.tokens),
        "data": {
            "tokens": trained.captured,
            "temperatures": list(recipe.temperatures),
            "seed": recipe.seed,
            "own_prompts": not recipe.prompts,
        },
        "training": {
            **options.model_dump(exclude={"folder", "plot", "threads"}),
            "learned_tokens": trained.learned,
            "hours": round(trained.seconds / 3600, 3),
            "finished": trained.is_over,
        },
        "held_out": {
            "conversations": len(trained.held_out),
            "tokens_per_pass": measured.tokens_per_pass,
            **asdict(measured),
        },
        "made": time.strftime("%Y-%m-%d"),
    }
