"""A GGUF file as parts that can be changed one by one, and lies that it may tell about them.

Every length, count and type is written as it follows from the parts, unless `claimed` says
otherwise. (GGUF specification, version 3, little-endian.)
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

__all__ = ["ARRAY", "STRING", "Image", "TensorInfo", "Text", "Value", "scalar"]

STRING, ARRAY = 8, 9
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of each scalar type."""


@dataclass
class Text:
    """A string, and the length it claims."""

    data: bytes
    claimed: int | None = None


@dataclass
class Value:
    """A metadata value: a scalar's bytes, a text, or elements of one kind."""

    kind: int
    content: bytes | Text | list[Value]
    element_kind: int = 0
    claimed: int | None = None


@dataclass
class TensorInfo:
    """What a file says about one tensor; dimensions as the file orders them, the fastest first."""

    name: Text
    dimensions: list[int]
    kind: int
    offset: int
    claimed: int | None = None


@dataclass
class Image:
    """A whole file."""

    entries: list[tuple[Text, Value]]
    tensors: list[TensorInfo]
    data: bytes
    magic: bytes = b"GGUF"
    version: int = 3
    claimed_tensors: int | None = None
    claimed_entries: int | None = None
    alignment: int = 32
    borders: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, data: bytes) -> Image:
        """Take a sound file apart."""
        reader = _Reader(data)
        reader.take(8)
        num_tensors, num_entries = reader.u64(), reader.u64()
        entries = [(reader.text(), reader.value(reader.u32())) for _ in range(num_entries)]
        tensors = [reader.tensor() for _ in range(num_tensors)]
        return cls(entries, tensors, data[-(-reader.position // 32) * 32 :])

    def write(self) -> bytes:
        """Put it together again, and note where its parts begin."""
        writer = _Writer()
        writer.add(self.magic, _u32(self.version))
        writer.add(_u64(_claim(self.claimed_tensors, len(self.tensors))))
        writer.add(_u64(_claim(self.claimed_entries, len(self.entries))))
        for key, value in self.entries:
            writer.text(key)
            writer.add(_u32(value.kind))
            writer.value(value)
        for info in self.tensors:
            writer.text(info.name)
            writer.add(_u32(_claim(info.claimed, len(info.dimensions))))
            writer.add(*map(_u64, info.dimensions), _u32(info.kind), _u64(info.offset))
        padding = -writer.size % self.alignment
        writer.add(bytes(padding), self.data)
        self.borders = writer.borders
        return b"".join(writer.parts)

    def find(self, key: str) -> Value:
        """The value of a key."""
        return next(value for name, value in self.entries if name.data == key.encode())


def scalar(number: int) -> Value:
    """A whole number as metadata holds it: 64 bits, signed."""
    return Value(11, struct.pack("<q", number))


def _claim(claimed: int | None, actual: int) -> int:
    return actual if claimed is None else claimed


def _u32(number: int) -> bytes:
    return (number % 2**32).to_bytes(4, "little")


def _u64(number: int) -> bytes:
    return (number % 2**64).to_bytes(8, "little")


class _Writer:
    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.borders: list[int] = []
        self.size = 0

    def add(self, *parts: bytes) -> None:
        for part in parts:
            self.borders.append(self.size)
            self.parts.append(part)
            self.size += len(part)

    def text(self, text: Text) -> None:
        self.add(_u64(_claim(text.claimed, len(text.data))), text.data)

    def value(self, value: Value) -> None:
        if isinstance(value.content, bytes):
            self.add(value.content)
        elif isinstance(value.content, Text):
            self.text(value.content)
        else:
            self.add(_u32(value.element_kind), _u64(_claim(value.claimed, len(value.content))))
            for element in value.content:
                self.value(element)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def take(self, count: int) -> bytes:
        self.position += count
        return self._data[self.position - count : self.position]

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def text(self) -> Text:
        return Text(self.take(self.u64()))

    def value(self, kind: int) -> Value:
        if kind == STRING:
            return Value(kind, self.text())
        if kind != ARRAY:
            return Value(kind, self.take(SIZES[kind]))
        element_kind, count = self.u32(), self.u64()
        elements = [self.value(element_kind) for _ in range(count)]
        return Value(kind, elements, element_kind)

    def tensor(self) -> TensorInfo:
        name = self.text()
        dimensions = [self.u64() for _ in range(self.u32())]
        return TensorInfo(name, dimensions, self.u32(), self.u64())
