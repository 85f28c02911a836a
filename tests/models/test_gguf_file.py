"""GGUF files: the same contents as the `gguf` package reads, and no damage gets through."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest

from forerun.errors import (
    ForerunError,
    ModelFileError,
    ModelNotFoundError,
    UnsupportedModelError,
)
from forerun.models.gguf_file import GGUFFile
from models.tiny_gguf import Tiny

QUANTISABLE = ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0"]
DEQUANTISABLE = ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS"]
DEQUANTISABLE += ["IQ3_S", "IQ1_S", "IQ1_M", "IQ4_NL", "IQ4_XS", "MXFP4"]


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return Tiny().write(tmp_path / "tiny.gguf")


def header(version: int = 3, tensors: int = 0, entries: int = 0, magic: bytes = b"GGUF") -> bytes:
    return magic + struct.pack("<IQQ", version, tensors, entries)


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def info(
    name: bytes = b"t", shape: tuple[int, ...] = (4,), kind: int = 0, offset: int = 0
) -> bytes:
    dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text(name) + dimensions + struct.pack("<IQ", kind, offset)


def opened(tmp_path: Path, data: bytes) -> GGUFFile:
    (tmp_path / "made.gguf").write_bytes(data)
    return GGUFFile.open(tmp_path / "made.gguf")


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_reads_what_the_package_reads(tmp_path: Path, architecture: str) -> None:
    """Metadata, names, shapes, types, sizes and values are those of the package's own reader."""
    path = Tiny(architecture, width=64, quantisation="Q4_1").write(tmp_path / "tiny.gguf")
    file, judge = GGUFFile.open(path), gguf.GGUFReader(path)
    own = {key: field.contents() for key, field in judge.fields.items() if key[:5] != "GGUF."}
    assert dict(file.metadata) == own
    assert file.tensor_names == tuple(tensor.name for tensor in judge.tensors)
    assert file.file_bytes == path.stat().st_size
    for tensor in judge.tensors:
        assert file.tensor_shape(tensor.name) == tuple(reversed(tensor.shape.tolist()))
        assert file.tensor_type(tensor.name) == tensor.tensor_type.name
        assert file.nbytes(tensor.name) == tensor.n_bytes
        expected = gguf.dequantize(tensor.data, tensor.tensor_type)
        np.testing.assert_array_equal(file.tensor(tensor.name), expected)


@pytest.mark.parametrize("kind", QUANTISABLE)
def test_quantised_types_come_back(tmp_path: Path, kind: str) -> None:
    """Each type that can be written is read as what the package dequantises, near the original."""
    tiny = Tiny(width=256, inner=256, quantisation=kind)
    file = GGUFFile.open(tiny.write(tmp_path / "tiny.gguf"))
    original = tiny.all_tensors()["blk.0.ffn_up.weight"]
    values = file.tensor("blk.0.ffn_up.weight")
    code = gguf.GGMLQuantizationType[kind]
    assert file.tensor_type("blk.0.ffn_up.weight") == kind
    np.testing.assert_array_equal(values, gguf.dequantize(gguf.quantize(original, code), code))
    correlation = np.corrcoef(values.ravel(), original.ravel())[0, 1]
    assert correlation > (0.6 if kind.startswith("TQ") else 0.99)


@pytest.mark.parametrize("kind", DEQUANTISABLE)
def test_other_quantised_types_are_read(tmp_path: Path, kind: str) -> None:
    """Each type that only others can write is read as the package dequantises its bytes."""
    code = gguf.GGMLQuantizationType[kind]
    block, block_bytes = gguf.GGML_QUANT_SIZES[code]
    data = np.zeros((3, 2 * block_bytes), dtype=np.uint8)
    data[:, ::7] = 1
    writer = gguf.GGUFWriter(tmp_path / "made.gguf", "llama")
    writer.add_tensor("t", data, raw_dtype=code)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    values = GGUFFile.open(tmp_path / "made.gguf").tensor("t")
    assert values.shape == (3, 2 * block)
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, gguf.dequantize(data, code))


def test_nested_arrays_stay_nested(tmp_path: Path) -> None:
    """An array of arrays becomes a list of lists."""
    inner = struct.pack("<IQ2i", 5, 2, 1, -2) + struct.pack("<IQi", 5, 1, 3)
    data = header(entries=1) + text(b"key") + struct.pack("<IIQ", 9, 9, 2) + inner
    assert opened(tmp_path, data).metadata == {"key": [[1, -2], [3]]}


def test_missing_file(tmp_path: Path) -> None:
    """A missing file is a `ModelNotFoundError` with its path, whatever the path looks like."""
    for name in ("none.gguf", "none.gguf/deeper", "nul\0l"):
        with pytest.raises(ModelNotFoundError, match=r"none|nul"):
            GGUFFile.open(tmp_path / "x" / name if "\0" not in name else name)


def test_what_is_no_file(tmp_path: Path) -> None:
    """A folder, an empty file and a pipe nobody writes to are refused at once."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    for name, reason in (("", "a folder"), ("pipe", "no regular file"), ("empty", "is empty")):
        with pytest.raises(ModelFileError, match=reason):
            GGUFFile.open(tmp_path / name)


def test_unreadable_file(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that may not be read is refused with the system's reason."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ModelFileError, match=r"tiny\.gguf cannot be read: Permission denied"):
        GGUFFile.open(tiny)


HUGE = 1 << 62
BROKEN = {
    "begins with": header(magic=b"GGML"),
    "ends within the magic": b"GG",
    "ends within the version": b"GGUF\x03",
    "has version 1": header(1),
    "is big-endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "has version 4": header(4),
    f"claims {HUGE} tensors": header(tensors=HUGE),
    "claims 3 tensors": header(tensors=3) + info(),
    f"claims {HUGE} metadata": header(entries=HUGE),
    "ends within a metadata key": header(entries=1) + struct.pack("<Q", HUGE) + bytes(20),
    "not UTF-8 in a metadata key": header(entries=1) + text(b"\xff") + bytes(20),
    "value type 77": header(entries=1) + text(b"key") + struct.pack("<IQ", 77, 0),
    "'key' twice": header(entries=2) + 2 * (text(b"key") + struct.pack("<II", 4, 7)),
    f"claims {HUGE} elements in key": header(entries=1)
    + text(b"key")
    + struct.pack("<IIQ", 9, 8, HUGE),
    "claims 9 elements in key": header(entries=1)
    + text(b"key")
    + struct.pack("<IIQ", 9, 10, 9)
    + bytes(71),
    "too deep value type 9": header(entries=1)
    + text(b"key")
    + struct.pack("<I", 9)
    + 6 * struct.pack("<IQ", 9, 1)
    + bytes(12),
    "alignment 3": header(entries=1) + text(b"general.alignment") + struct.pack("<II", 4, 3),
    "alignment 0": header(entries=1) + text(b"general.alignment") + struct.pack("<II", 4, 0),
    "alignment 'x'": header(entries=1) + text(b"general.alignment") + b"\x08\0\0\0" + text(b"x"),
    "0 dimensions": header(tensors=1) + info(shape=()) + bytes(64),
    "5 dimensions": header(tensors=1) + info(shape=(1,) * 5) + bytes(64),
    "no multiple of 32": header(tensors=1) + info(shape=(31, 2), kind=2) + bytes(64),
    "no multiple of 1": header(tensors=1) + info(shape=(0, 2)) + bytes(64),
    "'t' twice": header(tensors=2) + 2 * info() + bytes(96),
    "off its alignment": header(tensors=1) + info(offset=4) + bytes(64),
    "but its tensor 't' at byte": header(tensors=1) + info(shape=(HUGE, HUGE)) + bytes(64),
    "its tensor 't' at byte 80": header(tensors=1) + info() + bytes(20),
}


@pytest.mark.parametrize("reason", BROKEN)
def test_broken_headers(tmp_path: Path, reason: str) -> None:
    """Every claim that the file cannot keep is refused, with path and reason."""
    with pytest.raises(ModelFileError, match=rf"made\.gguf.*{reason}"):
        opened(tmp_path, BROKEN[reason])


def test_truncated_anywhere(tiny: Path) -> None:
    """A file cut at any of its first bytes, and at many later ones, is refused."""
    data = tiny.read_bytes()
    last = max(i.start + i.nbytes for i in GGUFFile.open(tiny)._infos.values())
    for size in [*range(1, 300), *range(300, last, 997), last - 1]:
        with pytest.raises(ModelFileError):
            opened(tiny.parent, data[:size])


def exercise(path: Path) -> None:
    """Open a file and read all of it."""
    file = GGUFFile.open(path)
    for name in file.tensor_names:
        file.tensor(name)


@pytest.mark.parametrize("seed", range(20))
def test_fuzzed_files(tiny: Path, seed: int) -> None:
    """A damaged file is refused by a Forerun error or is sound: nothing else, and no hang."""
    numbers = random.Random(seed)
    original = tiny.read_bytes()
    interesting = [0, 1, 255, 1 << 16, (1 << 31) - 1, 1 << 32, HUGE, (1 << 64) - 1]
    complaints = []
    for _ in range(25):
        data = bytearray(original)
        # The header is where lengths and counts stand; the infos stand at its end.
        for _ in range(numbers.choice((1, 1, 2, 8))):
            place = numbers.randrange(4, numbers.choice((64, 1000, 20000, len(data) - 8)))
            if numbers.random() < 0.5:
                data[place] = numbers.randrange(256)
            else:
                data[place : place + 8] = struct.pack("<Q", numbers.choice(interesting))
        (tiny.parent / "fuzzed.gguf").write_bytes(data)
        try:
            exercise(tiny.parent / "fuzzed.gguf")
        except ForerunError as error:
            complaints.append(str(error))
    assert complaints
    assert all("fuzzed.gguf" in complaint for complaint in complaints)


def test_file_cut_or_replaced_after_opening(tiny: Path) -> None:
    """A file that changes while it is in use is an error, not a crash."""
    file = GGUFFile.open(tiny)
    os.truncate(tiny, 5000)
    with pytest.raises(ModelFileError, match="changed after it was opened"):
        file.tensor("output_norm.weight")
    tiny.unlink()
    with pytest.raises(ModelNotFoundError):
        file.tensor("output_norm.weight")


def test_no_handle_stays_open(tiny: Path) -> None:
    """A file in use holds no handle of the system's."""
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    exercise(tiny)
    file = GGUFFile.open(tiny)
    after = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    assert file.tensor_names
    assert before == after


@pytest.mark.parametrize("kind", [4, 24, 15, 1000])
def test_types_nobody_can_read(tmp_path: Path, kind: int) -> None:
    """A tensor of a removed, whole-number or unknown type is unsupported, by name."""
    file = opened(tmp_path, header(tensors=1) + info(shape=(256,), kind=kind) + bytes(4096))
    with pytest.raises(UnsupportedModelError, match=r"made\.gguf: the tensor 't' has"):
        file.tensor("t")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite(tmp_path: Path, value: float) -> None:
    """One weight that is not finite is named when it is read."""
    norm = np.ones(32, dtype=np.float32)
    norm[7] = value
    path = Tiny(tensors={"output_norm.weight": norm}).write(tmp_path / "tiny.gguf")
    with pytest.raises(ModelFileError, match=r"'output_norm\.weight' holds values"):
        GGUFFile.open(path).tensor("output_norm.weight")


def test_large_finite_values_pass(tmp_path: Path) -> None:
    """Finite values whose sum overflows are sound."""
    norm = np.full(32, 3e38, dtype=np.float32)
    path = Tiny(tensors={"output_norm.weight": norm}).write(tmp_path / "tiny.gguf")
    np.testing.assert_array_equal(GGUFFile.open(path).tensor("output_norm.weight"), norm)


def test_unknown_tensor(tiny: Path) -> None:
    """Asking for a tensor that is not there is an error with the file's name."""
    with pytest.raises(ModelFileError, match=r"tiny\.gguf has no tensor 'x'"):
        GGUFFile.open(tiny).tensor("x")
