"""Positions for decoders whose forward takes none: they count rows from the cache's length.

A row of a tree, or of a sequence that is shorter than another in the pass, stands elsewhere. So the
model is run as a shallow copy that shares every weight, and in which the modules that know
positions ask for them here: tables of positions (BART, Marian, Pegasus, M2M100) and biases by
distance (T5). Whether that is all that knows a position is found out by trying, as everything is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from forerun.targets.transformers_copies import replaced, shallow_copy

__all__ = ["Positions", "told_positions"]

_TABLE = "embed_positions"


class Positions:
    """Where the rows and keys of the pass under way stand.

    Attributes:
        rows: int64 [sequences, rows].
        keys: int64 [sequences, keys]; None where keys are as far apart as they lie.
    """

    def __init__(self) -> None:
        self.rows: torch.Tensor | None = None
        self.keys: torch.Tensor | None = None


class _Table(torch.nn.Module):
    """A table of positions that looks up those of the pass."""

    def __init__(self, table: Any, positions: Positions) -> None:
        super().__init__()
        self._table, self._positions = table, positions

    def forward(self, *given: Any, **named: Any) -> torch.Tensor:
        rows = self._positions.rows
        if rows is None:
            found: torch.Tensor = self._table(*given, **named)
            return found
        flat = rows.reshape(-1)
        if "position_ids" in inspect.signature(self._table.forward).parameters:
            found = self._table(*given, **{**named, "position_ids": flat})
        else:  # M2M100's, which counts from behind its padding
            first = self._table.padding_idx + 1
            found = self._table.weights.index_select(0, flat + first)
        return found.reshape(*rows.shape, -1)


def told_positions(model: Any, path: Sequence[str]) -> tuple[Any, Positions] | None:
    """Return a copy of a model that is told positions, or None if nothing in it looks them up.

    Args:
        model: Nothing of it is changed.
        path: Where its decoder stands.
    """
    positions = Positions()
    found = False
    decoder = model.get_submodule(".".join(path))
    for name, module in list(decoder.named_modules()):
        make: Callable[[Any], Any] | None = None
        if name.split(".")[-1] == _TABLE:
            make = lambda table: _Table(table, positions)  # noqa: E731
        elif hasattr(module, "compute_bias") and hasattr(module, "relative_attention_bias"):
            make = lambda attention: _by_distance(attention, positions)  # noqa: E731
        if make is not None:
            model, found = replaced(model, [*path, *name.split(".")], make), True
    return (model, positions) if found else None


def _by_distance(attention: Any, positions: Positions) -> Any:
    """Return a layer of T5's kind whose biases go by the distances in the pass."""
    shallow = shallow_copy(attention)
    takes = inspect.signature(attention._relative_position_bucket).parameters
    how: dict[str, Any] = {}
    if "bidirectional" in takes:
        how = {
            "bidirectional": False,
            "num_buckets": attention.relative_attention_num_buckets,
            "max_distance": attention.relative_attention_max_distance,
        }

    def compute_bias(*given: Any, **named: Any) -> torch.Tensor:
        rows, keys = positions.rows, positions.keys
        if rows is None or keys is None:
            bias: torch.Tensor = attention.compute_bias(*given, **named)
            return bias
        apart = keys[:, None, :] - rows[:, :, None]
        bias = attention.relative_attention_bias(attention._relative_position_bucket(apart, **how))
        return bias.permute(0, 3, 1, 2)

    shallow.__dict__["compute_bias"] = compute_bias
    return shallow
