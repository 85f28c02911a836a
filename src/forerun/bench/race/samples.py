"""What was written, sample by sample, and the same as tables of tokens and seconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.bench.race.protocol import Written

__all__ = ["LOOP_SHARE", "Sample", "TaskCells", "cells_of", "looping", "repeated_share"]

LOOP_SHARE = 0.3
"""A text repeats itself if more of its 8-grams than this have stood in it before."""

_GRAM = 8


@dataclass(frozen=True, slots=True)
class Sample:
    """One text of one side.

    Attributes:
        side: Who wrote it.
        question_id: The prompt.
        task: Its task.
        turn: From 0.
        repeat: From 0.
        place: Which of the sides it was in its turn, from 0.
        written: The text, and what it took.
    """

    side: str
    question_id: str
    task: str
    turn: int
    repeat: int
    place: int
    written: Written

    @property
    def text(self) -> tuple[str, int]:
        """Which text it is: the prompt and the turn."""
        return self.question_id, self.turn

    def as_json(self) -> dict[str, Any]:
        """Return the sample as one JSON object."""
        names = ("side", "question_id", "task", "turn", "repeat", "place")
        values = {name: getattr(self, name) for name in names}
        return {"event": "sample", **values, **self.written.as_json()}


@dataclass(frozen=True, slots=True)
class TaskCells:
    """What each side took for each prompt of a task, in each repeat, its turns summed.

    Attributes:
        tokens: Tokens after the first, float64 [sides, prompts, repeats].
        seconds: The time they took, likewise.
        known: Whether the side wrote all turns of that prompt in that repeat, and none of them in
            its first pass, which has no speed; bool, likewise.
    """

    tokens: NDArray[np.float64]
    seconds: NDArray[np.float64]
    known: NDArray[np.bool_]


def cells_of(samples: Iterable[Sample], sides: Sequence[str]) -> dict[str, TaskCells]:
    """Return the cells of each task, in the order in which tasks and prompts first come."""
    by_task: dict[str, list[Sample]] = {}
    for sample in samples:
        by_task.setdefault(sample.task, []).append(sample)
    return {task: _cells(own, sides) for task, own in by_task.items()}


def _cells(samples: Sequence[Sample], sides: Sequence[str]) -> TaskCells:
    questions = {name: i for i, name in enumerate(dict.fromkeys(s.question_id for s in samples))}
    places = {name: i for i, name in enumerate(sides)}
    repeats = 1 + max(sample.repeat for sample in samples)
    shape = (len(sides), len(questions), repeats)
    tokens, seconds, turns = np.zeros(shape), np.zeros(shape), np.zeros(shape, np.int64)
    for sample in samples:
        if not sample.written.is_timed:
            continue
        cell = places[sample.side], questions[sample.question_id], sample.repeat
        tokens[cell] += sample.written.later
        seconds[cell] += sample.written.seconds
        turns[cell] += 1
    is_whole = turns == turns.max(axis=(0, 2), keepdims=True)
    return TaskCells(tokens, seconds, is_whole & (turns > 0))


def repeated_share(tokens: Sequence[int]) -> float:
    """Return the share of a text's 8-grams that have stood in it before; 0 if it has none."""
    grams = [tuple(tokens[i : i + _GRAM]) for i in range(len(tokens) - _GRAM + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def looping(samples: Iterable[Sample], side: str) -> set[tuple[str, int]]:
    """Return the texts that repeat themselves as one side wrote them.

    Small models loop when the likeliest token is always taken, and copying pays well there. All
    sides are spared the same texts, else those of one would be harder.

    Args:
        samples: Of all sides.
        side: One of ours, which all write the same.
    """
    own = (sample for sample in samples if sample.side == side)
    return {each.text for each in own if repeated_share(each.written.token_ids) > LOOP_SHARE}
