"""Parallel heads in FasterDecoding's folder layout, which TGI serves, and back from it.

`config.json` has their number, and `medusa_lm_head.safetensors` of head k the tensors
`k.0.linear.weight`, `k.0.linear.bias` and `k.1.weight`: rows for the whole vocabulary, a copy each.
Ours share a few rows; the others are the target's.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file
from safetensors.torch import load

from forerun.errors import ModelFileError, OptionError
from forerun.models.head_file import HeadFacts, HeadFile, write_head
from forerun.models.head_shapes import HEAD, MEDUSA, MOST_GUESSES, MedusaShape
from forerun.models.model import Model
from forerun.models.plain_file import read_json
from forerun.models.target_checksum import target_checksum
from forerun.regular_file import read_file, reason_of
from forerun.train.folder import written_whole

__all__ = ["export_medusa", "import_medusa"]

_FILE = "medusa_lm_head.safetensors"
_LONGEST_CONFIG = 16 << 20
_LARGEST_FILE = 32 << 30
_AWAY = "Name a folder with Medusa heads in FasterDecoding's layout."
_OWN_CARD, _OWN_TOKENS = "forerun_card", "forerun_tokens"
Tensors = dict[str, NDArray[np.float32]]


def export_medusa(head: HeadFile, model: Model, folder: Path) -> None:
    """Write heads as `config.json` and `medusa_lm_head.safetensors` into a folder, in 16 bits.

    Args:
        head: The heads.
        model: Their target.
        folder: Made if it is not there.

    Raises:
        OptionError: They are no parallel heads, or read another state than the last.
        OtherTargetError: They are of another target.
        TrainingError: The files can't be written.
    """
    head.check_kind(MEDUSA)
    head.check_target(model)
    shape, facts = head.shape, head.facts
    assert isinstance(shape, MedusaShape)
    if facts.layers != (model.architecture.num_layers,):
        what = f"These heads read layer {facts.layers[0]}."
        raise OptionError(what, "The layout has those that read the last hidden state.")
    tensors: dict[str, NDArray[Any]] = {}
    for name in shape.tensors(1):
        tensors[name] = head.file.tensor(name).astype(np.float16)
    whole = _targets_head(model).astype(np.float16)
    for guess in range(shape.guesses):
        own = head.own_heads
        rows = whole.copy()  # each tensor has memory of its own
        if own:
            rows[facts.tokens] = head.file.tensor(own[guess if len(own) > 1 else 0])
        tensors[f"{guess}.1.weight"] = rows
    folder.mkdir(parents=True, exist_ok=True)
    written_whole(folder / _FILE, lambda path: save_file(tensors, path))
    config = {
        "model_type": "medusa",
        "medusa_num_heads": shape.guesses,
        "medusa_num_layers": 1,
        "base_model_name_or_path": model.name,
        "hidden_size": shape.width,
        "vocab_size": len(whole),
        _OWN_CARD: dict(facts.card),
        _OWN_TOKENS: facts.tokens.tolist(),
    }
    text = json.dumps(config, indent=2) + "\n"

    def write(path: Path) -> None:
        path.write_text(text, "utf-8")

    written_whole(folder / "config.json", write)


def import_medusa(folder: Path, model: Model, path: Path) -> None:
    """Write the heads of such a folder as a file of ours.

    Heads that Forerun wrote come back with their vocabulary; others have the whole, and rows of
    their own unless those are the target's.

    Args:
        folder: Has `config.json` and `medusa_lm_head.safetensors`.
        model: The target they were trained for; who says so is the caller.
        path: Of the file to write, in 8 bits.

    Raises:
        ModelFileError: The folder is damaged, or does not fit the model.
        OptionError: The heads are of another shape than ours.
    """
    config = read_json(folder / "config.json", _LONGEST_CONFIG)
    count, layers = config.get("medusa_num_heads"), config.get("medusa_num_layers", 1)
    if type(count) is not int or not 1 <= count <= MOST_GUESSES:
        what = f"{folder}: medusa_num_heads is {count!r:.80}, not 1 to {MOST_GUESSES}."
        raise ModelFileError(what, _AWAY)
    if layers != 1:
        what = f"{folder} has heads of {layers!r:.80} layers."
        raise OptionError(what, "Heads of one layer can be imported.")
    network = model.architecture
    shape = MedusaShape(network.width, count)
    vocabulary = network.vocab_size, network.width
    rows = {f"{guess}.1.weight": vocabulary for guess in range(count)}
    stored = _stored(folder / _FILE, {**shape.tensors(1), **rows}, optional=rows)
    tokens = _tokens(folder, config.get(_OWN_TOKENS), network.vocab_size)
    tensors = {name: stored[name] for name in shape.tensors(1)}
    own = {name: stored[name][tokens] for name in rows if name in stored}
    tensors |= _own_rows(own, model, tokens)
    card = config.get(_OWN_CARD)
    facts = HeadFacts(
        target_checksum(model),
        model.name,
        (network.num_layers,),
        tokens,
        card if isinstance(card, dict) else {"imported": "medusa"},
        MEDUSA,
    )
    write_head(path, tensors, facts, "Q8_0")  # who learned them did not mean them to be rounded


def _targets_head(model: Model) -> NDArray[np.float32]:
    tied = model.architecture.is_tied
    return model.file.tensor("token_embd.weight" if tied else "output.weight")


def _own_rows(rows: Tensors, model: Model, tokens: NDArray[np.int64]) -> Tensors:
    """Return the rows that a file needs: none that the target has, one for all that are equal."""
    if not rows:
        return {}
    first = next(iter(rows.values()))
    if any(not np.array_equal(first, each) for each in rows.values()):
        return rows
    targets = _targets_head(model)[tokens]
    is_targets = np.array_equal(first, targets.astype(np.float16).astype(np.float32))
    return {} if is_targets else {HEAD: first}


def _stored(path: Path, shapes: dict[str, tuple[int, ...]], optional: Collection[str]) -> Tensors:
    """Return a file's tensors, as many as are named; all or none of the optional ones."""
    try:
        found = load(read_file(path, _LARGEST_FILE))  # PyTorch reads bfloat16
    except OSError as error:
        raise ModelFileError(f"{path} {reason_of(error)}.", _AWAY) from None
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ModelFileError(f"{path} is damaged: {error}.", _AWAY) from None
    has_rows = any(name in found for name in optional)
    tensors = {}
    for name, size in shapes.items():
        if name in optional and not has_rows:
            continue
        values = found.get(name)
        if values is None or tuple(values.shape) != size or not values.is_floating_point():
            what = "is missing" if values is None else f"is {tuple(values.shape)}, not {size}"
            raise ModelFileError(f"{path}: the tensor {name} {what}.", _AWAY)
        tensors[name] = values.float().numpy()
    return tensors


def _tokens(folder: Path, named: object, vocab_size: int) -> NDArray[np.int64]:
    """Return the draft vocabulary: what is named, or all."""
    if named is None:
        return np.arange(vocab_size)
    if isinstance(named, list) and named and all(type(each) is int for each in named):
        tokens = np.array(named, dtype=object)
        if (tokens[1:] > tokens[:-1]).all() and tokens[0] >= 0 and tokens[-1] < vocab_size:
            return tokens.astype(np.int64)
    raise ModelFileError(f"{folder}: {_OWN_TOKENS} names no tokens that ascend.", _AWAY)
