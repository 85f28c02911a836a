"""Captured text on disk: shards of whole conversations with what the target made of each token.

A shard is a safetensors file, and `capture.json` beside the shards says what they are of: the
target, its layers, the recipe. Shards are written in order and each is whole: what a killed capture
left is a shorter capture.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, with_config

from forerun.errors import ModelFileError, TrainingError
from forerun.models.model import Model
from forerun.models.safetensors_file import StoredTensor, read_tensors
from forerun.models.target_checksum import target_checksum
from forerun.printable import shown
from forerun.train.folder import AS_WRITTEN, read_record, write_record, written_whole

__all__ = ["Conversation", "Recipe", "Shard", "Shards", "bytes_per_token", "keep_recipe"]
__all__ += ["read_recipe", "shard_paths", "write_shard"]

Count = Annotated[int, Field(ge=0)]

_RECORD = "capture.json"
_AWAY = "Delete the file: the same capture makes it again."
_DTYPES: dict[str, tuple[str, type[np.generic]]] = {
    "tokens": ("I32", np.int32),
    "starts": ("I64", np.int64),
    "answers": ("I64", np.int64),
    "numbers": ("I64", np.int64),
    "temperatures": ("F32", np.float32),
    "features": ("F16", np.float16),
    "likely": ("I32", np.int32),
    "log_p": ("F16", np.float16),
    "rest": ("F32", np.float32),
}


@with_config(AS_WRITTEN)
@dataclass(frozen=True, slots=True)
class Recipe:
    """What a capture is of, and how its text was made: two captures that agree here are one.

    Attributes:
        target: The target's checksum.
        target_name: What it was called.
        layers: Layers whose hidden states are the features, ascending.
        width: Components of each.
        vocab_size: The target's tokens.
        top: How many of the likeliest tokens are kept at each position.
        seed: Of all choices and draws.
        temperatures: Of the answers.
        prompt_tokens: Most tokens of a prompt.
        answer_tokens: Most tokens of an answer.
        prompts: Checksum of the user's prompts; empty if the target writes them.
        long_prompts: The share of conversations whose prompts may be longer.
        long_prompt_tokens: Most tokens of those.
    """

    target: str
    target_name: str
    layers: Annotated[tuple[Count, ...], Field(min_length=1)]
    width: Count
    vocab_size: Count
    top: Count
    seed: Count
    temperatures: Annotated[tuple[float, ...], Field(min_length=1)]
    prompt_tokens: Count
    answer_tokens: Count
    prompts: str = ""
    long_prompts: float = 0.0
    long_prompt_tokens: Count = 0

    def check_of(self, model: Model) -> None:
        """Check that it is of this model.

        Raises:
            TrainingError: It is of another one, or damaged.
        """
        network = model.architecture
        if self.target != target_checksum(model):
            what = f"The captured text is of another target ({shown(self.target_name)})."
            raise TrainingError(what, f"Capture text of {model.name} into another folder.")
        sizes = (self.width, self.vocab_size)
        if sizes != (network.width, network.vocab_size) or self.layers[-1] > network.num_layers:
            what = f"The record of the captured text has width {self.width}, {self.vocab_size} "
            what += f"tokens and layers {self.layers}, which do not fit {model.name}."
            raise TrainingError(what, "Capture into another folder.")


@dataclass(frozen=True, slots=True)
class Conversation:
    """One captured text.

    Attributes:
        number: Which conversation of the capture it is.
        temperature: Of the answer.
        answer: Where the answer begins.
        tokens: int32 [n].
        features: float16 [n, layers · width]: hidden states at each token.
        likely: int32 [n, top]: the likeliest tokens *after* each, best first.
        log_p: float16 [n, top]: their log-probabilities at temperature 1.
        rest: float32 [n]: the probability of all others together.
    """

    number: int
    temperature: float
    answer: int
    tokens: NDArray[np.int32]
    features: NDArray[np.float16]
    likely: NDArray[np.int32]
    log_p: NDArray[np.float16]
    rest: NDArray[np.float32]


def bytes_per_token(recipe: Recipe) -> int:
    """Return what a captured token takes on disk."""
    return 2 * len(recipe.layers) * recipe.width + 6 * recipe.top + 8


def write_shard(folder: Path, number: int, conversations: Sequence[Conversation]) -> Path:
    """Write shard `number`, which may hold no conversation; return where it is.

    Raises:
        TrainingError: It can't be written.
    """
    from safetensors.numpy import save_file

    lengths = [len(each.tokens) for each in conversations]
    tensors: dict[str, NDArray[Any]] = {
        "starts": np.cumsum([0, *lengths], dtype=np.int64),
        "answers": np.array([each.answer for each in conversations], np.int64),
        "numbers": np.array([each.number for each in conversations], np.int64),
        "temperatures": np.array([each.temperature for each in conversations], np.float32),
    }
    for name in ("tokens", "features", "likely", "log_p", "rest"):
        parts = [getattr(each, name) for each in conversations]
        tensors[name] = np.concatenate(parts) if parts else np.empty(0, _DTYPES[name][1])
    path = folder / f"shard-{number:05d}.safetensors"
    written_whole(path, lambda beside: save_file(tensors, beside))
    return path


class Shard:
    """One shard whose header was checked; large tensors are mapped, not read.

    Args:
        path: The file.
        recipe: Of its capture.

    Raises:
        TrainingError: It is truncated, damaged or of another recipe.
    """

    def __init__(self, path: Path, recipe: Recipe) -> None:
        self.path = path
        try:
            _, stored = read_tensors(path)
        except ModelFileError as error:
            raise TrainingError(error.what, _AWAY) from error
        for name, (dtype, _) in _DTYPES.items():
            if name not in stored or stored[name].dtype != dtype:
                self._refuse(f"lacks {name} of type {dtype}")
        arrays = {name: self._array(name, stored[name]) for name in _DTYPES}
        self._check(arrays, recipe)
        self._arrays = arrays

    @property
    def num_tokens(self) -> int:
        """Tokens of all its conversations."""
        return len(self._arrays["tokens"])

    def conversations(self) -> Iterator[Conversation]:
        """Yield its conversations; their arrays are views of the file."""
        a = self._arrays
        for i, (start, end) in enumerate(zip(a["starts"], a["starts"][1:], strict=False)):
            here = slice(int(start), int(end))
            yield Conversation(
                int(a["numbers"][i]),
                float(a["temperatures"][i]),
                int(a["answers"][i]),
                a["tokens"][here],
                a["features"][here],
                a["likely"][here],
                a["log_p"][here],
                a["rest"][here],
            )

    def _array(self, name: str, stored: StoredTensor) -> NDArray[Any]:
        kind = _DTYPES[name][1]
        if not stored.nbytes:
            return np.empty(stored.shape, kind)
        return np.memmap(self.path, kind, "r", stored.start, stored.shape)

    def _check(self, arrays: Mapping[str, NDArray[Any]], recipe: Recipe) -> None:
        starts, tokens = arrays["starts"], arrays["tokens"]
        for name in ("numbers", "tokens"):
            if arrays[name].ndim != 1:
                self._refuse(f"holds {name} of shape {arrays[name].shape}")
        count, total = len(arrays["numbers"]), len(tokens)
        width = len(recipe.layers) * recipe.width
        shapes: dict[str, tuple[int, ...]] = {
            "starts": (count + 1,),
            "answers": (count,),
            "temperatures": (count,),
        }
        shapes |= {"rest": (total,), "tokens": (total,)}
        if total:
            shapes |= {"features": (total, width)}
            shapes |= dict.fromkeys(("likely", "log_p"), (total, recipe.top))
        for name, shape in shapes.items():
            if arrays[name].shape != shape:
                self._refuse(f"holds {name} of shape {arrays[name].shape}, not {shape}")
        lengths = np.diff(starts)
        is_sound = starts[0] == 0 and starts[-1] == total and bool((lengths > 0).all())
        if not is_sound or not ((arrays["answers"] >= 0) & (arrays["answers"] <= lengths)).all():
            self._refuse("holds conversations that do not fit its tokens")
        for name in ("tokens", "likely"):
            ids = arrays[name]
            if ids.size and not (ids.min() >= 0 and ids.max() < recipe.vocab_size):
                self._refuse(f"names {name} that the target has not")

    def _refuse(self, what: str) -> None:
        raise TrainingError(f"The shard {self.path} {what}.", _AWAY)


class Shards:
    """All shards of one capture.

    Args:
        folder: Where they are.

    Raises:
        TrainingError: There is no capture, or a shard is truncated or damaged.
    """

    def __init__(self, folder: Path) -> None:
        recipe = read_recipe(folder)
        if recipe is None:
            what = f"{folder} holds no captured text."
            raise TrainingError(what, "`forerun train capture` makes some.")
        self.recipe = recipe
        self.shards = [Shard(path, recipe) for path in shard_paths(folder)]

    @property
    def num_tokens(self) -> int:
        """Tokens of all conversations."""
        return sum(shard.num_tokens for shard in self.shards)

    def conversations(self) -> Iterator[Conversation]:
        """Yield all conversations, in the order they were numbered."""
        for shard in self.shards:
            yield from shard.conversations()


def shard_paths(folder: Path) -> list[Path]:
    """Return the shards that are there, in order, up to the first that is missing."""
    numbers = sorted(
        int(found[1])
        for path in folder.iterdir()
        if (found := re.fullmatch(r"shard-(\d{5})\.safetensors", path.name))
    )
    there = [number for place, number in enumerate(numbers) if place == number]
    return [folder / f"shard-{number:05d}.safetensors" for number in there]


def read_recipe(folder: Path) -> Recipe | None:
    """Return what the folder's capture is of, or None if there is none.

    Raises:
        TrainingError: The record is damaged.
    """
    return read_record(folder / _RECORD, Recipe, "Capture into another folder.")


def keep_recipe(folder: Path, recipe: Recipe) -> None:
    """Write down what the folder's capture is of, or check that it is of the same.

    Raises:
        TrainingError: It is of another target, or was made otherwise.
    """
    known = read_recipe(folder)
    if known is None:
        write_record(folder / _RECORD, asdict(recipe))
    elif known != recipe:
        old, new = asdict(known), asdict(recipe)
        name = next(name for name in new if old[name] != new[name])
        what = f"The capture in {folder} has {name} = {old[name]}, not {new[name]}."
        if name == "target":  # the names say more than the checksums, where they differ
            names = f"{known.target_name!r}, not {recipe.target_name!r} as it is now"
            what = f"The capture in {folder} is of another target ({names})."
        raise TrainingError(what, "Name another folder, or the same options.")
