"""A training's state on the disk: a kill leaves this one or the one before."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from forerun.errors import ModelFileError, TrainingError
from forerun.train.folder import read_record, write_record, written_whole
from forerun.train.network import Weights

__all__ = ["State", "StateFolder"]


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

    step: int = 0
    epoch: int = 0
    batch: int = 0
    learned: int = 0
    budget: int = 0
    shards: list[int] = field(default_factory=list)
    best: float = -1.0
    worse: int = 0
    seconds: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)


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
        try:
            record = read_record(self.path / "training.json")
        except ModelFileError as error:
            raise TrainingError(error.what, f"Delete {self.path} to begin anew.") from None
        if record is None:
            return State()
        options: Any = record.get("options")
        shards: Any = record.get("shards")
        counts: list[Any] = shards if isinstance(shards, list) else [None]
        if not isinstance(options, dict) or not all(type(each) is int for each in counts):
            what = f"The record {self.path / 'training.json'} is damaged."
            raise TrainingError(what, f"Delete {self.path} to begin anew.")
        # A record of an older Forerun may hold more, such as the budget, which may change.
        if {**options, **json.loads(json.dumps(self._options))} != options:
            what = f"{self.path} holds a training with other options: {options}."
            raise TrainingError(what, "Give the same, or delete that folder to begin anew.")
        return State(shards=counts)

    def record(self, state: State) -> None:
        """Write down the options, and the shards that the first epoch began with.

        Raises:
            TrainingError: It can't be written.
        """
        record = {"options": self._options, "shards": state.shards}
        write_record(self.path / "training.json", record)

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
            state = State(**json.loads(tensors.pop("state").numpy().tobytes()))
            for name, values in weights.items():
                for part in ("weight", "exp_avg", "exp_avg_sq"):
                    if tensors[f"{part}.{name}"].shape != values.shape:
                        raise ValueError(f"{part}.{name} has another shape")
                values.copy_(tensors[f"weight.{name}"])
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
            what = f"The state {path} is damaged: {error}."
            raise TrainingError(what, "Delete it to begin anew.") from None
        best = {n.removeprefix("best."): v for n, v in tensors.items() if n.startswith("best.")}
        return state, tensors, best or None
