"""Timing sides against each other: interleaved, in shuffled order, warmed up, raw samples kept.

A machine's speed drifts, by its placement of threads and by who else runs. So each side does the
same work within the same second as the others, and only figures of one run are compared. Before
each timed pass its side makes one that is not: caches and threads are then as they are in the
middle of a text, where one pass follows the other, and not as another engine left them.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from forerun.bench.end import NEVER, End
from forerun.bench.sides import Side, Tokens

__all__ = ["Plan", "Samples", "Task", "measure", "median"]

_BURST = 2  # timed passes after one that is not
_WARM_PROMPT = 64
_LONG_EVERY = 4  # repeats from one timing of prefill and decoding to the next

Progress = Callable[[str, float], None]


class Task(NamedTuple):
    """One thing to be timed.

    Attributes:
        kind: `pass`, `prefill` or `decode`.
        size: Its rows or tokens.
    """

    kind: str
    size: int


class Plan(NamedTuple):
    """What is timed, and in which order.

    Attributes:
        rows: Rows of the passes.
        prefill: Tokens of the prompt; 0 is none.
        decode: Tokens written; 0 is none.
        repeats: How often.
        tokens: What is scored and read: at least as many as the longest of these.
        seed: Of the order.
        settle: Seconds that pass before a side's turn: another engine's threads that wait awake
            go to sleep meanwhile, and take no core away.
    """

    rows: tuple[int, ...]
    prefill: int
    decode: int
    repeats: int
    tokens: Tokens
    seed: int = 0
    settle: float = 0.005

    def tasks(self, repeat: int) -> list[Task]:
        """Return what one repeat does, in its order."""
        tasks = [Task("pass", rows) for rows in dict.fromkeys(self.rows)]
        if repeat % _LONG_EVERY == 0:
            tasks += [Task("prefill", self.prefill)] if self.prefill else []
            tasks += [Task("decode", self.decode)] if self.decode else []
        random.Random(f"{self.seed} {repeat}").shuffle(tasks)
        return tasks


@dataclass
class Samples:
    """What was measured of one side.

    Attributes:
        seconds: For each task, every sample in the order taken.
        error: Why the side was given up; empty if it was not.
    """

    seconds: dict[Task, list[float]] = field(default_factory=dict)
    error: str = ""

    def median_ms(self, task: Task) -> float | None:
        """Return the median in milliseconds; None if there is no sample."""
        seconds = median(self.seconds.get(task, ()))
        return None if seconds is None else seconds * 1000


def median(values: Sequence[float]) -> float | None:
    """Return the median; None of nothing."""
    return statistics.median(values) if values else None


def measure(
    sides: Sequence[Side],
    plan: Plan,
    *,
    at_repeat: Callable[[], None] = lambda: None,
    end: End = NEVER,
    progress: Progress = lambda part, share: None,
) -> dict[str, Samples]:
    """Time all sides; a peer that fails is given up, and the others go on.

    Args:
        sides: The first is Forerun's own: its errors are raised.
        plan: What to time.
        at_repeat: Called before each repeat.
        end: Once it has come, what was measured so far is returned.
        progress: Told what is being timed, and the share that is done.
    """
    samples = {side.name: Samples() for side in sides}
    for side, task, share in chain(_warm_up(sides, plan), _steps(sides, plan, at_repeat)):
        if end.came():
            break
        own = samples[side.name]
        if own.error:
            continue
        progress(f"{task.kind} of {task.size}, {side.name}", share)
        try:
            time.sleep(plan.settle)
            with end.impatient():
                seconds = _sample(side, task, plan.tokens)
        except KeyboardInterrupt:
            if not end.came():
                raise
            break
        except Exception as error:
            # A peer is a stranger's code and may raise anything; the report says what.
            if side is sides[0]:
                raise
            own.error = f"{type(error).__name__}: {error}"
            continue
        if share >= 0:
            own.seconds.setdefault(task, []).extend(seconds)
    return samples


def _warm_up(sides: Sequence[Side], plan: Plan) -> Iterator[tuple[Side, Task, float]]:
    """Yield what is done first and not kept, for which the share is negative."""
    for side in sides:
        yield side, Task("pass", max(plan.rows)), -1
        if plan.prefill:
            yield side, Task("prefill", min(plan.prefill, _WARM_PROMPT)), -1
        if plan.decode:
            yield side, Task("decode", 1), -1


def _steps(
    sides: Sequence[Side], plan: Plan, at_repeat: Callable[[], None]
) -> Iterator[tuple[Side, Task, float]]:
    """Yield side, task and share done: for each task all sides, each first in its turn."""
    total = sum(len(plan.tasks(repeat)) for repeat in range(plan.repeats))
    done = 0
    for repeat in range(plan.repeats):
        at_repeat()
        for task in plan.tasks(repeat):
            first = done % len(sides)
            for side in (*sides[first:], *sides[:first]):
                yield side, task, done / total
            done += 1


def _sample(side: Side, task: Task, tokens: Tokens) -> list[float]:
    chosen = tokens[: task.size]
    if task.kind == "prefill":
        return [side.time_prefill(chosen)]
    if task.kind == "decode":
        return [side.time_decode(task.size)]
    side.time_pass(chosen)
    return [side.time_pass(chosen) for _ in range(_BURST)]
