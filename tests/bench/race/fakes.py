"""Sides and engines that write what they are told to, in the time they are told."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from forerun.bench.race.peers import PeerKit
from forerun.bench.race.protocol import Job, Written
from forerun.bench.race.samples import Sample


def written(tokens: Sequence[int], seconds: float = 1.0, **more: Any) -> Written:
    """A text whose first token took a tenth of a second."""
    more = {"later": max(0, len(tokens) - 1), "passes": len(tokens), **more}
    return Written(tuple(tokens), 0.1, seconds, **more)


def sample(side: str, question: str = "q", seconds: float = 1.0, **more: Any) -> Sample:
    """A sample of eleven tokens, ten of them after the first."""
    tokens = more.pop("tokens", range(11))
    place = {"task": "t", "turn": 0, "repeat": 0, "place": 0}
    place = {name: more.pop(name, default) for name, default in place.items()}
    return Sample(side, question, written=written(tokens, seconds, **more), **place)


class FakeSide:
    """Writes `tokens(job)`, and notes what it was asked."""

    def __init__(
        self, name: str, tokens: Callable[[Job], Sequence[int]], is_ours: bool = True
    ) -> None:
        self.name, self.is_ours = name, is_ours
        self._tokens = tokens
        self.jobs: list[Job] = []
        self.is_closed = False

    def describe(self) -> dict[str, Any]:
        """Some plain data."""
        return {"kind": "fake"}

    def write(self, job: Job) -> Written:
        """What it is told to."""
        self.jobs.append(job)
        return written(self._tokens(job))

    def cpu_seconds(self) -> float:
        """None."""
        return 0.0

    def close(self) -> None:
        """Take note."""
        self.is_closed = True


class EchoEngine:
    """In the child: writes the prompt's first tokens; some tokens make it misbehave."""

    CRASH, RAISE, HANG, SWAMP, GARBAGE, TELL = 200, 201, 202, 203, 204, 205
    LIST, ENDLESS, NOT_A_NUMBER = 206, 207, 208

    def __init__(self, kit: PeerKit, modes: frozenset[str]) -> None:
        if "closed" in modes:
            raise RuntimeError("out of order")
        if "missing" in modes:
            importlib.import_module("forerun_of_nobody")
        sys.stdout.write("what a library prints\n")
        self._kit, self._modes = kit, modes

    def describe(self) -> dict[str, Any]:
        """What it was opened with."""
        threads = os.environ["OMP_NUM_THREADS"]
        return {**self._kit._asdict(), "modes": sorted(self._modes), "OMP_NUM_THREADS": threads}

    def write(
        self, tokens: list[int], max_tokens: int, temperature: float, seed: int
    ) -> dict[str, Any]:
        """Echo, or fail as the first token says."""
        if tokens[0] == self.RAISE:
            raise RuntimeError("out of ideas")
        if tokens[0] == self.CRASH:
            os.write(2, b"a long story\nsegments and faults\n")
            os.abort()
        if tokens[0] == self.HANG:
            time.sleep(600)
        if tokens[0] == self.SWAMP:
            return {"token_ids": [1] * (max_tokens + 1), "first_seconds": 0, "seconds": 0}
        if tokens[0] == self.GARBAGE:
            return {"token_ids": None}
        if tokens[0] == self.LIST:
            return [1]  # type: ignore[return-value]
        if tokens[0] in (self.ENDLESS, self.NOT_A_NUMBER):
            seconds = float("inf" if tokens[0] == self.ENDLESS else "nan")
            return {"token_ids": [1], "first_seconds": seconds, "seconds": 1.0}
        if tokens[0] == self.TELL:
            tokens = [seed, int(10 * temperature)]
        times = {"first_seconds": 0.5, "seconds": 2.0}
        return {"token_ids": tokens[:max_tokens], **times, "passes": 2, "drafts": [[3, 1], [2, 2]]}
