"""Whether there is memory for a pass, told before it is taken.

A system may promise memory that it has not, and end the process that uses it. So what a large pass
needs is estimated first and held against what the system says is free.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from forerun.errors import NotEnoughMemoryError
from forerun.models.architecture import Architecture
from forerun.targets.memory import free_memory

__all__ = ["pass_memory"]

_SMALL = 64 << 20  # not worth a look at the system's files
_WAY_OUT = "Ask for fewer rows at a time, or end other programs."


@contextmanager
def pass_memory(architecture: Architecture, rows: int, asked: int) -> Iterator[None]:
    """Check that a pass of so many rows, and of the logits asked for, fits into memory.

    Raises:
        NotEnoughMemoryError: It does not, by its size or because the system gives less.
    """
    what = f"A pass of {rows:,} rows"
    needed = _needed(architecture, rows, asked)
    free = free_memory() if needed >= _SMALL else None
    if free is not None and needed > free:
        told = f"{what} needs {needed / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free."
        raise NotEnoughMemoryError(told, _WAY_OUT)
    try:
        yield
    except MemoryError:
        told = f"{what} needs more memory than the system gives."
        raise NotEnoughMemoryError(told, _WAY_OUT) from None


def _needed(architecture: Architecture, rows: int, asked: int) -> int:
    """Return about how many bytes a pass takes while it runs: its rows, and their logits."""
    queries = architecture.num_heads * architecture.head_dim
    keys = architecture.num_kv_heads * architecture.head_dim
    # The stream, what is normed and what is added; q, k, v; gate and up; some of it in 8 bits too.
    floats = 5 * architecture.width + 4 * queries + 2 * keys + 4 * architecture.inner_width
    floats += 2 * keys * architecture.num_layers  # pending keys and values
    return 4 * (rows * floats + asked * architecture.vocab_size)
