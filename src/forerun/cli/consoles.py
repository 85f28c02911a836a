"""Where output goes: the text and JSON lines to stdout, everything else to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console

__all__ = ["has_colours", "print_json", "stderr", "stdout", "write"]


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


def write(text: str) -> None:
    """Write text to stdout at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def print_json(record: Mapping[str, Any]) -> None:
    """Write one JSON object as one line, in ASCII, which every pipe and locale carries."""
    write(json.dumps(record, allow_nan=False) + "\n")
