"""The files of a model that was learned: a GGUF file, and a folder as transformers writes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from forerun.errors import OptionError
from forerun.models.gguf_file import GGUFFile
from forerun.models.gguf_writing import write_gguf
from forerun.models.model import Model
from forerun.models.target_checksum import target_checksum
from forerun.train.model_folder import write_model_folder
from forerun.train.network import Weights
from forerun.train.student import GGUF_NAMES

__all__ = ["write_model_files"]

_OF_THE_TARGET = {"general.finetune", "general.size_label", "general.file_type", "split.count"}


def write_model_files(
    model: Model, layers: int, weights: Weights, card: Mapping[str, object], folder: Path, kind: str
) -> dict[str, object]:
    """Write what can be written: a target's tokenizer can't always be told in the other's terms.

    Args:
        model: The target, whose embedding, head and tokenizer it has.
        layers: Its own.
        weights: As training names them.
        card: How it was made, and what it is worth.
        folder: For `model.gguf` and the folder `model-hf`.
        kind: GGML's name of the type of matrices in the GGUF file.

    Returns:
        The card, with what was written under `files`, or why it was not.

    Raises:
        ModelFileError: A file can't be written.
        TrainingError: Likewise.
    """
    tensors = {name: values.numpy().astype(np.float32) for name, values in weights.items()}
    files = {"model.gguf": "written", "model-hf": "written"}
    if not isinstance(model.file, GGUFFile):
        files["model.gguf"] = "not written: the target's tokenizer is transformers' own"
    try:
        write_model_folder(model, layers, tensors, folder / "model-hf")
    except OptionError as error:
        files["model-hf"] = f"not written: {error.what}"
    card = {**card, "files": files}
    if isinstance(model.file, GGUFFile):
        metadata = _metadata(model, model.file, layers, card)
        write_gguf(folder / "model.gguf", metadata, _gguf_tensors(model, tensors), kind)
    return card


def _metadata(
    model: Model, file: GGUFFile, layers: int, card: Mapping[str, object]
) -> dict[str, object]:
    metadata = {key: value for key, value in file.metadata.items() if key not in _OF_THE_TARGET}
    prefix = model.architecture.name
    return metadata | {
        "general.architecture": prefix,
        "general.name": f"{model.name}, {layers} layers that draft for it",
        f"{prefix}.block_count": layers,
        "forerun.model.target": target_checksum(model),
        "forerun.model.card": json.dumps(card),
    }


def _gguf_tensors(
    model: Model, tensors: Mapping[str, NDArray[np.float32]]
) -> dict[str, NDArray[np.float32]]:
    """Return all tensors under GGUF's names, those that are the target's among them."""
    named = {}
    for name, values in tensors.items():
        if name == "norm.weight":
            named["output_norm.weight"] = values
            continue
        _, place, part = name.split(".", 2)
        part, _, kind = part.rpartition(".")
        named[f"blk.{place}.{GGUF_NAMES[part]}.{kind}"] = values
    for name in ("token_embd.weight", "output.weight", "rope_freqs.weight"):
        if name in model.file:
            named[name] = model.file.tensor(name)
    return named
