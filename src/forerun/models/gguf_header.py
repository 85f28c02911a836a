"""The header of a GGUF file, read with a bound on everything that the file itself claims.

Layout (GGUF specification, versions 2 and 3, little-endian): magic, version, number of tensors,
number of metadata entries, the entries, the tensor infos, padding, the tensors' data. Every length
and count is checked against the bytes that are left before anything of that size is read, so that
a damaged file is refused at once instead of filling memory.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

__all__ = ["Header", "HeaderError", "TensorInfo", "read_header"]

# Bounds on what a sound file may claim; the largest known vocabularies need a quarter of them.
MAX_ELEMENTS = 1 << 22
MAX_TENSORS = 1 << 16
MAX_DEPTH = 3
MAX_DIMENSIONS = 4
DEFAULT_ALIGNMENT = 32

_STRING, _ARRAY = 8, 9
_SCALARS = {
    code: struct.Struct("<" + letter)
    for code, letter in zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True)
}


class HeaderError(Exception):
    """The header is damaged; the message ends a sentence that starts with the file's name."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where one tensor's data lies.

    Attributes:
        shape: Row-major: a matrix is (outputs, inputs).
        type_code: GGML's number of the tensor's type.
        start: Byte offset from the beginning of the file.
        nbytes: Bytes of data; -1 if the type is not known.
    """

    shape: tuple[int, ...]
    type_code: int
    start: int
    nbytes: int

    @property
    def type_name(self) -> str:
        """GGML's name of the type, such as `Q4_1`."""
        try:
            return str(GGMLQuantizationType(self.type_code).name)
        except ValueError:
            return f"type {self.type_code}"


@dataclass(frozen=True, slots=True)
class Header:
    """All that stands before the data."""

    metadata: dict[str, object]
    tensors: dict[str, TensorInfo]


def read_header(stream: BinaryIO, size: int) -> Header:
    """Read a header and check it against the size of its file.

    Args:
        stream: The file, at its beginning.
        size: Bytes in the file.

    Raises:
        HeaderError: The file is not a GGUF file, or a length, count or offset cannot be right.
    """
    reader = _Reader(stream, size)
    tensor_count, entry_count = _read_preamble(reader)
    metadata: dict[str, object] = {}
    for _ in range(entry_count):
        key = reader.string("a metadata key")
        if key in metadata:
            raise HeaderError(f"names the metadata key {key!r} twice")
        metadata[key] = reader.value(reader.u32(key), key)
    raw = [_read_info(reader) for _ in range(tensor_count)]
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise HeaderError(f"has the alignment {alignment!r}, which is no power of two")
    start = -(-reader.position // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    for name, shape, type_code, offset in raw:
        if name in tensors:
            raise HeaderError(f"names the tensor {name!r} twice")
        if offset % alignment:
            raise HeaderError(f"places the tensor {name!r} at offset {offset}, off its alignment")
        nbytes = _data_bytes(name, shape, type_code)
        if start + offset + max(nbytes, 0) > size:
            end = start + offset + max(nbytes, 0)
            raise HeaderError(f"ends at byte {size}, but its tensor {name!r} at byte {end}")
        tensors[name] = TensorInfo(shape, type_code, start + offset, nbytes)
    return Header(metadata, tensors)


def _read_preamble(reader: _Reader) -> tuple[int, int]:
    magic = reader.take(4, "the magic number")
    if magic != b"GGUF":
        raise HeaderError(f"is not a GGUF file: it begins with {magic!r}")
    version = reader.u32("the version")
    if version not in (2, 3):
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        kind = "is big-endian" if swapped in (2, 3) else f"has version {version}"
        raise HeaderError(f"{kind}; only little-endian GGUF of version 2 or 3 can be read")
    tensor_count, entry_count = reader.u64("the tensor count"), reader.u64("the metadata count")
    # The shortest tensor info has 24 bytes, the shortest metadata entry 13.
    if tensor_count > min(MAX_TENSORS, reader.left // 24):
        raise HeaderError(f"claims {tensor_count} tensors")
    if entry_count > reader.left // 13:
        raise HeaderError(f"claims {entry_count} metadata entries")
    return tensor_count, entry_count


def _read_info(reader: _Reader) -> tuple[str, tuple[int, ...], int, int]:
    name = reader.string("a tensor's name")
    dimensions = reader.u32(name)
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise HeaderError(f"gives the tensor {name!r} {dimensions} dimensions")
    # GGUF names the fastest dimension first.
    shape = tuple(reversed([reader.u64(name) for _ in range(dimensions)]))
    return name, shape, reader.u32(name), reader.u64(name)


def _data_bytes(name: str, shape: tuple[int, ...], type_code: int) -> int:
    try:
        block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(type_code)]
    except (ValueError, KeyError):
        return -1
    if shape[-1] % block or 0 in shape:
        raise HeaderError(f"gives the tensor {name!r} the shape {shape}, no multiple of {block}")
    return math.prod(shape) // block * int(block_bytes)


class _Reader:
    """Reads forwards, never past the end of the file, and counts array elements."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self._read: Callable[[int], bytes] = stream.read
        self.left = size
        self.position = 0
        self._elements = MAX_ELEMENTS

    def take(self, count: int, what: str) -> bytes:
        """Return the next `count` bytes."""
        data = self._read(count) if count <= self.left else b""
        if len(data) != count:
            raise HeaderError(f"ends within {what}")
        self.left -= count
        self.position += count
        return data

    def u32(self, what: str) -> int:
        return int.from_bytes(self.take(4, what), "little")

    def u64(self, what: str) -> int:
        return int.from_bytes(self.take(8, what), "little")

    def string(self, what: str) -> str:
        data = self.take(int.from_bytes(self.take(8, what), "little"), what)
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise HeaderError(f"holds text that is not UTF-8 in {what}: {data[:40]!r}") from None

    def value(self, code: int, key: str, depth: int = 0) -> object:
        """Return one metadata value as plain Python; arrays become lists."""
        if code == _STRING:
            return self.string(key)
        if code == _ARRAY and depth < MAX_DEPTH:
            return self._array(key, depth)
        scalar = _SCALARS.get(code)
        if scalar is None:
            raise HeaderError(f"has the unknown or too deep value type {code} in {key}")
        return scalar.unpack(self.take(scalar.size, key))[0]

    def _array(self, key: str, depth: int) -> list[object]:
        code, count = self.u32(key), self.u64(key)
        self._elements -= count
        scalar = _SCALARS.get(code)
        width = scalar.size if scalar else 12 if code == _ARRAY else 8
        if self._elements < 0 or count > self.left // width:
            raise HeaderError(f"claims {count} elements in {key}")
        if scalar:
            data = self.take(count * width, key)
            return [value for (value,) in scalar.iter_unpack(data)]
        return [self.value(code, key, depth + 1) for _ in range(count)]
