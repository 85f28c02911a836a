"""Headers of safetensors files: what is sound is read, all else refused at once and in words."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from forerun.errors import ForerunError, ModelFileError, ModelNotFoundError
from forerun.models.model import load_model
from forerun.models.safetensors_file import MAX_HEADER, read_tensors
from models.tiny_folder import TinyFolder, write_safetensors
from models.tiny_gguf import Tiny


def file_of(path: Path, header: object, data: int = 8, length: int | None = None) -> Path:
    """A file with the given header, as text or as an object, and `data` zeros behind it."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = len(text) if length is None else length
    path.write_bytes(struct.pack("<Q", size) + text + bytes(data))
    return path


def entry(dtype: object = "F32", shape: object = (2,), offsets: object = (0, 8)) -> dict[str, Any]:
    """One tensor's description."""
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_places_and_types(tmp_path: Path) -> None:
    """Each tensor is where its offsets say, scalars and empty ones too; metadata says nothing."""
    values = np.arange(6, dtype=np.float32)
    tensors: dict[str, Any] = {"a": ("F32", (2, 3), values.tobytes()), "b": ("I8", (), b"x")}
    tensors["none"] = ("BF16", (0, 4), b"")
    write_safetensors(tmp_path / "x.safetensors", tensors)
    data = (tmp_path / "x.safetensors").read_bytes()
    identity, found = read_tensors(tmp_path / "x.safetensors")
    assert identity.size == len(data)
    assert list(found) == ["a", "b", "none"]
    for name, (dtype, shape, stored) in tensors.items():
        tensor = found[name]
        assert (tensor.dtype, tensor.shape, tensor.nbytes) == (dtype, shape, len(stored))
        assert data[tensor.start : tensor.start + tensor.nbytes] == stored


BROKEN: list[tuple[str, Callable[[Path], Path]]] = [
    ("has 0 bytes", lambda path: (path.write_bytes(b"") and path) or path),
    ("has 5 bytes", lambda path: path.write_bytes(b"12345") and path),
    ("claims a header of 1000", lambda path: file_of(path, {}, length=1000)),
    ("claims a header of 18446744073709551615", lambda path: file_of(path, {}, length=2**64 - 1)),
    ("header that is no JSON", lambda path: file_of(path, b"{x")),
    ("header that is no JSON", lambda path: file_of(path, b"\xff\xfe")),
    ("header that is no JSON", lambda path: file_of(path, b'{"a": ' + b"9" * 5000 + b"}")),
    ("nested too deeply", lambda path: file_of(path, b"[" * 100_000)),
    ("no JSON object", lambda path: file_of(path, [])),
    ("header name 'a' twice", lambda path: file_of(path, b'{"a": 1, "a": 2}')),
    ("describes the tensor 'a' by", lambda path: file_of(path, {"a": 1})),
    ("describes the tensor 'a' by", lambda path: file_of(path, {"a": {"dtype": "F32"}})),
    ("describes the tensor 'a' by", lambda path: file_of(path, {"a": {**entry(), "x": 1}})),
    ("the unknown type 'F16X'", lambda path: file_of(path, {"a": entry("F16X")})),
    ("the unknown type 7", lambda path: file_of(path, {"a": entry(7)})),
    ("shape -1", lambda path: file_of(path, {"a": entry(shape=-1)})),
    (r"shape \[-2\]", lambda path: file_of(path, {"a": entry(shape=(-2,))})),
    (r"shape \[True, 2\]", lambda path: file_of(path, {"a": entry(shape=(True, 2))})),
    (r"shape \[2.0\]", lambda path: file_of(path, {"a": entry(shape=(2.0,))})),
    ("shape", lambda path: file_of(path, {"a": entry(shape=(2**62, 2**62))})),
    ("shape", lambda path: file_of(path, {"a": entry(shape=[1] * 9 + [2])})),
    ("offsets", lambda path: file_of(path, {"a": entry(offsets=(0,))})),
    ("offsets", lambda path: file_of(path, {"a": entry(offsets=(0, 8, 9))})),
    ("offsets", lambda path: file_of(path, {"a": entry(offsets=(-8, 0))})),
    ("-8 bytes for F32", lambda path: file_of(path, {"a": entry(offsets=(8, 0))})),
    (r"8 bytes for F32 of shape \(3,\)", lambda path: file_of(path, {"a": entry(shape=(3,))})),
    ("8 bytes for F32", lambda path: file_of(path, {"a": entry(shape=(2**40, 2**40))})),
    ("its tensors end at byte", lambda path: file_of(path, {"a": entry()}, data=9)),
    ("its tensors end at byte", lambda path: file_of(path, {"a": entry()}, data=7)),
    ("its tensors end at byte", lambda path: file_of(path, {}, data=1)),
    ("it overlaps another", lambda path: file_of(path, {"a": entry(), "b": entry()})),
    ("it leaves a gap", lambda path: file_of(path, {"a": entry(offsets=(1, 9))}, data=9)),
]


@pytest.mark.parametrize(("reason", "make"), BROKEN)
def test_headers_that_cannot_be(tmp_path: Path, reason: str, make: Callable[[Path], Path]) -> None:
    """Each claim that the file does not bear out is named with its value."""
    with pytest.raises(ModelFileError, match=reason):
        read_tensors(make(tmp_path / "x.safetensors"))


def test_a_header_too_long_is_not_read(tmp_path: Path) -> None:
    """A file whose header would fill the memory is refused by its claim alone."""
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", 1 << 40))
    with path.open("r+b") as file:
        file.truncate((1 << 40) + 8)  # a hole: no byte of it is on the disk
    with pytest.raises(ModelFileError, match=f"{MAX_HEADER} is the limit"):
        read_tensors(path)


def test_what_is_no_file(tmp_path: Path) -> None:
    """Folders and missing files are told apart."""
    with pytest.raises(ModelFileError, match="is a folder"):
        read_tensors(tmp_path)
    with pytest.raises(ModelNotFoundError, match="There is no file"):
        read_tensors(tmp_path / "none")


def mutated(random: Random, data: bytes) -> bytes:
    """A copy with bytes changed, cut out, doubled or cut off, mostly in the header."""
    copy = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 5))):
        place = random.randrange(min(len(copy), random.choice((8, 200, 3000, len(copy)))))
        move = random.randrange(5)
        if move == 0:
            copy[place] = random.randrange(256)
        elif move == 1:
            copy[place : place + 1] = random.choice(
                (b"9", b"-", b"0", b'"', b"]", b"[", b"e9", b",")
            )
        elif move == 2:
            del copy[place : place + random.randrange(1, 40)]
        elif move == 3:
            copy[place:place] = copy[place : place + random.randrange(1, 40)]
        else:
            del copy[place + 1 :]
        if not copy:
            return b""
    return bytes(copy)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_mutations_end_in_words(tmp_path: Path, name: str) -> None:
    """A folder with one damaged file loads or is refused by an error of ours; nothing else."""
    random = Random(len(name))
    tiny = Tiny(vocab_size=270, width=8, layers=1, heads=1, kv_heads=1, head_dim=8, inner=8)
    path = TinyFolder(tiny).write(tmp_path / "m")
    whole = (path / name).read_bytes()
    refused = 0
    for _ in range(150):
        (path / name).write_bytes(mutated(random, whole))
        try:
            model = load_model(path)
            for tensor in model.file.tensor_names:
                model.file.tensor(tensor)
            model.tokenizer.decode(model.tokenizer.encode("the hen <|im_end|>", special=True))
        except ForerunError:
            refused += 1
    assert refused > 30
