"""What every head refuses, in the same words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.errors import EngineError, OptionError
from forerun.models.head_file import HeadFile
from forerun.models.model import Model
from forerun.targets.checks import check_asked, check_rows
from forerun.targets.protocol import Row

__all__ = ["check_context", "check_head_rows", "head_inputs"]

Array = NDArray[np.float32]


def check_context(context: int | None, model: Model) -> int:
    """Return the positions that a head's rows may have: the model's, or fewer.

    Raises:
        OptionError: `context` is less than 1 or more than the model was trained for.
    """
    trained = model.architecture.context_length
    if context is not None and not 1 <= context <= trained:
        what = f"context = {context}: {model.name} was trained for {trained}."
        raise OptionError(what, f"Choose 1 to {trained}.")
    return context or trained


def head_inputs(
    head: HeadFile, num_rows: int, features: Array | None, given: Array | None
) -> tuple[Array, Array]:
    """Return features and given outputs as float32, C-contiguous, with a row for each row.

    Raises:
        EngineError: There are more or fewer than rows, or they are of another width.
    """
    width = head.shape.width
    known = _floats("Features", features, len(head.facts.layers) * width)
    others = _floats("Given outputs", given, width)
    if len(known) + len(others) != num_rows:
        counts = f"{len(known)} features and {len(others)} given outputs"
        raise EngineError(f"There are {num_rows} rows, and {counts}.")
    return known, others


def _floats(name: str, values: Array | None, columns: int) -> Array:
    if values is None:
        return np.empty((0, columns), dtype=np.float32)
    if values.ndim != 2 or values.shape[1] != columns:
        raise EngineError(f"{name} are {values.shape}, not [rows, {columns}].")
    return np.ascontiguousarray(values, dtype=np.float32)


def check_head_rows(
    rows: Sequence[Row],
    lengths: Mapping[int, int],
    asked: Sequence[int],
    vocab_size: int,
    context_length: int,
) -> None:
    """Check that a head can score rows together.

    Args:
        rows: The rows of one pass.
        lengths: Committed rows of each known sequence; the next stands one further, for no row
            stands at position 0.
        asked: Rows whose logits are wanted.
        vocab_size: Tokens are in [0, vocab_size).
        context_length: Positions are in [0, context_length).

    Raises:
        EngineError: The first row that is wrong, and why.
    """
    ends = {name: length + 1 for name, length in lengths.items()}
    check_rows(rows, ends, vocab_size, context_length)
    check_asked(len(rows), asked, (), 0)
