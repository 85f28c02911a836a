"""Products of few rows and a weight, the faster way round, where that was measured to be faster.

A linear layer multiplies its rows by the weight. Matrix libraries are made for many rows: of one
to eight, on a processor, they may read the weight on one core only, or at a fraction of the
memory's pace. The same product the other way round, weight times rows, is another method of the
same library, and with some of them two to four times as fast. Which it is depends on the library
and the processor, so it is timed at load, on the model's own weights.

The user's model stays as it is: what runs is a shallow copy of its modules, which shares every
weight, buffer and hook, and whose linear layers compute the other way round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from forerun.targets.transformers_copies import copied, shallow_copy

__all__ = ["MOST_ROWS", "is_faster_turned", "product", "turned"]

MOST_ROWS = 8
"""Rows of a product up to which it is turned round."""

_WORTH_TIMING = 1 << 23  # bytes of weights; below that the product isn't what takes the time
_WORTH_TURNING = 0.95
_TIMED = (1, 2, 4, 8)


def product(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Return what `torch.nn.functional.linear` does, computed as weight times rows.

    Args:
        rows: [..., inputs].
        weight: [outputs, inputs].
        bias: [outputs].
    """
    shape, flat = rows.shape[:-1], rows.reshape(-1, rows.shape[-1])
    count = len(flat)
    if not 0 < count <= MOST_ROWS:
        return torch.nn.functional.linear(rows, weight, bias)
    # One column would be a product of matrix and vector again, the slowest there is.
    columns = flat.expand(2, -1).contiguous() if count == 1 else flat
    found = torch.mm(weight, columns.t())[:, :count].t().contiguous()
    if bias is not None:
        found += bias
    return found.view(*shape, len(weight))


class _TurnedLinear(torch.nn.Linear):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        if type(self.weight) is not torch.nn.Parameter:  # it became one of another kind
            return super().forward(rows)
        return product(rows, self.weight, self.bias)


def _is_plain(module: torch.nn.Module) -> bool:
    """Whether it is a linear layer of numbers; a tensor of another kind multiplies by itself."""
    if type(module) is not torch.nn.Linear or "weight" not in module.__dict__["_parameters"]:
        return False
    return type(module.weight) is torch.nn.Parameter and module.weight.layout is torch.strided


def turned(model: torch.nn.Module) -> Any:
    """Return a copy of a model whose linear layers compute the other way round."""

    def other(module: torch.nn.Module) -> torch.nn.Module:
        shallow: torch.nn.Module = shallow_copy(module)
        # A class that makes more of it, or a forward of its own, knows why.
        if _is_plain(module) and "forward" not in module.__dict__:
            shallow.__class__ = _TurnedLinear
        return shallow

    return copied(model, other)


def is_faster_turned(
    model: torch.nn.Module, clock: Callable[[], float] = time.perf_counter
) -> bool:
    """Return whether products of few rows are faster the other way round, taken together.

    Only on a processor; not where weights are so few that other things take the time.

    Args:
        model: Whose weights; those of its first layers stand for all.
        clock: For tests.
    """
    if any(each.device.type != "cpu" for each in model.parameters()):
        return False
    linears: list[Any] = [each for each in model.modules() if _is_plain(each)]
    if sum(each.weight.nbytes for each in linears) < _WORTH_TIMING:
        return False
    weights = _some([each.weight for each in linears])
    shares = []  # most passes have few rows, whose time a sum of all would hide
    with torch.no_grad():
        for count in _TIMED:
            rows = [each.new_ones((count, each.shape[1])) for each in weights]
            plain, other = (
                min(_seconds(rows, weights, way, clock) for _ in range(3)) for way in (False, True)
            )
            shares.append(other / plain)
    return sum(shares) / len(shares) < _WORTH_TURNING


def _some(weights: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the first weights, as many as no cache holds at once."""
    some: list[torch.Tensor] = []
    size = 0
    for weight in weights:
        if size > 16 * _WORTH_TIMING:
            break
        some.append(weight)
        size += weight.nbytes
    return some


def _seconds(
    rows: Sequence[torch.Tensor],
    weights: Sequence[torch.Tensor],
    is_turned: bool,
    clock: Callable[[], float],
) -> float:
    begun = clock()
    for one, weight in zip(rows, weights, strict=True):
        (product if is_turned else torch.nn.functional.linear)(one, weight, None)
    return clock() - begun
