"""Small random Hugging Face folders of every supported kind, written byte by byte."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from models.tiny_gguf import Tiny, byte_vocabulary

Array = NDArray[np.float32]
Stored = tuple[str, tuple[int, ...], bytes]

ENDS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
PARTS = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    **{f"attn_{letter}": f"self_attn.{letter}_proj" for letter in "qkv"},
    **{f"attn_{letter}_norm": f"self_attn.{letter}_norm" for letter in "qk"},
}
CAUSAL = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
}


@dataclass(frozen=True)
class TinyFolder:
    """What a tiny folder holds; every field may be changed.

    `config` adds or replaces keys (None removes one); `tensors` likewise, as (dtype, shape, bytes).
    With `shards` the tensors are dealt out to so many files and an index.
    """

    tiny: Tiny = field(default_factory=Tiny)
    model_type: str = ""
    dtype: str = "F32"
    shards: int = 0
    config: Mapping[str, object] = field(default_factory=dict)
    tensors: Mapping[str, Stored | None] = field(default_factory=dict)
    template: str | None = None

    def write(self, path: Path) -> Path:
        """Write the folder and return its path."""
        path.mkdir(parents=True, exist_ok=True)
        write_json(path / "config.json", self.all_config())
        write_json(path / "generation_config.json", {"eos_token_id": [1]})
        write_json(path / "tokenizer.json", byte_tokenizer(self.tiny.vocab_size))
        settings = {"bos_token": "<|endoftext|>", "eos_token": {"content": "<|im_end|>"}}
        write_json(path / "tokenizer_config.json", {**settings, "chat_template": self.template})
        stored = self.all_tensors()
        if not self.shards:
            write_safetensors(path / "model.safetensors", stored)
            return path
        names, placed = sorted(stored), {}
        for shard in range(self.shards):
            own = names[shard :: self.shards]
            name = f"model-{shard + 1:05}-of-{self.shards:05}.safetensors"
            write_safetensors(path / name, {tensor: stored[tensor] for tensor in own})
            placed |= dict.fromkeys(own, name)
        index = {"metadata": {"total_size": 1}, "weight_map": placed}
        write_json(path / "model.safetensors.index.json", index)
        return path

    def all_config(self) -> dict[str, object]:
        """Every key and value of config.json."""
        tiny, kind = self.tiny, self.model_type or self.tiny.architecture
        values: dict[str, object] = {
            "model_type": kind,
            "architectures": [CAUSAL[kind]] if kind in CAUSAL else None,
            "vocab_size": tiny.vocab_size,
            "hidden_size": tiny.width,
            "num_hidden_layers": tiny.layers,
            "num_attention_heads": tiny.heads,
            "num_key_value_heads": tiny.kv_heads,
            "head_dim": tiny.head_dim,
            "intermediate_size": tiny.inner,
            "max_position_embeddings": tiny.context,
            "rms_norm_eps": 1e-5,
            "rope_theta": tiny.rope_base,
            "tie_word_embeddings": tiny.is_tied,
            "hidden_act": "silu",
            **self.config,
        }
        return {key: value for key, value in values.items() if value is not None}

    def all_tensors(self) -> dict[str, Stored]:
        """Every tensor as it is stored, under the folder's names."""
        values = {own_name(name): value for name, value in self.tiny.all_tensors().items()}
        stored = {n: (self.dtype, v.shape, encoded(v, self.dtype)) for n, v in values.items()}
        return {name: value for name, value in (stored | dict(self.tensors)).items() if value}

    def as_gguf(self, path: Path, quantisation: str, ends: str = "") -> Path:
        """Write the same weights, in their order of rows, as a GGUF file; `qwen2` and `qwen3` only.

        The weights are those that the folder stores, rounded to its type. `ends` is the type of
        embedding and head.
        """
        rounded = {
            name: decoded(encoded(value, self.dtype), self.dtype).reshape(value.shape)
            for name, value in self.tiny.all_tensors().items()
        }
        types = {"attn_output": quantisation}  # else it would count as the output
        types |= dict.fromkeys(("token_embd", "output.weight"), ends or quantisation)
        tiny = replace(self.tiny, tensors=rounded, quantisation=quantisation, types=types)
        return tiny.write(path)


def own_name(name: str) -> str:
    """What a folder calls a tensor that GGUF calls `name`."""
    if name in ENDS:
        return ENDS[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{PARTS[part]}.{kind}"


def encoded(values: Array, dtype: str) -> bytes:
    """Numbers in the bytes of a type."""
    return gguf.quantize(np.ascontiguousarray(values), gguf.GGMLQuantizationType[dtype]).tobytes()


def decoded(data: bytes, dtype: str) -> Array:
    """Bytes of a type as numbers."""
    return gguf.dequantize(np.frombuffer(data, np.uint8), gguf.GGMLQuantizationType[dtype])


def write_safetensors(path: Path, tensors: Mapping[str, Stored]) -> None:
    """Write a file: length of the header, header, data."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + len(data)]}
        end += len(data)
    text = json.dumps(header).encode()
    body = b"".join(data for _, _, data in tensors.values())
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def write_json(path: Path, value: object) -> None:
    """Write a JSON file."""
    path.write_text(json.dumps(value), "utf-8")


def byte_tokenizer(size: int) -> dict[str, object]:
    """tokenizer.json of the vocabulary that tiny GGUF files have."""
    metadata = byte_vocabulary(size)
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    merges = metadata["tokenizer.ggml.merges"] or []
    assert isinstance(tokens, list)
    assert isinstance(types, list)
    assert isinstance(merges, list)
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": token, "content": text, "special": types[token] == 3, **flags}
        for token, text in enumerate(tokens)
        if types[token] != 1
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    digits = {"type": "Digits", "individual_digits": True}
    return {
        "version": "1.0",
        "truncation": {
            "direction": "Right",
            "max_length": 8,
            "strategy": "LongestFirst",
            "stride": 0,
        },
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [digits, {**byte_level, "use_regex": True}],
        },
        "post_processor": None,
        "decoder": {**byte_level, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {text: token for token, text in enumerate(tokens)},
            "merges": [line.split(" ") for line in merges],
        },
    }


_SPACE = "\u2581"
PIECES = (
    "the",
    "hen",
    "he",
    "n",
    "wa",
    "lk",
    "s",
    "to",
    "e",
    "\u00e9",
    "\u732b",
    "house",
    ".",
    ",",
)


def unigram_tokenizer(size: int, end: str = "</s>") -> dict[str, object]:
    """tokenizer.json as T5 has it: pieces with scores, an end behind every text."""
    specials = ["<pad>", end, "<unk>"]
    letters = [_SPACE, *map(chr, range(ord("a"), ord("z") + 1)), *map(chr, range(65, 91))]
    words = [*(_SPACE + piece for piece in PIECES), *PIECES]
    pieces = dict.fromkeys([*specials, *letters, *words])
    vocab = [[text, 0.0 if text in specials else -9.0 + len(text)] for text in pieces]
    vocab += [[f"never{i}", -99.0] for i in range(size - 1 - len(vocab))]
    last = {"id": size - 1, "content": "<extra_id_0>", "special": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [{"id": i, "content": text, "special": True} for i, text in enumerate(specials)]
    space = {"type": "Metaspace", "replacement": _SPACE, "prepend_scheme": "always", "split": True}
    behind = {"SpecialToken": {"id": end, "type_id": 0}}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{**each, **flags} for each in [*added, last]],
        "normalizer": {"type": "NFKC"},
        "pre_tokenizer": space,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 0}}, behind],
            "pair": [
                {"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 0}},
            ],
            "special_tokens": {end: {"id": end, "ids": [1], "tokens": [end]}},
        },
        "decoder": space,
        "model": {"type": "Unigram", "unk_id": 2, "vocab": vocab, "byte_fallback": False},
    }
