"""Weights from files into a target, layer by layer, where memory holds them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from forerun.errors import NotEnoughMemoryError
from forerun.events import LoadProgress
from forerun.models.architecture import Architecture
from forerun.models.model import Model
from forerun.models.weight_file import WeightFile
from forerun.targets.memory import free_memory

__all__ = ["WeightLoader", "load_weights"]

Layer = TypeVar("Layer")
Ends = TypeVar("Ends")

_WAY_OUT = (
    "Choose a smaller model, quantise a folder's weights (weights='int4'), or end other programs."
)


@dataclass(frozen=True, slots=True)
class WeightLoader(Generic[Layer, Ends]):
    """How a target holds weights.

    Attributes:
        layer: Returns one layer, shared with every other live target of the same files.
        ends: Returns what stands before the first layer and after the last.
        is_live: Whether a layer, or the ends for None, is in memory already.
        nbytes: Bytes that a tensor takes in memory.
    """

    layer: Callable[[WeightFile, Architecture, int], Layer]
    ends: Callable[[WeightFile, Architecture], Ends]
    is_live: Callable[[WeightFile, int | None], bool]
    nbytes: Callable[[WeightFile, str], int]


def load_weights(
    model: Model,
    loader: WeightLoader[Layer, Ends],
    progress: Callable[[LoadProgress], None] | None = None,
) -> tuple[list[Layer], Ends]:
    """Load all weights of a model.

    Args:
        model: Which model.
        loader: How to hold them.
        progress: Told the bytes that are in memory after each layer.

    Raises:
        NotEnoughMemoryError: They need more memory than there is; nothing has been allocated.
        ModelFileError: The weights are damaged, or a file changed.
    """
    file, architecture = model.file, model.architecture
    sizes = _sizes(model, loader)
    missing = {part: size for part, size in sizes.items() if not loader.is_live(file, part)}
    _check_memory(model, sum(missing.values()), _largest(model, loader) if missing else 0)
    total = sum(sizes.values())
    done = 0

    def report(part: int | None) -> None:
        nonlocal done
        done += sizes[part]
        if progress is not None:
            progress(LoadProgress("packing", done, total))

    try:
        layers = []
        for layer in range(architecture.num_layers):
            layers.append(loader.layer(file, architecture, layer))
            report(layer)
        ends = loader.ends(file, architecture)
        report(None)
    except MemoryError:
        what = f"{model.name} needs {_shown(total)} of memory, and the system gave less."
        raise NotEnoughMemoryError(what, _WAY_OUT) from None
    return layers, ends


def _sizes(model: Model, loader: WeightLoader[Layer, Ends]) -> dict[int | None, int]:
    """Return the bytes in memory of each layer and, under None, of the ends."""
    sizes: dict[int | None, int] = {}
    for name, _ in model.architecture.tensor_shapes():
        part = int(name.split(".")[1]) if name.startswith("blk.") else None
        sizes[part] = sizes.get(part, 0) + max(loader.nbytes(model.file, name), 0)
    return sizes


def _largest(model: Model, loader: WeightLoader[Layer, Ends]) -> int:
    """Return the bytes of the largest tensor: it is there twice for a moment."""
    names = (name for name, _ in model.architecture.tensor_shapes())
    return max(loader.nbytes(model.file, name) for name in names)


def _check_memory(model: Model, weights: int, largest: int) -> None:
    free = free_memory()
    if free is not None and weights + largest > free:
        needed = _shown(weights + largest)
        what = f"{model.name} needs {needed} of memory, and {_shown(free)} are free."
        raise NotEnoughMemoryError(what, _WAY_OUT)


def _shown(size: int) -> str:
    return f"{size / 1e9:.2f} GB"
