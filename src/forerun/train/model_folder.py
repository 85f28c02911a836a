"""A learned model as a folder that transformers reads: config.json, safetensors, tokenizer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import AddedToken, decoders, models, processors
from tokenizers import Tokenizer as Pipeline

from forerun.errors import OptionError
from forerun.models.architecture import Architecture
from forerun.models.gguf_file import GGUFFile
from forerun.models.model import Model
from forerun.models.plain_file import read_json
from forerun.models.pretokenizer import pretokenizer
from forerun.models.tokenizer import CONTROL
from forerun.models.vocabulary import TokenType, Vocabulary, read_vocabulary
from forerun.train.folder import written_whole
from forerun.train.student import architecture_of

__all__ = ["write_model_folder"]

_CAUSAL = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
_CAUSAL |= {"smollm3": "SmolLM3ForCausalLM"}
_TOKENIZER_FILES = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "chat_template.jinja",
]
_LONGEST_CONFIG = 1 << 20


def write_model_folder(
    model: Model,
    layers: int,
    tensors: Mapping[str, NDArray[np.float32]],
    folder: Path,
    dtype: Literal["float16", "float32"] = "float16",
) -> None:
    """Write the folder.

    Args:
        model: The target, whose embedding, head and tokenizer it has.
        layers: Its own.
        tensors: As training names them.
        folder: Made if it is not there.
        dtype: What its numbers are kept in.

    Raises:
        OptionError: The target has something that this format can't say.
        TrainingError: A file can't be written.
    """
    if isinstance(model.file, GGUFFile):
        vocabulary = read_vocabulary(model.file.metadata)
        config = _config(architecture_of(model.architecture, layers), vocabulary)
        files = _tokenizer_files(model, model.file, vocabulary)
    else:
        config = read_json(model.path / "config.json", _LONGEST_CONFIG)
        config = _shortened(config, layers)
        files = {}
    folder.mkdir(parents=True, exist_ok=True)
    whole = {f"model.{name}": _outwards(name, v, model.architecture) for name, v in tensors.items()}
    whole["model.embed_tokens.weight"] = model.file.tensor("token_embd.weight")
    if not model.architecture.is_tied:
        whole["lm_head.weight"] = model.file.tensor("output.weight")
    kept = {name: np.ascontiguousarray(v, dtype) for name, v in whole.items()}
    config |= {"torch_dtype": dtype}
    marked = {"format": "pt"}
    written_whole(folder / "model.safetensors", lambda path: save_file(kept, path, marked))
    if not isinstance(model.file, GGUFFile):
        for name in _TOKENIZER_FILES:
            if (model.path / name).exists():
                shutil.copyfile(model.path / name, folder / name)
    for name, text in {**files, "config.json": json.dumps(config, indent=2) + "\n"}.items():
        _write_text(folder / name, text)


def _write_text(path: Path, text: str) -> None:
    def write(beside: Path) -> None:
        beside.write_text(text, "utf-8")

    written_whole(path, write)


def _shortened(config: Mapping[str, object], layers: int) -> dict[str, object]:
    """Return the target's own config.json for fewer layers."""
    own = {**config, "num_hidden_layers": layers, "torch_dtype": "float16"}
    own.pop("dtype", None)
    own.pop("quantization_config", None)
    for name in ("layer_types", "no_rope_layers"):
        if isinstance(each := own.get(name), list):
            own[name] = each[:layers]
    return own


def _config(network: Architecture, vocabulary: Vocabulary) -> dict[str, object]:
    """Return what config.json says of a network."""
    if network.name == "llama" and network.has_qkv_bias:
        raise OptionError("A llama with biases on q, k and v alone is none of transformers'.")
    if network.rope.dimension != network.head_dim:
        raise OptionError(f"Heads turn {network.rope.dimension} of {network.head_dim} components.")
    config: dict[str, Any] = {
        "model_type": network.name,
        "architectures": [_CAUSAL[network.name]],
        "hidden_size": network.width,
        "intermediate_size": network.inner_width,
        "num_hidden_layers": network.num_layers,
        "num_attention_heads": network.num_heads,
        "num_key_value_heads": network.num_kv_heads,
        "head_dim": network.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": network.norm_epsilon,
        "rope_theta": network.rope.base,
        "max_position_embeddings": network.context_length,
        "vocab_size": network.vocab_size,
        "tie_word_embeddings": network.is_tied,
        "bos_token_id": vocabulary.bos_id,
        "eos_token_id": sorted(vocabulary.eos_ids),
        "torch_dtype": "float16",
    }
    factors = set(network.rope.factors)
    if len(factors) > 1:
        raise OptionError("The target stretches each pair of positions by a factor of its own.")
    if (factor := factors.pop()) != 1:
        config["rope_scaling"] = {"rope_type": "linear", "factor": factor}
    if network.name == "smollm3":
        still = network.unturned_layers
        config["no_rope_layers"] = [int(i not in still) for i in range(network.num_layers)]
    return config


def _outwards(name: str, values: NDArray[np.float32], network: Architecture) -> NDArray[np.float32]:
    """Return a tensor whose heads turn in halves, as transformers' do."""
    turns = name.endswith(("q_proj.weight", "k_proj.weight", "q_proj.bias", "k_proj.bias"))
    if not network.rope.interleaved or not turns:
        return values
    heads = values.reshape(-1, network.head_dim // 2, 2, *values.shape[1:])
    return heads.swapaxes(1, 2).reshape(values.shape)


def _tokenizer_files(model: Model, file: GGUFFile, vocabulary: Vocabulary) -> dict[str, str]:
    """Return the tokenizer's files of a GGUF target, whose merges are byte-level."""
    if vocabulary.kind != "gpt2" or vocabulary.add_space_prefix:
        raise OptionError(f"A {vocabulary.kind} tokenizer of a GGUF file can't be told there.")
    ends = file.metadata.get("tokenizer.ggml.eos_token_id")
    end = ends if isinstance(ends, int) else min(vocabulary.eos_ids, default=None)
    texts = {"bos_token": vocabulary.bos_id, "eos_token": end}
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": model.architecture.context_length,
        **{key: vocabulary.tokens[i] for key, i in texts.items() if i is not None},
    }
    files = {
        "tokenizer.json": _pipeline(vocabulary, model.tokenizer.add_bos).to_str(),
        "tokenizer_config.json": json.dumps(settings, indent=2) + "\n",
    }
    template = file.metadata.get("tokenizer.chat_template")
    if isinstance(template, str):
        files["chat_template.jinja"] = template
    return files


def _pipeline(vocabulary: Vocabulary, add_bos: bool) -> Pipeline:
    """Return a byte-level tokenizer as the `tokenizers` library describes it."""
    pre = pretokenizer(vocabulary.pre)
    ids = {text: token for token, text in enumerate(vocabulary.tokens) if text}
    merges = list(vocabulary.merges)
    pipeline = Pipeline(models.BPE(vocab=ids, merges=merges, ignore_merges=pre.ignore_merges))
    pipeline.pre_tokenizer = pre.build()
    pipeline.decoder = decoders.ByteLevel()
    for kinds, special in ((CONTROL, True), ((TokenType.USER_DEFINED,), False)):
        added = [
            AddedToken(text, normalized=False, special=special)
            for text, kind in zip(vocabulary.tokens, vocabulary.types, strict=True)
            if text and kind in kinds
        ]
        (pipeline.add_special_tokens if special else pipeline.add_tokens)(added)
    if add_bos and vocabulary.bos_id is not None:
        bos = vocabulary.tokens[vocabulary.bos_id]
        pipeline.post_processor = processors.TemplateProcessing(
            single=[bos, "$A"], special_tokens=[(bos, vocabulary.bos_id)]
        )
    return pipeline
