"""Whether there is memory for a pass, told before it is taken.

A system may promise memory that it has not, and end the process that uses it. So what a large pass
needs is estimated first and held against what the system says is free.
"""

from __future__ import annotations

from forerun.errors import NotEnoughMemoryError
from forerun.models.architecture import Architecture
from forerun.targets.memory import free_memory

__all__ = ["PassMemory"]

_SMALL = 64 << 20  # not worth a look at the system's files
_WAY_OUT = "Ask for fewer rows at a time, or end other programs."


class PassMemory:
    """What passes of one model need.

    Args:
        architecture: The model's shape.
    """

    def __init__(self, architecture: Architecture) -> None:
        queries = architecture.num_heads * architecture.head_dim
        keys = architecture.num_kv_heads * architecture.head_dim
        # The stream, what is normed and what is added; q, k, v; gate and up; some in 8 bits too.
        floats = 5 * architecture.width + 4 * queries + 2 * keys + 4 * architecture.inner_width
        floats += 2 * keys * architecture.num_layers  # pending keys and values
        self._row_bytes = 4 * floats
        self._logits_bytes = 4 * architecture.vocab_size

    def check(self, rows: int, asked: int) -> None:
        """Check that a pass of so many rows, and of the logits asked for, fits into memory.

        Raises:
            NotEnoughMemoryError: It does not, by its size.
        """
        needed = rows * self._row_bytes + asked * self._logits_bytes
        free = free_memory() if needed >= _SMALL else None
        if free is not None and needed > free:
            told = f"needs {needed / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free."
            raise NotEnoughMemoryError(f"A pass of {rows:,} rows {told}", _WAY_OUT)

    def at_end(self, rows: int) -> NotEnoughMemoryError:
        """Return the error of a pass during which memory ended all the same."""
        what = f"A pass of {rows:,} rows needs more memory than the system gives."
        return NotEnoughMemoryError(what, _WAY_OUT)
