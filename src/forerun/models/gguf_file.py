"""A GGUF file: its metadata as plain Python, its tensors as float32 arrays.

The file is opened anew for every read and never mapped into memory (`plain_file` says why). Tensor
data is dequantised by the `gguf` package.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from types import MappingProxyType

import numpy as np
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize
from numpy.typing import NDArray

from forerun.errors import ModelFileError, ModelNotFoundError, UnsupportedModelError
from forerun.models.gguf_header import Header, HeaderError, TensorInfo, read_header
from forerun.models.plain_file import DAMAGED, FileIdentity, opened, read_span

__all__ = ["FileIdentity", "GGUFFile"]


@dataclass(frozen=True, slots=True, eq=False)
class GGUFFile:
    """A GGUF file whose header has been read and checked.

    Attributes:
        path: Where the file is, absolute.
        metadata: Its key-value pairs as plain Python: int, float, bool, str and lists of them.
        identity: The file as it was when it was opened.
    """

    path: Path
    metadata: Mapping[str, object]
    identity: FileIdentity
    _infos: Mapping[str, TensorInfo]

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> GGUFFile:
        """Read and check a file's header.

        Raises:
            ModelNotFoundError: There is no such file.
            ModelFileError: It is a folder, not readable, not a GGUF file, truncated or damaged.
        """
        if "\0" in os.fspath(path):
            raise ModelNotFoundError(f"There is no file {os.fspath(path)!r}.", "Check the path.")
        absolute = Path(os.path.abspath(path))
        with opened(absolute) as (stream, identity):
            header = _checked_header(stream, identity)
        return cls(absolute, MappingProxyType(header.metadata), identity, header.tensors)

    @property
    def files(self) -> tuple[FileIdentity, ...]:
        """The file as it was when it was opened."""
        return (self.identity,)

    @property
    def file_bytes(self) -> int:
        """Size of the file."""
        return self.identity.size

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """Names of all tensors, in the order of the file."""
        return tuple(self._infos)

    def __contains__(self, name: object) -> bool:
        return name in self._infos

    def own_name(self, name: str) -> str:
        """Return what the format itself calls a tensor: the same."""
        return name

    def tensor_shape(self, name: str) -> tuple[int, ...]:
        """Return a tensor's shape, row-major: a matrix is (outputs, inputs)."""
        return self._info(name).shape

    def tensor_type(self, name: str) -> str:
        """Return a tensor's type as GGML names it, such as `Q4_1`."""
        return self._info(name).type_name

    def nbytes(self, name: str) -> int:
        """Return the bytes a tensor takes in the file; -1 if its type is not known."""
        return self._info(name).nbytes

    def tensor(self, name: str) -> NDArray[np.float32]:
        """Return a tensor dequantised: float32, C-contiguous, its own memory.

        Raises:
            ModelFileError: There is no such tensor, the file changed, or a value is not finite.
            UnsupportedModelError: The tensor's type cannot be dequantised.
        """
        info = self._info(name)
        raw = self._read(name, info)
        try:
            # A damaged scale may overflow here; it is caught below, by name.
            with np.errstate(all="ignore"):
                values = dequantize(raw, GGMLQuantizationType(info.type_code))
        except (NotImplementedError, ValueError):
            raise UnsupportedModelError(
                f"{self.path}: the tensor {name!r} has type {info.type_name}, which cannot be "
                "dequantised.",
                "Convert the model to a common type such as Q8_0 or Q4_1.",
            ) from None
        result = np.array(values, dtype=np.float32, order="C", copy=None).reshape(info.shape)
        with np.errstate(all="ignore"):
            total = result.sum()
        # A sum that overflows is no proof; look at every value only then.
        if not np.isfinite(total) and not np.isfinite(result).all():
            what = f"{self.path}: the tensor {name!r} holds values that are not finite."
            raise ModelFileError(what, DAMAGED)
        return result

    def raw(self, name: str) -> NDArray[np.uint8]:
        """Return a tensor's bytes as the file stores them: uint8, one axis, its own memory.

        Raises:
            ModelFileError: There is no such tensor, or the file changed.
            UnsupportedModelError: The tensor's type, and so its size, is not known.
        """
        return self._read(name, self._info(name)).reshape(-1).view(np.uint8)

    def _info(self, name: str) -> TensorInfo:
        try:
            return self._infos[name]
        except KeyError:
            raise ModelFileError(f"{self.path} has no tensor {name!r}.", DAMAGED) from None

    def _read(self, name: str, info: TensorInfo) -> NDArray[np.generic]:
        if info.nbytes < 0:
            raise UnsupportedModelError(
                f"{self.path}: the tensor {name!r} has the unknown {info.type_name}.",
                "Convert the model to a common type such as Q8_0 or Q4_1.",
            )
        data = read_span(self.identity, info.start, info.nbytes, f"the tensor {name!r}")
        # Plain floats arrive typed, all else as bytes, each with its rows in the last axis.
        kinds = {"F32": np.float32, "F16": np.float16}
        kind = kinds.get(info.type_name, np.uint8)
        return data.view(kind).reshape(*info.shape[:-1], -1)


def _checked_header(stream: BufferedReader, identity: FileIdentity) -> Header:
    if identity.size == 0:
        raise ModelFileError(f"{identity.path} is empty.", DAMAGED)
    try:
        return read_header(stream, identity.size)
    except HeaderError as error:
        raise ModelFileError(f"{identity.path} {error}.", DAMAGED) from None
