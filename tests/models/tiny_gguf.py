"""Small random GGUF files of every supported kind, for tests that need a real file quickly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from models.stored_weights import block_inputs, stored_weights

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Tiny:
    """What a tiny model looks like; every field may be changed.

    `metadata` adds or replaces keys (with their architecture prefix; None removes one), `tensors`
    likewise. `quantisation` is a GGML type name for the matrices whose rows fit its blocks,
    `types` that of those whose names contain its keys.
    """

    architecture: str = "llama"
    vocab_size: int = 300
    width: int = 32
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 8
    inner: int = 48
    context: int = 128
    rope_base: float = 10000.0
    rope_factors: tuple[float, ...] = ()
    is_tied: bool = True
    quantisation: str = "F32"
    types: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    metadata: Mapping[str, object] = field(default_factory=dict)
    tensors: Mapping[str, Array | None] = field(default_factory=dict)

    def write(self, path: Path) -> Path:
        """Write the file and return its path."""
        writer = gguf.GGUFWriter(path, self.architecture)
        for key, value in self.all_metadata().items():
            _add(writer, key, value)
        for name, values in self.all_tensors().items():
            self._add_tensor(writer, name, values)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    def all_metadata(self) -> dict[str, object]:
        """Every key and value, general.architecture aside: the writer adds that."""
        own = {
            "vocab_size": self.vocab_size,
            "context_length": self.context,
            "embedding_length": self.width,
            "block_count": self.layers,
            "feed_forward_length": self.inner,
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.kv_heads,
            "attention.key_length": self.head_dim,
            "attention.value_length": self.head_dim,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "rope.freq_base": self.rope_base,
        }
        values: dict[str, object] = {f"{self.architecture}.{k}": v for k, v in own.items()}
        values.update(byte_vocabulary(self.vocab_size))
        values.update(self.metadata)
        return {key: value for key, value in values.items() if value is not None}

    def all_tensors(self) -> dict[str, Array]:
        """Every tensor, float32, row-major."""
        shapes = self._shapes()
        random = np.random.default_rng(self.seed)
        values: dict[str, Array | None] = {}
        for name, shape in shapes.items():
            noise = random.standard_normal(shape).astype(np.float32)
            # Norms near one, matrices that keep a row's size, so that logits differ by about one.
            values[name] = noise / np.sqrt(shape[-1]) if len(shape) == 2 else 1 + noise / 4
        if self.rope_factors:
            values["rope_freqs.weight"] = np.array(self.rope_factors, dtype=np.float32)
        values.update(self.tensors)
        return {
            name: value.astype(np.float32) for name, value in values.items() if value is not None
        }

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (self.vocab_size, self.width)}
        for layer in range(self.layers):
            one: dict[str, tuple[int, ...]] = {"attn_norm.weight": (self.width,)}
            for letter, size in (("q", queries), ("k", keys), ("v", keys)):
                one[f"attn_{letter}.weight"] = (size, self.width)
                if self.architecture == "qwen2":
                    one[f"attn_{letter}.bias"] = (size,)
            if self.architecture == "qwen3":
                one |= {f"attn_{letter}_norm.weight": (self.head_dim,) for letter in "qk"}
            one |= {"attn_output.weight": (self.width, queries), "ffn_norm.weight": (self.width,)}
            one |= {f"ffn_{name}.weight": (self.inner, self.width) for name in ("gate", "up")}
            one["ffn_down.weight"] = (self.width, self.inner)
            shapes |= {f"blk.{layer}.{name}": shape for name, shape in one.items()}
        shapes["output_norm.weight"] = (self.width,)
        if not self.is_tied:
            shapes["output.weight"] = (self.vocab_size, self.width)
        return shapes

    def _add_tensor(self, writer: gguf.GGUFWriter, name: str, values: Array) -> None:
        own = [kind for part, kind in self.types.items() if part in name]
        kind = own[0] if own else self.quantisation
        if values.ndim == 2 and values.shape[1] % block_inputs(kind) == 0:
            stored = stored_weights(kind, values)
            writer.add_tensor(name, stored, raw_dtype=gguf.GGMLQuantizationType[kind])
        else:
            writer.add_tensor(name, values)


def byte_vocabulary(size: int) -> dict[str, object]:
    """Return `tokenizer.ggml.*` of a byte-level BPE: two control tokens, bytes, merges, filling."""
    tokens = ["<|endoftext|>", "<|im_end|>", *_byte_letters()]
    merges = []
    for left, right in ("th", "he", "in", "er", "an", "re"):
        tokens.append(left + right)
        merges.append(f"{left} {right}")
    tokens = [*tokens, *(f"<filling {i}>" for i in range(size))][:size]
    known = set(tokens)
    types = [3 if text.startswith("<|") else 4 if " " in text else 1 for text in tokens]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [m for m in merges if m.replace(" ", "") in known] or None,
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.add_bos_token": False,
    }


def _byte_letters() -> list[str]:
    """The letters that stand for the 256 bytes in byte-level BPE (Radford et al. 2019)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]


def _add(writer: gguf.GGUFWriter, key: str, value: object) -> None:
    if key == "general.architecture":
        return
    kinds: dict[type, gguf.GGUFValueType] = {
        bool: gguf.GGUFValueType.BOOL,
        int: gguf.GGUFValueType.INT64,
        float: gguf.GGUFValueType.FLOAT64,
        str: gguf.GGUFValueType.STRING,
        list: gguf.GGUFValueType.ARRAY,
    }
    writer.add_key_value(key, value, kinds[type(value)])
