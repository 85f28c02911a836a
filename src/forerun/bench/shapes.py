"""Models of a known shape with random weights, to see what a pass costs as models grow.

Nothing is fetched, quantised or written: a matrix is one short stretch of random Q4_0 blocks, over
and over. A pass reads as many bytes, and does as many operations on them, as with the real model
in that type; what it computes means nothing.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from forerun.errors import OptionError
from forerun.models.architecture import Architecture, Rope
from forerun.models.gguf_file import FileIdentity, GGUFFile
from forerun.models.gguf_header import TensorInfo
from forerun.models.model import Model
from forerun.models.tokenizer import Tokenizer

__all__ = ["SHAPES", "RandomFile", "architecture_of", "make_model"]

# Width, layers, heads, their components, inner width, and whether the head is the embedding.
SHAPES: dict[str, tuple[int, int, int, int, int, bool]] = {
    "1b": (2048, 16, 32, 64, 8192, True),
    "3b": (3072, 28, 24, 128, 8192, True),
    "8b": (4096, 32, 32, 128, 14336, False),
}
_KV_HEADS = 8
_VOCAB_SIZE = 128_256
_CONTEXT = 131_072
_ROPE_BASE = 500_000.0

_Q4_0 = gguf.GGMLQuantizationType.Q4_0
_GROUP, _BLOCK = gguf.GGML_QUANT_SIZES[_Q4_0]  # 32 weights in 18 bytes
_RANDOM_BLOCKS = 1 << 15
_SPREAD = 4.6  # the standard deviation of a random 4-bit number


class RandomFile(GGUFFile):
    """What a GGUF file with random Q4_0 matrices would hold; each tensor is made when it is read.

    Args:
        name: Stands for the path.
        architecture: Whose tensors it has.
    """

    __slots__ = ()

    def __init__(self, name: str, architecture: Architecture) -> None:
        shapes = dict(architecture.tensor_shapes())
        infos = {tensor: _info(shape) for tensor, shape in shapes.items()}
        identity = FileIdentity(name, sum(info.nbytes for info in infos.values()), 0)
        super().__init__(Path(name), MappingProxyType({}), identity, infos)

    def _read(self, name: str, info: TensorInfo) -> NDArray[np.generic]:
        if len(info.shape) == 1:
            return np.ones(info.shape, dtype=np.float32)
        # `resize` repeats: a megabyte of random bytes becomes any matrix at the speed of copying.
        return np.resize(_blocks(info.shape[1]), info.nbytes).reshape(info.shape[0], -1)


def architecture_of(shape: str) -> Architecture:
    """Return the numbers of a shape.

    Raises:
        OptionError: There is no such shape.
    """
    if shape not in SHAPES:
        raise OptionError(f"There is no shape {shape[:80]!r}.", f"Choose {', '.join(SHAPES)}.")
    width, layers, heads, head_dim, inner, is_tied = SHAPES[shape]
    return Architecture(
        name="llama",
        vocab_size=_VOCAB_SIZE,
        width=width,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=_KV_HEADS,
        head_dim=head_dim,
        inner_width=inner,
        context_length=_CONTEXT,
        norm_epsilon=1e-5,
        rope=Rope(True, head_dim, _ROPE_BASE, (1.0,) * (head_dim // 2)),
        has_qkv_bias=False,
        has_qk_norm=False,
        is_tied=is_tied,
    )


def make_model(shape: str) -> Model:
    """Return a model of that shape; its weights come to be one by one, as a target packs them.

    Raises:
        OptionError: There is no such shape.
    """
    architecture = architecture_of(shape)
    name = f"random {shape}"
    file = RandomFile(name, architecture)
    tokenizer = Tokenizer.from_metadata(_vocabulary(architecture.vocab_size))
    return Model(name, file.path, architecture, tokenizer, None, file)


def _info(shape: tuple[int, ...]) -> TensorInfo:
    if len(shape) == 1:
        return TensorInfo(shape, gguf.GGMLQuantizationType.F32, 0, 4 * shape[0])
    return TensorInfo(shape, _Q4_0, 0, shape[0] * shape[1] // _GROUP * _BLOCK)


def _blocks(inputs: int) -> NDArray[np.uint8]:
    """Random blocks whose one scale keeps a row's outputs as large as its inputs."""
    blocks = np.random.default_rng(inputs).integers(
        0, 256, size=(_RANDOM_BLOCKS, _BLOCK), dtype=np.uint8
    )
    scale = np.array([1 / (_SPREAD * inputs**0.5)], dtype=np.float16)
    blocks[:, :2] = scale.view(np.uint8)
    return blocks.reshape(-1)


def _vocabulary(size: int) -> dict[str, Any]:
    """A byte-level vocabulary of that size without merges: made-up words, one an id."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    letters = [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]
    tokens = [*letters, *(f"word{i}" for i in range(size - len(letters)))]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * size,
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.add_bos_token": False,
    }
