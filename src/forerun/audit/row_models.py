"""Small random models for the native target: every weight type, odd sizes, groups of heads.

Each is written to a file and read back, so that what is tested is the way users' models go. Numbers
of quantised blocks are random bytes under scales that keep a row's size: every code occurs.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import gguf
import numpy as np
from numpy.typing import NDArray

from forerun.models.model import Model, load_model

__all__ = ["SHAPES", "RandomShape", "random_model"]


class _Block(NamedTuple):
    """How a type's blocks are filled: `spread` is the numbers' deviation under a scale of 1."""

    inputs: int
    size: int  # bytes
    scale: int  # where the half float stands that scales the block
    spread: float
    offset: int | None = None  # where that of the minimum stands, if there is one
    minimum: float = 0.0  # in scales: it centres the numbers


_BLOCKS = {
    "Q4_0": _Block(32, 18, 0, 4.6),
    "Q4_1": _Block(32, 20, 0, 4.6, 2, -7.5),
    "Q5_0": _Block(32, 22, 0, 9.2),
    "Q5_1": _Block(32, 24, 0, 9.2, 2, -15.5),
    "Q8_0": _Block(32, 34, 0, 74.0),
    "Q4_K": _Block(256, 144, 0, 190.0, 2, 7.5),
    "Q5_K": _Block(256, 176, 0, 380.0, 2, 15.5),
    "Q6_K": _Block(256, 210, 208, 1360.0),
}
_FLOATS = ("F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class RandomShape:
    """What a random model looks like.

    Attributes:
        architecture: `llama`; `qwen2` has biases on q, k and v, `qwen3` norms on q and k.
        heads: Query heads.
        kv_heads: Of which each serves heads / kv_heads query heads.
        head_dim: Components of a head.
        width: Of the residual stream.
        inner: Width inside the feed-forward.
        types: Of the matrices, in turn; those whose blocks do not fit a row become floats.
        layers: How many.
        turning: Components of a head that turn with the position; 0 is all.
        is_tied: The head is the embedding.
        vocab_size: Tokens.
        context: Most tokens.
    """

    architecture: str
    heads: int
    kv_heads: int
    head_dim: int
    width: int
    inner: int
    types: tuple[str, ...]
    layers: int = 2
    turning: int = 0
    is_tied: bool = True
    vocab_size: int = 70
    context: int = 400

    @property
    def name(self) -> str:
        """Architecture, heads and widths, in short."""
        heads = f"{self.heads}/{self.kv_heads} heads of {self.head_dim}"
        return f"{self.architecture}, {heads}, width {self.width}"

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield name and shape of every tensor; a matrix is (outputs, inputs)."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        yield "token_embd.weight", (self.vocab_size, self.width)
        for layer in range(self.layers):
            shapes: dict[str, tuple[int, ...]] = {
                "attn_norm.weight": (self.width,),
                "attn_q.weight": (queries, self.width),
                "attn_k.weight": (keys, self.width),
                "attn_v.weight": (keys, self.width),
                "attn_output.weight": (self.width, queries),
                "ffn_norm.weight": (self.width,),
                "ffn_gate.weight": (self.inner, self.width),
                "ffn_up.weight": (self.inner, self.width),
                "ffn_down.weight": (self.width, self.inner),
            }
            if self.architecture == "qwen2":
                sizes = {"q": queries, "k": keys, "v": keys}
                shapes |= {f"attn_{letter}.bias": (n,) for letter, n in sizes.items()}
            if self.architecture == "qwen3":
                shapes |= {f"attn_{x}_norm.weight": (self.head_dim,) for x in "qk"}
            yield from ((f"blk.{layer}.{name}", shape) for name, shape in shapes.items())
        yield "output_norm.weight", (self.width,)
        if not self.is_tied:
            yield "output.weight", (self.vocab_size, self.width)


SHAPES = (
    RandomShape("llama", 3, 1, 64, 64, 32, ("Q4_1", "Q8_0")),
    RandomShape("llama", 8, 2, 16, 96, 64, ("Q4_0", "Q5_1", "Q5_0")),
    RandomShape("qwen2", 2, 2, 20, 40, 48, ("F16", "BF16", "F32"), is_tied=False),
    RandomShape("qwen3", 4, 2, 18, 64, 32, ("Q4_0", "F16", "Q4_1", "BF16", "Q8_0")),
    RandomShape("llama", 3, 1, 15, 33, 50, ("BF16", "F32"), layers=1, turning=10),
    RandomShape("qwen2", 2, 1, 32, 64, 32, ("Q8_0", "Q4_1", "F32", "Q4_0"), layers=3),
    RandomShape("qwen3", 2, 1, 24, 256, 32, ("Q4_K", "Q6_K", "Q5_K", "Q5_0"), layers=1),
)
"""Groups of 1 to 4 heads, heads of 64 components and of odd numbers, all types with kernels."""


@contextmanager
def random_model(shape: RandomShape, seed: int = 0) -> Iterator[Model]:
    """Write a model of random weights to a file that is there until the context ends.

    Args:
        shape: What it looks like.
        seed: Of its weights.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.gguf"
        writer = gguf.GGUFWriter(path, shape.architecture)
        _add_facts(writer, shape)
        random = np.random.default_rng(seed)
        kinds = itertools.cycle(shape.types)
        for name, size in shape.tensors():
            if len(size) == 1:
                vector = random.standard_normal(size, dtype=np.float32) / np.float32(4)
                writer.add_tensor(name, vector if name.endswith("bias") else 1 + vector)
            else:
                kind = _fitting(next(kinds), size[1])
                values = _matrix(kind, size, random)
                writer.add_tensor(name, values, raw_dtype=gguf.GGMLQuantizationType[kind])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        yield replace(load_model(path), name=shape.name)


def _add_facts(writer: gguf.GGUFWriter, shape: RandomShape) -> None:
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(shape.turning or shape.head_dim)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", *(f"<{i}>" for i in range(1, shape.vocab_size))])
    writer.add_token_scores([0.0] * shape.vocab_size)
    writer.add_unk_token_id(0)


def _fitting(kind: str, inputs: int) -> str:
    """Return the type, or one without blocks if rows of so many inputs can't have it."""
    return "BF16" if kind in _BLOCKS and inputs % _BLOCKS[kind].inputs else kind


def _matrix(kind: str, size: tuple[int, ...], random: np.random.Generator) -> NDArray[np.generic]:
    """Return random weights as a file stores them: floats, or bytes [outputs, bytes of a row]."""
    outputs, inputs = size
    if kind not in _BLOCKS:
        values = random.standard_normal(size, dtype=np.float32) / np.float32(np.sqrt(inputs))
        return gguf.quantize(values, gguf.GGMLQuantizationType[kind])
    block = _BLOCKS[kind]
    count = outputs * inputs // block.inputs
    stored = random.integers(0, 256, (count, block.size), dtype=np.uint8)
    scales = random.uniform(0.5, 1.5, count) / (block.spread * np.sqrt(inputs))
    _put_halves(stored, block.scale, scales)
    if block.offset is not None:
        _put_halves(stored, block.offset, scales * block.minimum)
    return stored.reshape(outputs, -1)


def _put_halves(stored: NDArray[np.uint8], at: int, values: NDArray[np.float64]) -> None:
    stored[:, at : at + 2] = values.astype(np.float16)[:, None].view(np.uint8)
