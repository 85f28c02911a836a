"""Sequences of the compiled networks: what is committed, kept, and forgotten of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from forerun.errors import EngineError, OptionError
from forerun.fork_lock import fork_lock
from forerun.models.architecture import Architecture
from forerun.native import load
from forerun.printable import counted
from forerun.targets.processor import usable_cores
from forerun.targets.protocol import Row

if TYPE_CHECKING:
    from forerun import _native

__all__ = ["NativeSequences", "checked_threads", "native_shape", "room_for_logits"]

_LINE = 16  # floats
_MOST_THREADS = 256


class NativeSequences:
    """Sequences by name, safe to use from several Python threads, and to fork under."""

    def __init__(self) -> None:
        self._sequences: dict[int, _native.KVSequence] = {}
        self._next_name = 0
        self._lock = fork_lock(1)

    def length(self, sequence: int) -> int:
        """Return how many of the sequence's rows are committed."""
        return self._known(sequence).length

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        """Keep the rows of the last pass on `path` (indices, first to last) and drop the others.

        Raises:
            EngineError: The rows are not a path from the sequence's committed end.
        """
        with self._lock:
            known = self._known(sequence)
            try:
                known.commit(path)
            except IndexError as error:
                what = f"Row {error} is no pending row of sequence {sequence}."
                raise EngineError(what) from None
            except ValueError:
                what = f"Rows {list(path)} are no path from the committed end."
                raise EngineError(what) from None

    def rollback(self, sequence: int, length: int) -> None:
        """Forget all but the first `length` committed rows, and what is pending."""
        with self._lock:
            known = self._known(sequence)
            if not 0 <= length <= known.length:
                raise EngineError(f"Rollback to {length} of {known.length} tokens.")
            known.rollback(length)

    def fork(self, sequence: int) -> int:
        """Return a new sequence with the same committed rows; neither sees the other's future."""
        with self._lock:
            return self._add(self._known(sequence).fork())

    def free(self, sequence: int) -> None:
        """Give the sequence's memory back; its name is no longer known."""
        with self._lock:
            self._known(sequence)
            del self._sequences[sequence]

    def _add(self, cache: _native.KVSequence) -> int:
        with self._lock:
            name = self._next_name
            self._next_name += 1
            self._sequences[name] = cache
        return name

    def _known(self, sequence: int) -> _native.KVSequence:
        try:
            return self._sequences[sequence]
        except KeyError:
            raise EngineError(f"Sequence {sequence} is not open.") from None

    def _lengths(self, rows: Sequence[Row]) -> dict[int, int]:
        """Return the length of each open sequence that the rows name."""
        named = {row.sequence for row in rows} & self._sequences.keys()
        return {name: self._sequences[name].length for name in named}


def native_shape(architecture: Architecture) -> _native.Shape:
    """Return the numbers of a network as the compiled pass takes them."""
    shape: _native.Shape = load().Shape(
        vocab=architecture.vocab_size,
        width=architecture.width,
        heads=architecture.num_heads,
        kv_heads=architecture.num_kv_heads,
        head_dim=architecture.head_dim,
        inner=architecture.inner_width,
        pairs=architecture.rope.dimension // 2,
        is_interleaved=architecture.rope.interleaved,
        epsilon=architecture.norm_epsilon,
    )
    return shape


def room_for_logits(floats: int) -> NDArray[np.float32]:
    """Return room for logits from its first cache line on: threads then write to none together."""
    return np.empty(floats + _LINE, dtype=np.float32)


def checked_threads(threads: int | None, kv_bits: int | None) -> int:
    """Return how many threads a pass runs on, for the `threads` and `kv_bits` that were chosen.

    Raises:
        OptionError: One of them is out of range.
    """
    if threads is not None and not 1 <= threads <= _MOST_THREADS:
        what = f"threads = {threads}: this machine has {counted(usable_cores(), 'usable core')}."
        raise OptionError(what, f"Choose 1 to {_MOST_THREADS}.")
    if kv_bits not in (None, 16, 32):
        raise OptionError(f"kv_bits = {kv_bits}.", "Choose 16 or 32.")
    return threads or min(usable_cores(), _MOST_THREADS)
