"""The weights of a Hugging Face folder, under GGUF's names, quantised as they are read if wanted.

Tensors are read one by one, and those that are quantised a few rows at a time, so that no more than
the result is held. The blocks are those of the `gguf` package's quantiser, bit for bit.
"""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize
from numpy.typing import NDArray

from forerun.errors import ModelFileError, ModelNotFoundError, OptionError, UnsupportedModelError
from forerun.models.facts import UNSUPPORTED
from forerun.models.plain_file import DAMAGED, FileIdentity, read_json, read_span
from forerun.models.safetensors_file import StoredTensor, read_tensors

__all__ = ["FolderWeights", "Weights"]

Weights = Literal["auto", "bf16", "int8", "int4"]

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_MAX_INDEX = 16 << 20
_CHUNK = 8 << 20  # bytes of a tensor that are quantised at a time

# Which numbers stand for infinity and NaN: those whose exponent is all ones.
_EXPONENTS = {
    "F16": (np.uint16, 0x7C00),
    "BF16": (np.uint16, 0x7F80),
    "F32": (np.uint32, 0x7F800000),
}

_ENDS = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_PARTS = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    **{f"self_attn.{letter}_proj": f"attn_{letter}" for letter in "qkv"},
    **{f"self_attn.{letter}_norm": f"attn_{letter}_norm" for letter in "qk"},
    "self_attn.o_proj": "attn_output",
    **{f"mlp.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")},
}
_NAMES = re.compile(r"model\.layers\.(0|[1-9][0-9]{0,5})\.([a-z_.]+)\.(weight|bias)")
_OWN_PARTS = {ours: theirs for theirs, ours in _PARTS.items()}
_OWN_ENDS = {ours: theirs for theirs, ours in _ENDS.items()}
_FOREIGN = " (not GGUF's)"  # tells a name that only looks like GGUF's from one that is
# Old conversions store this constant of the rotary positions.
_DERIVED = re.compile(r"model\.layers\.[0-9]+\.self_attn\.rotary_emb\.inv_freq")


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor as it is stored, and the type it is read as."""

    stored: StoredTensor
    kind: str


@dataclass(frozen=True, slots=True, eq=False)
class FolderWeights:
    """The safetensors files of a folder, headers read and checked (a `WeightFile`).

    Attributes:
        path: The folder, absolute.
        identity: The files as they were when they were opened, and how they are quantised.
        files: The files as they were when they were opened, in the order of their names.
    """

    path: Path
    identity: Hashable
    files: tuple[FileIdentity, ...]
    _tensors: Mapping[str, _Tensor]

    @classmethod
    def open(cls, path: Path, weights: Weights = "auto") -> FolderWeights:
        """Read the headers of a folder's files.

        Args:
            path: The folder, absolute.
            weights: `auto` takes every tensor as it is stored. The others turn matrices into
                bfloat16, Q8_0 blocks or Q4_0 blocks (with the embedding and the head in Q8_0); a
                matrix whose rows are no whole blocks of 32, and all vectors, stay as they are.

        Raises:
            ModelFileError: There are no such files, or one of them is damaged.
            UnsupportedModelError: The weights are of another format or type.
            OptionError: `weights` is bf16 and a matrix is float16.
        """
        files, stored = _read_all(path)
        tensors: dict[str, _Tensor] = {}
        for name, tensor in stored.items():
            if _DERIVED.fullmatch(name):
                continue
            ours = _our_name(name)
            tensors[ours] = _Tensor(tensor, _kind(path, ours, tensor, weights))
        in_order = tuple(sorted(files))
        return cls(path, (in_order, weights), in_order, MappingProxyType(tensors))

    @property
    def file_bytes(self) -> int:
        """Size of all files."""
        return sum(file.size for file in self.files)

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """Names of all tensors."""
        return tuple(self._tensors)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def own_name(self, name: str) -> str:
        """Return what the folder calls a tensor."""
        if name.endswith(_FOREIGN):
            return name.removesuffix(_FOREIGN)
        if name in _OWN_ENDS:
            return _OWN_ENDS[name]
        parts = name.split(".")
        if len(parts) == 4 and parts[0] == "blk" and parts[2] in _OWN_PARTS:
            return f"model.layers.{parts[1]}.{_OWN_PARTS[parts[2]]}.{parts[3]}"
        return name

    def tensor_shape(self, name: str) -> tuple[int, ...]:
        """Return a tensor's shape, row-major: a matrix is (outputs, inputs)."""
        return self._tensor(name).stored.shape

    def tensor_type(self, name: str) -> str:
        """Return the type it is read as, as GGML names it: BF16, Q4_0, ..."""
        return self._tensor(name).kind

    def nbytes(self, name: str) -> int:
        """Return how many bytes `raw` returns."""
        tensor = self._tensor(name)
        block, size = GGML_QUANT_SIZES[GGMLQuantizationType[tensor.kind]]
        return int(np.prod(tensor.stored.shape, dtype=np.int64)) // int(block) * int(size)

    def raw(self, name: str) -> NDArray[np.uint8]:
        """Return a tensor's bytes in its type: uint8, one axis, its own memory.

        Raises:
            ModelFileError: There is no such tensor, the file changed, or a value is not finite.
            ModelNotFoundError: The file is gone.
        """
        tensor = self._tensor(name)
        if tensor.kind == tensor.stored.dtype:
            stored = tensor.stored
            data = read_span(stored.file, stored.start, stored.nbytes, self._called(name))
            self._check_finite(name, stored.dtype, data)
            return data
        result = np.empty(self.nbytes(name), np.uint8)
        kind, end = GGMLQuantizationType[tensor.kind], 0
        with np.errstate(all="ignore"):  # a scale that overflows is seen by whoever packs it
            for rows in self._chunks(name, tensor.stored):
                part = quantize(rows, kind).reshape(-1).view(np.uint8)
                result[end : end + part.size] = part
                end += part.size
        return result

    def tensor(self, name: str) -> NDArray[np.float32]:
        """Return a tensor as numbers: float32, C-contiguous, its own memory.

        Raises:
            ModelFileError: There is no such tensor, the file changed, or a value is not finite.
            ModelNotFoundError: The file is gone.
        """
        shape, kind = self.tensor_shape(name), self.tensor_type(name)
        raw = self.raw(name).reshape(*shape[:-1], -1)
        values = _widened(raw, kind).reshape(shape)
        if kind not in _EXPONENTS and not np.isfinite(values).all():
            raise ModelFileError(f"{self._called(name)} overflows as {kind}.", DAMAGED)
        return values

    def _chunks(self, name: str, stored: StoredTensor) -> Iterator[NDArray[np.float32]]:
        """Yield a matrix as float32, some rows at a time."""
        row_bytes = stored.nbytes // stored.shape[0]
        step = max(_CHUNK // row_bytes, 1)
        for first in range(0, stored.shape[0], step):
            count = min(step, stored.shape[0] - first)
            start = stored.start + first * row_bytes
            data = read_span(stored.file, start, count * row_bytes, self._called(name))
            self._check_finite(name, stored.dtype, data)
            yield _widened(data.reshape(count, -1), stored.dtype)

    def _check_finite(self, name: str, dtype: str, data: NDArray[np.uint8]) -> None:
        number, exponent = _EXPONENTS[dtype]
        values = data.view(number)
        for start in range(0, len(values), _CHUNK):
            if ((values[start : start + _CHUNK] & exponent) == exponent).any():
                what = f"{self._called(name)} holds values that are not finite."
                raise ModelFileError(what, DAMAGED)

    def _called(self, name: str) -> str:
        return f"{self.path}: the tensor {self.own_name(name)!r}"

    def _tensor(self, name: str) -> _Tensor:
        try:
            return self._tensors[name]
        except KeyError:
            what = f"{self.path} has no tensor {self.own_name(name)!r}."
            raise ModelFileError(what, DAMAGED) from None


def _widened(data: NDArray[np.uint8], kind: str) -> NDArray[np.float32]:
    """Return stored rows, their bytes in the last axis, as float32."""
    if kind == "BF16":  # the upper half of a float32; the package goes a longer way
        wide = data.view(np.uint16).astype(np.uint32)
        wide <<= 16
        return wide.view(np.float32)
    values = dequantize(data, GGMLQuantizationType[kind])
    return np.array(values, dtype=np.float32, order="C", copy=None)


def _our_name(name: str) -> str:
    """GGUF's name of a tensor; one that no network here has keeps its own."""
    if name in _ENDS:
        return _ENDS[name]
    found = _NAMES.fullmatch(name)
    if found and found[2] in _PARTS:
        return f"blk.{found[1]}.{_PARTS[found[2]]}.{found[3]}"
    is_ours = name in _OWN_ENDS or name.startswith("blk.")
    return name + _FOREIGN if is_ours else name


def _kind(path: Path, name: str, stored: StoredTensor, weights: Weights) -> str:
    """Return the GGML type that a tensor is read as."""
    if stored.dtype not in _EXPONENTS:
        what = f"{path}: the tensor {name!r:.80} has type {stored.dtype}."
        raise UnsupportedModelError(what, "Weights in F32, F16 and BF16 can be loaded.")
    if weights == "auto" or len(stored.shape) != 2 or 0 in stored.shape:
        return stored.dtype
    if weights == "bf16":
        if stored.dtype == "F16":
            raise OptionError(
                f"weights = bf16: {path} holds float16, which is as small and more precise.",
                "Leave weights out.",
            )
        return "BF16"
    if stored.shape[1] % 32:
        return stored.dtype
    is_end = name in ("token_embd.weight", "output.weight")
    return "Q8_0" if weights == "int8" or is_end else "Q4_0"


def _read_all(path: Path) -> tuple[list[FileIdentity], dict[str, StoredTensor]]:
    """Return all files of a folder and all tensors in them."""
    if os.path.exists(path / _SINGLE):
        file, tensors = read_tensors(path / _SINGLE)
        return [file], tensors
    if not os.path.exists(path / _INDEX):
        _refuse(path)
    placed = _read_index(path / _INDEX)
    files: list[FileIdentity] = []
    found: dict[str, StoredTensor] = {}
    for shard in sorted(set(placed.values())):
        try:
            file, tensors = read_tensors(path / shard)
        except ModelNotFoundError as error:
            what = f"{path / _INDEX} names {shard!r}, which is not there."
            raise ModelFileError(what, DAMAGED) from error
        stray = next((name for name in tensors if placed.get(name) != shard), None)
        if stray is not None:
            what = f"{path / shard} holds the tensor {stray!r:.80}, which the index does not place"
            raise ModelFileError(f"{what} there.", DAMAGED)
        files.append(file)
        found |= tensors
    missing = next((name for name in placed if name not in found), None)
    if missing is not None:
        what = f"{path / placed[missing]} lacks the tensor {missing!r:.80}, which the index names."
        raise ModelFileError(what, DAMAGED)
    return files, found


def _read_index(path: Path) -> dict[str, str]:
    """Return which file of the folder each tensor is in."""
    placed = read_json(path, _MAX_INDEX).get("weight_map")
    if not isinstance(placed, dict) or not placed:
        raise ModelFileError(f"{path} has no weight_map.", DAMAGED)
    for shard in placed.values():
        # A plain name in the folder itself, whatever the system: an index points nowhere else.
        if not isinstance(shard, str) or not re.fullmatch(r"[\w.-]{1,200}\.safetensors", shard):
            what = f"{path} names the file {shard!r:.80}, which is no safetensors file beside it."
            raise ModelFileError(what, DAMAGED)
    return placed


def _refuse(path: Path) -> None:
    """Say what the folder has instead of what it should have."""
    try:
        names = sorted(os.listdir(path))
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}.", DAMAGED) from error
    pickled = [name for name in names if name.endswith((".bin", ".pt", ".pth", ".ckpt"))]
    if pickled:
        raise UnsupportedModelError(
            f"{path} has only pickled weights ({pickled[0]}), which can run code as they are read.",
            "Convert them: save_pretrained of transformers writes safetensors.",
        )
    other = [name for name in names if name.endswith((".safetensors", ".gguf"))]
    if other:
        what = f"{path} has neither {_SINGLE} nor {_INDEX}, but {other[0]}."
        raise UnsupportedModelError(what, "Name the file itself if it is GGUF. " + UNSUPPORTED)
    raise ModelFileError(f"{path} has no weights: no {_SINGLE}, no {_INDEX}.", DAMAGED)
