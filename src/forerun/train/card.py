"""What lies beside a drafter's weights: a card that says how it was made and what it is worth."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict

from forerun.train.evaluation import Measured
from forerun.train.learner import Trained
from forerun.train.options import Learning

__all__ = ["card_of"]


def card_of(
    kind: str,
    trained: Trained,
    options: Learning,
    measured: Measured,
    own: Mapping[str, object],
) -> dict[str, object]:
    """Return how a drafter was made and what it is worth, as plain data.

    Args:
        kind: What it is.
        trained: The training's result.
        options: Of the training.
        measured: On held-out text, by enumeration.
        own: What is to say of this kind besides.
    """
    recipe = trained.text.recipe
    return {
        "kind": kind,
        "target": {"name": recipe.target_name, "sha256": recipe.target},
        **own,
        "data": {
            "tokens": trained.text.tokens,
            "temperatures": list(recipe.temperatures),
            "seed": recipe.seed,
            "own_prompts": not recipe.prompts,
            "long_prompts": recipe.long_prompts,
        },
        "training": {
            **options.model_dump(exclude={"folder", "plot", "threads"}),
            "budget": trained.budget,
            "learned_tokens": trained.learned,
            "hours": round(trained.seconds / 3600, 3),
            "finished": trained.is_over,
        },
        "held_out": {
            "conversations": len(trained.text.held_out),
            "tokens_per_pass": measured.tokens_per_pass,
            **asdict(measured),
        },
        "made": time.strftime("%Y-%m-%d"),
    }
