"""Where output goes: the text and JSON lines to stdout, everything else to stderr.

And where input comes from, which may have no end.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from forerun.errors import PromptError

__all__ = ["MOST_INPUT", "has_colours", "print_json", "read_input", "stderr", "stdout", "write"]


MOST_INPUT = 1 << 24
"""Characters of a prompt, or of a line of a conversation; no context holds as many."""


class _Piped(Console):
    """A console that lets a closed pipe be known, where rich would end with exit code 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def stdout() -> Console:
    """A console for what was asked for. Made anew: tests and pipes replace `sys.stdout`."""
    return _Piped(file=sys.stdout, highlight=False)


def stderr() -> Console:
    """A console for everything else."""
    return _Piped(file=sys.stderr, highlight=False)


def has_colours(console: Console) -> bool:
    """Return whether what is told by colour alone can be seen there."""
    return console.color_system is not None and not console.no_color


def read_input(*, line: bool = False) -> str:
    """Return what stands in stdin, or its next line; empty at its end.

    Raises:
        PromptError: It has no end that is near.
    """
    read = sys.stdin.readline if line else sys.stdin.read
    text = read(MOST_INPUT + 1)
    if len(text) > MOST_INPUT:
        what = f"The input has more than {MOST_INPUT >> 20} million characters."
        raise PromptError(what, "Give less.")
    return text


def write(text: str) -> None:
    """Write text to stdout at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def print_json(record: Mapping[str, Any]) -> None:
    """Write one JSON object as one line, in ASCII, which every pipe and locale carries."""
    write(json.dumps(record, allow_nan=False) + "\n")
