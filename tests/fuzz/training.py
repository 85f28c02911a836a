"""Damaged captures and trainings: their records, their shards, and the state of what learns."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from forerun.models.model import load_model
from forerun.targets.reference import ReferenceTarget
from forerun.train import loop
from forerun.train.capture import capture
from forerun.train.kinds import KINDS
from forerun.train.options import Capturing, HeadLearning
from fuzz.folder_mutations import change_json, mutate_folder
from models.tiny_gguf import Tiny

__all__ = ["mutate_training", "training_examples", "try_training"]

_STATE = "head/state.safetensors"
_TARGET = "tiny.gguf"
_TEMPLATE = "{% for m in messages %}<|im_end|>{{ m.content }}{% endfor %}"
_TINY = Tiny(layers=2, width=32, metadata={"tokenizer.chat_template": _TEMPLATE})
_STEPS = 3  # made before the damage, and after it


def try_training(folder: Path, steps: int = _STEPS) -> None:
    """Go on with a training for some steps.

    Raises:
        ForerunError: It is refused.
    """
    model = load_model(folder / _TARGET)
    options = HeadLearning(budget=10_000, vocabulary=40, rows=60, threads=1, levels=2)
    made = iter(range(steps))
    loop.train(
        partial(KINDS["head"], model, ReferenceTarget(model), options=options),
        folder,
        options,
        report=lambda news: None,
        is_over=lambda: next(made, None) is None,
    )


@cache
def training_examples() -> list[Mapping[str, bytes]]:
    """A tiny capture, and a training that made its first steps."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = replace(load_model(_TINY.write(folder / _TARGET)), name="tiny")
        options = {"prompt_tokens": 12, "answer_tokens": 24, "top": 12, "sequences": 8}
        capture(
            model,
            ReferenceTarget(model),
            folder,
            Capturing(tokens=300, long_prompts=0, **options),
            report=lambda news: None,
            is_over=lambda: False,
        )
        try_training(folder)
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        files = {str(path.relative_to(folder)): path.read_bytes() for path in paths}
    tensors = load(files[_STATE])
    told = json.loads(tensors["state"].tobytes()) | {"seconds": 1.5}  # as it was by no clock
    return [{**files, _STATE: save(tensors | {"state": _packed(json.dumps(told).encode())})}]


def _packed(text: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(text, np.uint8)


def mutate_training(random: Random, files: Mapping[str, bytes]) -> tuple[str, dict[str, bytes]]:
    """Return a damaged copy, and what was done to it; the target stays as it is."""
    if random.random() < 0.5:
        what, state = _damaged_state(random, files[_STATE])
        return what, {**files, _STATE: state}
    own = {name: data for name, data in files.items() if name != _TARGET}
    what, changed = mutate_folder(random, own)
    return what, {**changed, _TARGET: files[_TARGET]}


def _damaged_state(random: Random, data: bytes) -> tuple[str, bytes]:
    """Damage what is told of the training, or a tensor, in a file that is sound in itself."""
    tensors = load(data)
    if random.random() < 0.6:
        told = json.loads(tensors["state"].tobytes())
        what, text = change_json(random, told)
        tensors["state"] = _packed(text)
        return f"state: {what}", save(tensors)
    name = random.choice(sorted(tensors))
    way = random.choice(("missing", "shape", "type", "number", "more", "empty"))
    values = tensors.pop(name)
    if way == "shape":
        tensors[name] = values.reshape(-1)[: random.randrange(values.size)].copy()
    elif way == "type":
        tensors[name] = values.astype(random.choice((np.int8, np.float64, np.float16)))
    elif way == "number":
        values = values.copy()
        odd = (np.nan, np.inf, -1, 1e30) if values.dtype.kind == "f" else (0, 255)
        values.reshape(-1)[random.randrange(values.size)] = random.choice(odd)
        tensors[name] = values
    elif way == "more":
        tensors |= {name: values, "best.x": np.ones(3, np.float32), "y": np.ones(1, np.float32)}
    elif way == "empty":
        tensors[name] = np.empty((0, *values.shape[1:]), values.dtype)
    return f"{way} {name}", save(tensors)
