"""The header of a safetensors file, read with a bound on everything that the file itself claims.

Layout: the header's length (8 bytes, little-endian), the header (a JSON object), the data. The
header names each tensor with its type, shape and place. Only this header is read here; data is
read tensor by tensor (`plain_file`) and never mapped, as the `safetensors` package would have it.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from forerun.errors import ModelFileError
from forerun.models.plain_file import DAMAGED, FileIdentity, opened

__all__ = ["MAX_HEADER", "StoredTensor", "read_tensors"]

MAX_HEADER = 4 << 20
"""Most bytes of a header; 100 a tensor are usual."""
MAX_TENSORS = 1 << 16
MAX_DIMENSIONS = 8

_ITEM_BITS = {
    "BOOL": 8,
    "F4": 4,
    **dict.fromkeys(("U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where one tensor's data lies.

    Attributes:
        file: The file, as it was when its header was read.
        dtype: The type as safetensors names it, such as `BF16`.
        shape: Row-major.
        start: Byte offset from the beginning of the file.
        nbytes: Bytes of data.
    """

    file: FileIdentity
    dtype: str
    shape: tuple[int, ...]
    start: int
    nbytes: int


class _HeaderError(Exception):
    """The header is damaged; the message ends a sentence that starts with the file's name."""


def read_tensors(path: Path) -> tuple[FileIdentity, dict[str, StoredTensor]]:
    """Read and check a file's header.

    Returns:
        The file as it is now, and its tensors by name.

    Raises:
        ModelNotFoundError: There is no such file.
        ModelFileError: It is no safetensors file, truncated or damaged, or cannot be read.
    """
    with opened(path) as (stream, identity):
        try:
            entries, start = _read_header(stream, identity.size)
            tensors = {
                name: _tensor(name, entry, identity, start) for name, entry in entries.items()
            }
            _check_places(tensors, start, identity.size)
        except _HeaderError as error:
            raise ModelFileError(f"{path} {error}.", DAMAGED) from None
    return identity, tensors


def _read_header(stream: BinaryIO, size: int) -> tuple[dict[str, object], int]:
    """Return the entries of the tensors, and where the data begins."""
    length = int.from_bytes(stream.read(8), "little")
    if size < 10 or length > size - 8:
        raise _HeaderError(f"has {size} bytes and claims a header of {length}")
    if length > MAX_HEADER:
        raise _HeaderError(f"has a header of {length} bytes; {MAX_HEADER} is the limit")
    header = _parsed(stream.read(length))
    header.pop("__metadata__", None)  # says nothing about the network
    if len(header) > MAX_TENSORS:
        raise _HeaderError(f"names {len(header)} tensors; {MAX_TENSORS} is the limit")
    return header, 8 + length


def _parsed(text: bytes) -> dict[str, object]:
    try:
        header = json.loads(text.decode(), object_pairs_hook=_without_doubles)
    except RecursionError:
        raise _HeaderError("has a header that is nested too deeply") from None
    except ValueError as error:
        raise _HeaderError(f"has a header that is no JSON: {str(error)[:200]}") from None
    if not isinstance(header, dict):
        raise _HeaderError("has a header that is no JSON object")
    return header


def _without_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise _HeaderError(f"has the header name {name!r:.80} twice")
        found[name] = value
    return found


def _tensor(name: str, entry: object, file: FileIdentity, start: int) -> StoredTensor:
    shown = repr(name)[:80]
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise _HeaderError(f"describes the tensor {shown} by {str(entry)[:80]!r}")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not _are_counts(shape, MAX_DIMENSIONS) or not _are_counts(offsets, 2) or len(offsets) != 2:
        what = f"shape {str(shape)[:80]} and offsets {str(offsets)[:80]}"
        raise _HeaderError(f"gives the tensor {shown} {what}")
    if not isinstance(dtype, str) or dtype not in _ITEM_BITS:
        raise _HeaderError(f"gives the tensor {shown} the unknown type {dtype!r:.80}")
    bits = math.prod(shape) * _ITEM_BITS[dtype]
    if bits != 8 * (offsets[1] - offsets[0]):
        what = f"{offsets[1] - offsets[0]} bytes for {dtype} of shape {tuple(shape)}"
        raise _HeaderError(f"gives the tensor {shown} {what}")
    return StoredTensor(file, dtype, tuple(shape), start + offsets[0], bits // 8)


def _are_counts(values: object, most: int) -> bool:
    """Whether it is a short list of whole numbers that no file exceeds."""
    return (
        isinstance(values, list)
        and len(values) <= most
        and all(type(value) is int and 0 <= value < 1 << 48 for value in values)
    )


def _check_places(tensors: dict[str, StoredTensor], start: int, size: int) -> None:
    """The tensors' data fill the file: no gap, no overlap, nothing behind, as the format asks."""
    end = start
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].nbytes)):
        if tensor.start != end:
            kind = "overlaps another" if tensor.start < end else "leaves a gap before it"
            raise _HeaderError(f"has the tensor {name!r:.80} at byte {tensor.start}: it {kind}")
        end += tensor.nbytes
    if end != size:
        raise _HeaderError(f"has {size} bytes, but its tensors end at byte {end}")
