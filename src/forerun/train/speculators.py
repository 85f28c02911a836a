"""Heads to and from the folder format of `speculators`, which vLLM serves.

The network is the same and the tensors have the same names. Three things differ: queries and keys
turn in halves there, whatever the target's file does, so their rows are put in that order; the
draft's own head and the target's embedding are in the file; and the map of tokens is one of
offsets, `d2t`, with a mask beside it, `t2d`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file
from safetensors.torch import load

from forerun.errors import ModelFileError, OptionError
from forerun.models.architecture import Architecture
from forerun.models.head_file import HEAD, HeadFacts, HeadFile, HeadShape, write_head
from forerun.models.head_shapes import EAGLE
from forerun.models.model import Model
from forerun.models.plain_file import read_json
from forerun.models.target_checksum import target_checksum
from forerun.regular_file import read_file, reason_of
from forerun.train.folder import written_whole

__all__ = ["export_speculators", "import_speculators"]

_VERSION = "0.9.0"
_LONGEST_CONFIG = 1 << 20
_LARGEST_FILE = 8 << 30
_AWAY = "Name a folder with an EAGLE-3 head in the format of speculators."
_OWN_CARD = "forerun_card"
Tensors = Mapping[str, NDArray[Any]]


def export_speculators(head: HeadFile, model: Model, folder: Path, guesses: int = 3) -> None:
    """Write a head as `config.json` and `model.safetensors` into a folder.

    Args:
        head: The head.
        model: Its target.
        folder: Made if it is not there.
        guesses: Tokens that a server is to draft at once.

    Raises:
        OptionError: The head is of another kind.
        OtherTargetError: It is of another target.
        TrainingError: The files can't be written.
    """
    head.check_kind(EAGLE)
    head.check_target(model)
    network, facts = model.architecture, head.facts
    shape = head.shape.tensors(len(facts.layers))
    tensors: dict[str, NDArray[Any]] = {
        name: _turned(name, head.file.tensor(name), network, outwards=True) for name in shape
    }
    embedding = model.file.tensor("token_embd.weight")
    own = embedding if network.is_tied else model.file.tensor("output.weight")
    tokens = facts.tokens
    tensors[HEAD] = head.file.tensor(HEAD) if head.has_own_head else own[tokens]
    tensors["embed_tokens.weight"] = embedding
    tensors["d2t"] = tokens - np.arange(len(tokens))
    tensors["t2d"] = np.isin(np.arange(network.vocab_size), tokens)
    folder.mkdir(parents=True, exist_ok=True)
    whole = {name: np.ascontiguousarray(values) for name, values in tensors.items()}
    written_whole(folder / "model.safetensors", lambda path: save_file(whole, path))
    config = json.dumps(_config(head, model, guesses), indent=2) + "\n"

    def write(path: Path) -> None:
        path.write_text(config, "utf-8")

    written_whole(folder / "config.json", write)


def import_speculators(folder: Path, model: Model, path: Path) -> None:
    """Write the head of a speculators folder as one of ours.

    Args:
        folder: Has `config.json` and `model.safetensors`.
        model: The target it was trained for; who says so is the caller.
        path: Of the file to write, in 8 bits.

    Raises:
        ModelFileError: The folder is damaged, or does not fit the model.
        OptionError: It is a head of another kind.
    """
    config = read_json(folder / "config.json", _LONGEST_CONFIG)
    _check_kind(folder, config)
    stored = _stored(folder / "model.safetensors")
    network = model.architecture
    shape = HeadShape(
        network.width,
        network.num_heads * network.head_dim,
        network.num_kv_heads * network.head_dim,
        network.inner_width,
    )
    layers = _layers(folder, config)
    tensors = {}
    for name, size in {**shape.tensors(len(layers)), HEAD: ()}.items():
        values = stored.get(name)
        if values is None or (size and values.shape != size):
            found = "is missing" if values is None else f"is {values.shape}, not {size}"
            raise ModelFileError(f"{folder}: the tensor {name} {found}.", _AWAY)
        tensors[name] = _turned(name, np.asarray(values, np.float32), network, outwards=False)
    tokens = _tokens(folder, stored, len(tensors[HEAD]), network.vocab_size)
    order = np.argsort(tokens)  # ours ascend
    tokens, tensors[HEAD] = tokens[order], tensors[HEAD][order]
    card = config.get(_OWN_CARD)
    facts = HeadFacts(
        target_checksum(model),
        model.name,
        layers,
        tokens,
        card if isinstance(card, dict) else {"imported": "speculators"},
    )
    write_head(path, tensors, facts, "Q8_0")  # who learned it did not mean it to be rounded


def _turned(
    name: str, values: NDArray[np.float32], network: Architecture, *, outwards: bool
) -> NDArray[np.float32]:
    """Return a projection whose heads turn in halves (outwards), or as the target's do."""
    rope = network.rope
    if not rope.interleaved or not name.endswith(("q_proj.weight", "k_proj.weight")):
        return values
    if rope.dimension != network.head_dim:
        what = f"Heads that turn {rope.dimension} of {network.head_dim} components."
        raise OptionError(what, "The format of speculators knows whole heads only.")
    split = (network.head_dim // 2, 2) if outwards else (2, network.head_dim // 2)
    heads = values.reshape(-1, *split, values.shape[1])
    return np.ascontiguousarray(heads.swapaxes(1, 2)).reshape(values.shape)


def _config(head: HeadFile, model: Model, guesses: int) -> dict[str, object]:
    network, facts = model.architecture, head.facts
    if any(factor != 1 for factor in network.rope.factors):
        raise OptionError(f"{model.name} stretches its positions.", "That is not exported yet.")
    return {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_version": _VERSION,
        "draft_vocab_size": len(facts.tokens),
        "norm_before_residual": False,
        "norm_before_fc": False,
        "fc_norm": False,
        "norm_output": False,
        "target_hidden_size": None,
        "eagle_aux_hidden_state_layer_ids": list(facts.layers),
        "transformer_layer_config": {
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": network.width,
            "intermediate_size": network.inner_width,
            "num_hidden_layers": 1,
            "num_attention_heads": network.num_heads,
            "num_key_value_heads": network.num_kv_heads,
            "head_dim": network.head_dim,
            "hidden_act": "silu",
            "rms_norm_eps": network.norm_epsilon,
            "rope_theta": network.rope.base,
            "max_position_embeddings": network.context_length,
            "vocab_size": network.vocab_size,
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": False,
        },
        "speculators_config": {
            "algorithm": "eagle3",
            "proposal_methods": [
                {
                    "proposal_type": "greedy",
                    "speculative_tokens": guesses,
                    "verifier_accept_k": 1,
                    "accept_tolerance": 0.0,
                }
            ],
            "default_proposal_method": "greedy",
            "verifier": {"name_or_path": model.name, "architectures": ["LlamaForCausalLM"]},
        },
        "torch_dtype": "float32",
        _OWN_CARD: dict(facts.card),
    }


def _check_kind(folder: Path, config: Mapping[str, object]) -> None:
    """Refuse what our heads do not compute; what is absent means what it means to vLLM."""
    kind = config.get("speculators_model_type")
    if kind != "eagle3":
        raise OptionError(f"{folder} holds a drafter of kind {kind!r:.80}, not eagle3.", _AWAY)
    wanted = {"norm_before_residual": True, "norm_before_fc": False, "fc_norm": False}
    for name, default in {**wanted, "norm_output": False}.items():
        if config.get(name, default):
            raise OptionError(f"{folder} has {name}.", "Heads without it can be imported.")
    layer = config.get("transformer_layer_config")
    if not isinstance(layer, dict) or layer.get("num_hidden_layers") != 1:
        raise OptionError(f"{folder} has not one layer.", "Heads of one layer can be imported.")


def _layers(folder: Path, config: Mapping[str, object]) -> tuple[int, ...]:
    layers = config.get("eagle_aux_hidden_state_layer_ids")
    if not isinstance(layers, list) or not all(type(each) is int for each in layers):
        what = f"{folder}: eagle_aux_hidden_state_layer_ids is {layers!r:.80}."
        raise ModelFileError(what, _AWAY)
    return tuple(layers)


def _stored(path: Path) -> Tensors:
    try:
        # PyTorch reads bfloat16, which numpy does not know.
        tensors = {
            name.replace("midlayer.", "layers.0."): (
                values.float() if values.is_floating_point() else values
            ).numpy()
            for name, values in load(read_file(path, _LARGEST_FILE)).items()
        }
    except OSError as error:
        raise ModelFileError(f"{path} {reason_of(error)}.", _AWAY) from None
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ModelFileError(f"{path} is damaged: {error}.", _AWAY) from None
    return tensors


def _tokens(folder: Path, stored: Tensors, size: int, vocab_size: int) -> NDArray[np.int64]:
    """Return the target's id of each draft id."""
    offsets = stored.get("d2t")
    if offsets is None and size == vocab_size:
        return np.arange(size)
    if offsets is None or offsets.shape != (size,) or offsets.dtype.kind != "i":
        raise ModelFileError(f"{folder}: d2t is no map of {size} tokens.", _AWAY)
    tokens = offsets.astype(np.int64) + np.arange(size)
    if tokens.min() < 0 or tokens.max() >= vocab_size:
        raise ModelFileError(f"{folder}: d2t points outside of {vocab_size} tokens.", _AWAY)
    return tokens
