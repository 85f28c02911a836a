"""`python -m fuzz.run [N] [SEED] [SUBJECT,...]`: N mutations of each kind of model, tried apart.

Processes of their own try them, so that one that dies or hangs is found and the rest goes on. Exit
code 1, and how to try it again, if a mutation ends in anything but a sound model or an error of
Forerun's.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from forerun import errors
from fuzz.subjects import SUBJECTS

__all__ = ["Outcome", "fuzz"]

PATIENCE = 30
"""Seconds without a word after which a process hangs; a busy machine is slow, too."""

# A small file that wants more than the machine has is no reason to try and see.
GOOD = {"sound", *errors.__all__} - {"ForerunError", "NotEnoughMemoryError", "ResourceError"}


class Outcome(NamedTuple):
    """What came of one mutation: a name, processor seconds, and what was done."""

    number: int
    came: str
    seconds: float
    what: str

    @property
    def is_good(self) -> bool:
        """A sound model, or an error of Forerun's."""
        return self.came in GOOD


def fuzz(
    subject: str, seed: int, count: int, *, jobs: int, patience: float = PATIENCE
) -> list[Outcome]:
    """Try so many mutations in so many processes at a time."""
    size = max(1, min(1000, -(-count // jobs)))
    parts = [(first, min(first + size, count)) for first in range(0, count, size)]
    with ThreadPoolExecutor(jobs) as pool:
        found = pool.map(lambda part: list(_watched(subject, seed, part, patience)), parts)
        return [outcome for part in found for outcome in part]


def _watched(subject: str, seed: int, part: tuple[int, int], patience: float) -> Iterator[Outcome]:
    """Try these, with a new process after each one that is lost."""
    first, last = part
    while first < last:
        arguments = [str(each) for each in (subject, seed, first, last)]
        command = [sys.executable, "-m", "fuzz.worker", *arguments]
        # Unbuffered: `select` would not see what a buffer has read ahead.
        pipes = {"stdout": subprocess.PIPE, "bufsize": 0, "env": _environment()}
        with subprocess.Popen(command, **pipes) as process:
            for outcome in _read(process, patience):
                yield outcome
                first = outcome.number + 1
        if first < last:
            how = "hangs" if process.returncode == -9 else f"died with {process.returncode}"
            yield Outcome(first, how, 0.0, "")
            first += 1


def _read(process: subprocess.Popen[bytes], patience: float) -> Iterator[Outcome]:
    """Yield outcomes until there are no more, or none for too long."""
    assert process.stdout is not None
    if process.stdout.readline() != b"ready\n":
        raise RuntimeError("The process that tries mutations could not begin; see above.")
    rest = b""
    while select.select([process.stdout], [], [], patience)[0]:
        news = os.read(process.stdout.fileno(), 1 << 16)
        if not news:
            return
        *lines, rest = (rest + news).split(b"\n")
        for line in lines:
            number, came, seconds, what = line.decode(errors="replace").split("\t", 3)
            yield Outcome(int(number), came, float(seconds), what)
    process.kill()


def _environment() -> dict[str, str]:
    # One thread each: the processes of numpy's library would wait for each other.
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}


def main(count: int = 20_000, seed: int = 0, names: str = ",".join(SUBJECTS)) -> int:
    """Fuzz, and say what came of it."""
    failures = 0
    for subject in names.split(","):
        outcomes = fuzz(subject, seed, count, jobs=len(os.sched_getaffinity(0)))
        tally = Counter(outcome.came for outcome in outcomes)
        slowest = max(outcomes, key=lambda outcome: outcome.seconds)
        told = ", ".join(f"{number} {came}" for came, number in tally.most_common())
        _say(f"{subject}: {len(outcomes)} mutations: {told}; longest {slowest.seconds:.2f} s")
        for outcome in outcomes:
            if outcome.is_good and outcome.seconds < 1:
                continue
            failures += 1
            again = f"python -m fuzz.worker {subject} {seed} {outcome.number} {outcome.number + 1}"
            _say(f"{outcome.came} after {outcome.seconds:.2f} s: {outcome.what}\n    {again}")
    return min(failures, 1)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(main(*map(int, given[:2]), *given[2:]))
