"""A training's state on the disk: a kill leaves this one or the one before."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field, with_config
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from forerun.errors import TrainingError
from forerun.printable import shown
from forerun.train.evaluation import Look
from forerun.train.folder import AS_WRITTEN, parsed_as, read_record, write_record, written_whole
from forerun.train.network import Weights

__all__ = ["State", "StateFolder"]

Count = Annotated[int, Field(ge=0, lt=1 << 63)]


@with_config(AS_WRITTEN)
@dataclass
class Begun:
    """What is written down of a training before its first step.

    Attributes:
        options: What must not change between two runs of it.
        shards: How many the first epoch began with.
    """

    options: dict[str, Any]
    shards: list[Count]


@with_config(AS_WRITTEN)
@dataclass
class State:
    """What is saved beside weights and the optimizer's moments.

    Attributes:
        step: Steps made.
        epoch: The running one.
        batch: The next of its batches.
        learned: Tokens learned from.
        budget: When it ends, where that follows from the time; else 0.
        shards: How many each epoch began with.
        best: The best score of a look.
        worse: Looks since then.
        seconds: Spent.
        history: One record a look.
    """

    step: Count = 0
    epoch: Count = 0
    batch: Count = 0
    learned: Count = 0
    budget: Count = 0
    shards: list[Count] = field(default_factory=list)
    best: float = -1.0
    worse: Count = 0
    seconds: Annotated[float, Field(ge=0)] = 0.0
    history: list[Look] = field(default_factory=list)


class StateFolder:
    """Where a training keeps its state.

    Args:
        path: The folder; made if it is not there.
        options: What must not change between two runs of one training.

    Raises:
        TrainingError: It holds a training with other options, or a damaged record.
    """

    def __init__(self, path: Path, options: Mapping[str, object]) -> None:
        self.path, self._options = path, options
        path.mkdir(exist_ok=True)

    def recorded(self) -> State:
        """Return the state of a training that was begun and not saved yet.

        Raises:
            TrainingError: The folder holds a training with other options, or a damaged record.
        """
        path, way_out = self.path / "training.json", f"Delete {self.path} to begin anew."
        begun = read_record(path, Begun, way_out)
        if begun is None:
            return State()
        # A record of an older Forerun may hold more, such as the budget, which may change.
        if {**begun.options, **json.loads(json.dumps(self._options))} != begun.options:
            what = f"{self.path} holds a training with other options: {begun.options}."
            raise TrainingError(what, "Give the same, or delete that folder to begin anew.")
        return State(shards=begun.shards)

    def record(self, state: State) -> None:
        """Write down the options, and the shards that the first epoch began with.

        Raises:
            TrainingError: It can't be written.
        """
        begun = Begun(dict(self._options), state.shards)
        write_record(self.path / "training.json", asdict(begun))

    def save(
        self, state: State, weights: Weights, optimizer: torch.optim.Optimizer, best: Weights | None
    ) -> None:
        """Write all of it.

        Raises:
            TrainingError: It can't be written.
        """
        tensors = {f"weight.{name}": values.detach() for name, values in weights.items()}
        for name, values in weights.items():
            for moment in ("exp_avg", "exp_avg_sq"):
                tensors[f"{moment}.{name}"] = optimizer.state[values][moment]
        tensors |= {f"best.{name}": values for name, values in (best or {}).items()}
        # One file holds it all: two would not be replaced at once.
        packed = json.dumps(asdict(state), allow_nan=False).encode()
        tensors["state"] = torch.from_numpy(np.frombuffer(packed, np.uint8).copy())
        written_whole(self.path / "state.safetensors", lambda path: save_file(tensors, path))

    def load(self, weights: Weights) -> tuple[State, Weights, Weights | None] | None:
        """Put the saved weights into `weights`.

        Returns:
            State, the optimizer's moments, the best weights if a look was made; or None if nothing
            was saved.

        Raises:
            TrainingError: What was saved is damaged.
        """
        path = self.path / "state.safetensors"
        if not path.exists():
            return None
        try:
            tensors = load_file(path)
            state = _state_in(tensors)
            parts = ["weight", "exp_avg", "exp_avg_sq", *(["best"] if state.history else [])]
            _check_tensors(tensors, {f"{p}.{n}": v for p in parts for n, v in weights.items()})
        except (OSError, ValueError, SafetensorError) as error:
            what = f"The state {path} is damaged: {error}."
            raise TrainingError(what, "Delete it to begin anew.") from None
        for name, values in weights.items():
            values.copy_(tensors[f"weight.{name}"])
        best = {n.removeprefix("best."): v for n, v in tensors.items() if n.startswith("best.")}
        return state, tensors, best or None


def _state_in(tensors: Weights) -> State:
    """Take the state out of what was read.

    Raises:
        ValueError: It lacks, or cannot be.
    """
    packed = tensors.pop("state", torch.empty(0))
    if packed.dtype != torch.uint8:
        raise ValueError("it does not say how far it came")
    state = parsed_as(packed.numpy().tobytes(), State)
    if len(state.shards) != state.epoch + 1:
        raise ValueError(f"epoch = {state.epoch}, and it says the shards of {len(state.shards)}")
    return state


def _check_tensors(tensors: Weights, expected: Weights) -> None:
    """Check that these are there, of the same shapes and types, and finite.

    Raises:
        ValueError: One is not, or there is another one.
    """
    for name in tensors.keys() | expected.keys():
        if name not in tensors or name not in expected:
            raise ValueError(f"it {'has' if name in tensors else 'lacks'} {shown(name)}")
        values, like = tensors[name], expected[name]
        if values.shape != like.shape or values.dtype != like.dtype:
            raise ValueError(f"{name} is {values.dtype} {list(values.shape)}")
        if not bool(values.isfinite().all()):
            raise ValueError(f"{name} holds numbers that are not finite")
