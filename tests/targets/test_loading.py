"""Weights on their way into a target: equal to a GGUF file's, told, bounded, and then their own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import forerun
from forerun.errors import ModelFileError, NotEnoughMemoryError
from forerun.events import LoadProgress
from forerun.models.folder_weights import FolderWeights
from forerun.models.model import Model, load_model
from forerun.targets import loading, memory
from forerun.targets.native import NativeTarget
from forerun.targets.reference import ReferenceTarget
from forerun.targets.reference_weights import dequantising
from forerun.targets.table import open_target
from models.tiny_folder import TinyFolder, own_name
from models.tiny_gguf import Tiny
from targets.row_cases import as_rows, check_mix, check_splits, random_tokens, random_tree

Array = NDArray[np.float32]
KINDS = (NativeTarget, ReferenceTarget)
EXACT = (partial(NativeTarget, kv_bits=32), ReferenceTarget)  # differ by rounding alone


def logits(kind: Any, model: Model) -> Array:
    """Logits of a seeded tree after a seeded prompt."""
    target, random = kind(model), Random(0)
    prompt = random_tokens(random, target.vocab_size, 20)
    sequence = target.open(prompt)
    result: Array = target.score(
        as_rows(sequence, 20, random_tree(random, target.vocab_size, 12))
    ).logits
    return result


# A folder against a GGUF file.


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3"])
@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.parametrize("weights", ["auto", "int8", "int4"])
def test_a_folder_is_the_gguf_file_of_its_weights(
    tmp_path: Path, architecture: str, dtype: str, is_tied: bool, weights: Any
) -> None:
    """Stored as they are or in blocks, the same weights give the same logits, bit for bit."""
    kind, ends = {"auto": (dtype, dtype), "int8": ("Q8_0", "Q8_0"), "int4": ("Q4_0", "Q8_0")}[
        weights
    ]
    folder = TinyFolder(Tiny(architecture, width=64, inner=96, is_tied=is_tied), dtype=dtype)
    gguf_file = load_model(folder.as_gguf(tmp_path / "t.gguf", kind, ends))
    model = load_model(folder.write(tmp_path / "m"), weights=weights)
    for target in KINDS:
        np.testing.assert_array_equal(logits(target, model), logits(target, gguf_file))


@pytest.mark.parametrize("architecture", ["llama", "smollm3"])
def test_turning_pairs_lie_otherwise_in_a_gguf_file(tmp_path: Path, architecture: str) -> None:
    """With the rows of q and k reordered from halves to neighbours, the logits are the same."""
    tiny = Tiny(architecture, layers=5, head_dim=12)
    tensors = {}
    for name, value in tiny.all_tensors().items():
        if name.endswith(("attn_q.weight", "attn_k.weight")):
            halves = value.reshape(-1, 2, tiny.head_dim // 2, tiny.width)
            tensors[name] = halves.swapaxes(1, 2).reshape(value.shape)
    path = Tiny(architecture, layers=5, head_dim=12, tensors=tensors).write(tmp_path / "t.gguf")
    model = load_model(TinyFolder(tiny).write(tmp_path / "m"))
    for target in EXACT:
        found = logits(target, model)
        np.testing.assert_allclose(found, logits(target, load_model(path)), atol=1e-4)
        plain = logits(target, load_model(tiny.write(tmp_path / "plain.gguf")))
        assert np.abs(found - plain).max() > 1e-2


@pytest.mark.parametrize("weights", ["auto", "bf16", "int8", "int4"])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "smollm3"])
def test_both_targets_read_the_same_weights(
    tmp_path: Path, architecture: str, weights: Any
) -> None:
    """Native within rounding of its twin, whatever was made of the matrices."""
    folder = TinyFolder(Tiny(architecture, layers=4, width=64, inner=96))
    model = load_model(folder.write(tmp_path), weights=weights)
    ours, theirs = (logits(kind, model) for kind in EXACT)
    if weights in ("int8", "int4"):
        assert np.sqrt(np.mean((ours - theirs) ** 2)) < 0.04 * np.sqrt(np.mean(theirs**2))
    else:
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_rows_of_a_folder_are_exact(tmp_path: Path) -> None:
    """Layers with and without positions, 4-bit weights: no row depends on another."""
    tiny = Tiny("smollm3", layers=4, width=64, inner=96, context=300)
    config = {"no_rope_layers": [0, 1, 0, 1]}
    model = load_model(TinyFolder(tiny, config=config).write(tmp_path), weights="int4")
    for kind in KINDS:
        target, random = kind(model), Random(0)
        check_mix(target, random, longest=60, largest=20)
        check_splits(target, random, 60)


# What a caller sees.


@pytest.mark.parametrize("target", ["native", "reference"])
def test_progress_is_told(tmp_path: Path, target: str) -> None:
    """After each layer and the ends, up to all bytes; and what lives already is quick."""
    model = load_model(TinyFolder(Tiny(layers=3)).write(tmp_path))
    told: list[LoadProgress] = []
    opened = open_target(target, model, progress=told.append)
    assert [news.stage for news in told] == ["packing"] * 4
    assert 0 < told[0].done < told[1].done < told[2].done < told[3].done == told[3].total
    assert told[3].total == sum(
        model.file.nbytes(name) if target == "native" else 4 * np.prod(shape)
        for name, shape in model.architecture.tensor_shapes()
    )
    assert opened.target.capabilities.name == target


def test_the_api_takes_a_folder(tmp_path: Path) -> None:
    """Loaded by path, with a draft model from the same folder, it writes and tells its progress."""
    path = TinyFolder(Tiny(layers=4, width=64, inner=96)).write(tmp_path)
    told: list[LoadProgress] = []
    lm = forerun.load(path, weights="int8", draft_model=path, draft_layers=2, progress=told.append)
    plain = lm.generate("the hen", max_tokens=12, drafter="none")
    drafted = lm.generate("the hen", max_tokens=12, drafter="model", draft_length=3)
    assert plain.token_ids == drafted.token_ids
    assert drafted.stats.drafted > 0
    assert told[-1].done == told[-1].total


# Memory.


@pytest.mark.parametrize("kind", KINDS)
def test_too_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any) -> None:
    """Refused with both numbers before a byte of the weights is read; what lives needs none."""
    model = load_model(TinyFolder().write(tmp_path))
    living = kind(model)
    monkeypatch.setattr(loading, "free_memory", lambda: 3 << 20)
    assert kind(model.cut(1)).vocab_size == living.vocab_size
    monkeypatch.setattr(loading, "free_memory", lambda: 100_000)
    other = load_model(TinyFolder(Tiny(seed=1)).write(tmp_path / "other"))
    monkeypatch.setattr(FolderWeights, "raw", lambda *_: pytest.fail("read"))
    with pytest.raises(NotEnoughMemoryError, match=r"needs 0.00 GB of memory, and 0.00 GB are"):
        kind(other)


def test_a_system_that_gives_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An allocation that fails after all is the same error; a system that says nothing is tried."""
    model = load_model(TinyFolder().write(tmp_path))
    monkeypatch.setattr(loading, "free_memory", lambda: None)

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(FolderWeights, "raw", fail)
    with pytest.raises(NotEnoughMemoryError, match="and the system gave less"):
        loading.load_weights(model, dequantising)


def test_limits_of_a_control_group(tmp_path: Path) -> None:
    """What is left is the limit less what is used, file pages aside; no limit is none."""
    names = ("memory.max", "memory.current", "inactive_file")
    for name, text in ((names[0], "1000"), (names[1], "700"), ("memory.stat", "inactive_file 50")):
        (tmp_path / name).write_text(text)
    assert memory._left(tmp_path, *names) == 350
    (tmp_path / "memory.current").write_text("5000")
    assert memory._left(tmp_path, *names) == 0
    for text in ("max", str(1 << 62)):
        (tmp_path / "memory.max").write_text(text)
        with pytest.raises(ValueError, match=r"invalid|memory"):
            memory._left(tmp_path, *names)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_limit_of_the_process_counts() -> None:
    """Under `ulimit -v` no more is free than that leaves."""
    program = (
        "import resource; from forerun.targets.memory import free_memory; before = free_memory();"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 32, 1 << 32)); after = free_memory();"
        "print(before > 0, 0 < after < 1 << 32)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "True True\n", done.stderr


PEAK = """
import resource, sys
import forerun.native
from forerun.models.model import load_model
from forerun.targets.native import NativeTarget
forerun.native.load()
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
model = load_model(sys.argv[1], weights=sys.argv[2])
before = peak()
target = NativeTarget(model, threads=1)
print(peak() - before, target.weight_bytes, model.file.file_bytes)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts pages as Linux does")
@pytest.mark.parametrize("weights", ["auto", "int8", "int4"])
def test_peak_memory(tmp_path: Path, weights: str) -> None:
    """Beside the packed weights no more than a few tensors are there at any time."""
    tiny = Tiny(layers=12, width=512, heads=8, kv_heads=8, head_dim=64, inner=2048)
    path = TinyFolder(tiny, dtype="BF16").write(tmp_path)  # 100 MB, 8 MB a layer
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(path), weights], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    grown, packed, size = map(int, done.stdout.split())
    assert size > 90 << 20
    # Quantising holds some chunks of 8 MB as float32, and what numpy makes of them on the way.
    assert grown < packed + (30 << 20) + (0 if weights == "auto" else 60 << 20)


# Files that do not stay as they are.


@pytest.mark.parametrize("target", ["native", "reference"])
def test_after_loading_files_do_not_matter(tmp_path: Path, target: str) -> None:
    """Overwritten, cut short and deleted: the text goes on, also with the model's own layers."""
    path = TinyFolder(Tiny(layers=4)).write(tmp_path / "m")
    lm = forerun.load(path, target=target)
    expected = lm.generate("the hen", max_tokens=12, drafter="none").token_ids
    place = path / "model.safetensors"
    place.write_bytes(bytes(place.stat().st_size))
    assert lm.generate("the hen", max_tokens=12, drafter="model").token_ids == expected
    place.write_bytes(b"")
    assert lm.generate("the hen", max_tokens=12).token_ids == expected
    shutil.rmtree(path)
    assert lm.generate("the hen", max_tokens=12).token_ids == expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weights", ["auto", "int4"])
def test_a_file_that_shrinks_while_it_is_loaded(tmp_path: Path, kind: Any, weights: Any) -> None:
    """An error, where a mapped file would end the process."""
    path = TinyFolder(Tiny(layers=4, width=64, inner=96)).write(tmp_path)
    model = load_model(path, weights=weights)

    def shrink(_: LoadProgress) -> None:
        with (path / "model.safetensors").open("r+b") as file:
            file.truncate(9000)

    with pytest.raises(ModelFileError, match=r"changed after it was opened|ends within"):
        kind(model, progress=shrink)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_number_names_its_tensor(tmp_path: Path, kind: Any) -> None:
    """NaN in any matrix or vector is found at load."""
    for number, name in enumerate(("blk.1.ffn_down.weight", "output_norm.weight")):
        folder = TinyFolder()
        value = np.array(folder.tiny.all_tensors()[name])
        value.flat[-1] = np.nan
        stored = {own_name(name): ("F32", value.shape, value.tobytes())}
        model = load_model(TinyFolder(tensors=stored).write(tmp_path / str(number)))
        with pytest.raises(ModelFileError, match=f"{own_name(name)}' holds values that are not"):
            kind(model)
