"""How a training went: held-out acceptance over the tokens that were learned from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["draw_training"]


def draw_training(figure: Any, history: Sequence[Mapping[str, Any]]) -> None:
    """Draw acceptance and agreement by position into a figure of matplotlib's.

    Args:
        figure: An empty one.
        history: One record for each look at held-out text, as `head.json` keeps them.
    """
    learned = [record["learned"] for record in history]
    for axes, name, label in zip(
        figure.subplots(1, 2),
        ("alpha", "agreement"),
        ("alpha at temperature 1", "agreement of the likeliest token, greedy text"),
        strict=True,
    ):
        positions = max((len(record[name]) for record in history), default=0)
        for position in range(positions):
            values = [record[name][position] for record in history]
            axes.plot(learned, values, marker=".", label=f"guess {position + 1}")
        axes.set(xlabel="tokens learned from", ylabel=label, ylim=(0, None))
        if positions:
            axes.legend()
    figure.suptitle("On held-out text")
