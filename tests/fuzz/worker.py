"""`python -m fuzz.worker SUBJECT SEED FIRST LAST`: damages models, tries them, says what happened.

One line on standard output when it is ready, and one a mutation, once it is over: its number, what
came of it (`sound`, the name of one of Forerun's errors, or `BUG`), its processor time in seconds,
and what was done. The process that started this one sees when it dies or hangs.
"""

from __future__ import annotations

import os
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from random import Random

from forerun.errors import ForerunError
from fuzz.subjects import DISASTERS, SUBJECTS, Files

__all__ = ["mutants"]

KINDS = {**SUBJECTS, "disasters": DISASTERS}

MOST_MEMORY = 256 << 20
"""Bytes that a tiny model, however damaged, may ask for beyond what the process had."""


def mutants(subject: str, seed: int, first: int, last: int) -> Iterator[tuple[int, str, Files]]:
    """The mutations of these numbers: each is the same whatever the others are."""
    kind = KINDS[subject]
    examples = kind.examples()
    for number in range(first, last):
        random = Random(f"{subject} {seed} {number}")
        what, files = kind.mutate(random, random.choice(examples))
        yield number, what, files


def limit_memory() -> None:
    """Let the system refuse what is far too much; a sanitizer needs terabytes of addresses."""
    if "asan" in os.environ.get("LD_PRELOAD", ""):
        return
    with open("/proc/self/statm") as sizes:
        now = int(sizes.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (now + MOST_MEMORY,) * 2)


def outcome(subject: str, path: Path) -> str:
    """What comes of a model: `sound`, an error's name, or `BUG` and a traceback on stderr."""
    try:
        KINDS[subject].attempt(path)
    except ForerunError as error:
        return type(error).__name__
    except BaseException:
        traceback.print_exc()
        return "BUG"
    return "sound"


def main(subject: str, seed: int, first: int, last: int) -> None:
    """Try the mutations of these numbers."""
    warnings.simplefilter("error")
    with tempfile.TemporaryDirectory() as name:
        folder, entry = Path(name), KINDS[subject].entry
        for files in KINDS[subject].examples():
            write(folder, files)
            KINDS[subject].attempt(folder / entry)  # all that is imported late is there then
        limit_memory()
        tell("ready")
        for number, what, files in mutants(subject, seed, first, last):
            write(folder, files)
            begun = time.process_time()
            came = outcome(subject, folder / entry)
            seconds = f"{time.process_time() - begun:.3f}"
            tell("\t".join((str(number), came, seconds, what.encode("unicode_escape").decode())))


def tell(line: str) -> None:
    """Say it at once: the next line may never come."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def write(folder: Path, files: Files) -> None:
    """Replace what is in a folder."""
    for old in folder.iterdir():
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    for name, data in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
