"""Heads' files: what is written comes back, and no damage, lie or stranger gets through."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from forerun.errors import (
    ModelFileError,
    ModelNotFoundError,
    OptionError,
    OtherTargetError,
    UnsupportedModelError,
)
from forerun.models.head_file import HEAD, HeadFacts, HeadFile, write_head
from forerun.models.model import Model, load_model
from forerun.models.target_checksum import target_checksum
from models.random_head import random_facts, random_head, random_tensors, shape_for, shape_of
from models.tiny_folder import TinyFolder
from models.tiny_gguf import Tiny


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return load_model(Tiny(layers=4, inner=64).write(tmp_path / "tiny.gguf"))


@pytest.fixture
def facts(model: Model) -> HeadFacts:
    return random_facts(model)


@pytest.mark.parametrize("kind", ["medusa", "exit"])
@pytest.mark.parametrize("own", [(), (HEAD,), ("0.1.weight", "1.1.weight", "2.1.weight")])
def test_other_kinds_come_back(
    tmp_path: Path, model: Model, kind: str, own: tuple[str, ...]
) -> None:
    """With the target's rows or their own; parallel heads may have some each."""
    facts, shape = random_facts(model, of=kind), shape_of(kind, model)
    tensors = random_tensors(shape, facts)
    tensors |= dict.fromkeys(own, np.ones((48, 32), np.float32))
    path = tmp_path / "head.gguf"
    if kind == "exit" and len(own) > 1:
        with pytest.raises(UnsupportedModelError, match=r"'0\.1\.weight', which a head lacks"):
            write_head(path, tensors, facts)
        return
    write_head(path, tensors, facts, "F32")
    head = HeadFile.open(path)
    assert (head.kind, head.shape, head.own_heads) == (kind, shape, own)
    assert head.facts.layers == ((4,) if kind == "medusa" else (1,))
    for name, values in tensors.items():
        np.testing.assert_array_equal(head.file.tensor(name), values)
    head.check_target(model)
    head.check_kind("eagle3", kind)
    with pytest.raises(OptionError, match=f"of kind '{kind}', not eagle3"):
        head.check_kind("eagle3")
    other = load_model(Tiny(width=64, layers=4).write(tmp_path / "wide.gguf"))
    with pytest.raises(OtherTargetError, match="its width is 32, not 64"):
        head.check_target(other, force=True)


@pytest.mark.parametrize("kind", ["medusa", "exit"])
def test_other_kinds_are_checked_as_heads_are(tmp_path: Path, model: Model, kind: str) -> None:
    """A tensor that is missing, of another shape or unknown; a kind that is none; two layers."""
    facts, path = random_facts(model, of=kind), tmp_path / "head.gguf"
    tensors = random_tensors(shape_of(kind, model), facts)
    for name, values in tensors.items():
        rest = {other: each for other, each in tensors.items() if other != name}
        # Without its first product, the last of parallel heads is none that anybody counts.
        with pytest.raises((ModelFileError, UnsupportedModelError), match=r"lacks"):
            write_head(path, rest, facts)
        with pytest.raises(ModelFileError, match=r"is \(.*\), not \("):
            write_head(path, {**tensors, name: np.zeros((*values.shape, 1), np.float32)}, facts)
    with pytest.raises(UnsupportedModelError, match=r"'fc\.weight', which a head lacks"):
        write_head(path, {**tensors, "fc.weight": np.zeros((32, 32), np.float32)}, facts)
    with pytest.raises(ModelFileError, match=r"\(9, 32\), not \(48, 32\)"):
        write_head(path, {**tensors, HEAD: np.zeros((9, 32), np.float32)}, facts)
    with pytest.raises(ModelFileError, match="names 2 layers; kind"):
        write_head(path, tensors, facts._replace(layers=(1, 2)))
    with pytest.raises(ModelFileError, match="is no head: its architecture is 'forerun-hydra'"):
        write_head(path, tensors, facts._replace(kind="hydra"))
    assert not path.exists()


def write(path: Path, model: Model, facts: HeadFacts, **tensors: Any) -> HeadFile:
    """Write a head, with some tensors changed or, if None, left out."""
    all_tensors = random_tensors(shape_for(model), random_facts(model)) | tensors
    write_head(path, {n: v for n, v in all_tensors.items() if v is not None}, facts)
    return HeadFile.open(path)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "F16", "F32", "BF16"])
@pytest.mark.parametrize("has_own_head", [False, True])
def test_what_is_written_comes_back(
    tmp_path: Path, model: Model, kind: str, has_own_head: bool
) -> None:
    """Facts, sizes and vectors to the bit; matrices as the type rounds them."""
    facts = random_facts(model, layers=(1, 3))._replace(card={"steps": 7, "loss": [0.5, "é"]})
    tensors = random_tensors(shape_for(model), facts, has_own_head=has_own_head)
    path = tmp_path / "head.gguf"
    write_head(path, tensors, facts, kind)
    head = HeadFile.open(path)
    assert head.facts[:3] == facts[:3]
    np.testing.assert_array_equal(head.facts.tokens, facts.tokens)
    assert head.facts.card == facts.card
    assert head.shape == shape_for(model)
    assert head.has_own_head == has_own_head == (HEAD in head.file)
    assert set(head.file.tensor_names) == set(tensors)
    for name, values in tensors.items():
        own = kind if values.ndim == 2 else "F32"
        assert head.file.tensor_type(name) == own
        code = gguf.GGMLQuantizationType[own]
        expected = gguf.dequantize(gguf.quantize(values, code), code)
        np.testing.assert_array_equal(head.file.tensor(name), expected)
    head.check_target(model)


def test_a_width_of_no_whole_blocks_is_kept_in_half_floats(tmp_path: Path) -> None:
    """Where rows of a matrix are no blocks of 32, and only there, it is F16."""
    model = load_model(Tiny(width=40, heads=5, kv_heads=1).write(tmp_path / "tiny.gguf"))
    head = random_head(tmp_path / "head.gguf", model)
    assert head.file.tensor_type("layers.0.mlp.up_proj.weight") == "F16"
    assert head.file.tensor_type("layers.0.self_attn.q_proj.weight") == "F16"
    model = load_model(Tiny(width=48, heads=6, kv_heads=2).write(tmp_path / "tiny.gguf"))
    head = random_head(tmp_path / "head.gguf", model, layers=(0, 1))
    assert head.file.tensor_type("layers.0.mlp.up_proj.weight") == "F16"
    assert head.file.tensor_type("layers.0.self_attn.q_proj.weight") == "Q8_0"  # 2 x 48


def test_the_same_head_is_the_same_file(tmp_path: Path, model: Model) -> None:
    """Nothing of the time or the place is in it."""
    (tmp_path / "other").mkdir()
    paths = [tmp_path / "head.gguf", tmp_path / "other" / "name.gguf"]
    for path in paths:
        random_head(path, model)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_a_file_is_the_old_or_the_new_one(
    tmp_path: Path, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What can't be written whole leaves the old file, and nothing beside it."""
    path = tmp_path / "head.gguf"
    random_head(path, model)
    before, there = path.read_bytes(), sorted(tmp_path.iterdir())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gguf.GGUFWriter, "write_tensors_to_file", full)
    with pytest.raises(ModelFileError, match="No space left"):
        random_head(path, model, seed=1)
    assert path.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == there
    with pytest.raises(ModelFileError, match="can't be written"):
        random_head(tmp_path / "nowhere" / "head.gguf", model)


def test_what_is_no_head(tmp_path: Path, model: Model) -> None:
    """A missing file, a folder, noise and a model are refused, each for what it is."""
    with pytest.raises(ModelNotFoundError):
        HeadFile.open(tmp_path / "none.gguf")
    (tmp_path / "noise").write_bytes(b"noise" * 100)
    for path, why in ((tmp_path, "folder"), (tmp_path / "noise", "not a GGUF file")):
        with pytest.raises(ModelFileError, match=why):
            HeadFile.open(path)
    with pytest.raises(ModelFileError, match="is no head: its architecture is 'llama'"):
        HeadFile.open(model.path)


def test_a_head_is_no_model(tmp_path: Path, model: Model) -> None:
    """Whoever loads a head as a model is told what it is."""
    random_head(tmp_path / "head.gguf", model)
    with pytest.raises(UnsupportedModelError, match="forerun-eagle3"):
        load_model(tmp_path / "head.gguf")


CHANGES: dict[str, tuple[object, type[Exception], str]] = {
    "general.architecture": ("llama", ModelFileError, "is no head"),
    "forerun.head.version": (2, UnsupportedModelError, "version 2; this Forerun reads 1"),
    "forerun.head.target": ("ff", ModelFileError, "no checksum"),
    "forerun.head.target_name": ("x" * 1001, ModelFileError, "no text of up to 1000"),
    "forerun.head.layers": ([2, 1], ModelFileError, "layers does not ascend"),
    "forerun.head.tokens": ([3, 3], ModelFileError, "tokens does not ascend"),
    "forerun.head.card": ("[1]", ModelFileError, "card does not hold a JSON object"),
}
MORE: list[tuple[str, object, type[Exception], str]] = [
    *((key, *change) for key, change in CHANGES.items()),
    *(
        (key, None, change[1], f"{key[13:]}|None")
        for key, change in CHANGES.items()
        if key[:8] != "general."
    ),
    *(
        (key, 1.5, change[1], f"{key[13:]}|1.5")
        for key, change in CHANGES.items()
        if key[:8] != "general."
    ),
    ("forerun.head.version", True, UnsupportedModelError, "version True"),
    ("forerun.head.target", "G" * 64, ModelFileError, "no checksum"),
    ("forerun.head.layers", [True], ModelFileError, "no list of whole numbers"),
    ("forerun.head.layers", [-1, 2], ModelFileError, "layers does not ascend"),
    ("forerun.head.layers", list(range(17)), ModelFileError, "names 17 layers"),
    ("forerun.head.tokens", [-1, 3], ModelFileError, "tokens does not ascend"),
    ("forerun.head.tokens", [5, 4], ModelFileError, "tokens does not ascend"),
    ("forerun.head.tokens", [1, 1 << 31], ModelFileError, "tokens does not ascend"),
    ("forerun.head.tokens", ["a"], ModelFileError, "no list of whole numbers"),
    ("forerun.head.tokens", [0.5], ModelFileError, "no list of whole numbers"),
    ("forerun.head.card", "{", ModelFileError, "not valid JSON"),
    ("forerun.head.card", "[" * 100_000, ModelFileError, "nested too deeply"),
    ("forerun.head.card", '"' * 1_100_000, ModelFileError, "no text of up to"),
]


@pytest.mark.parametrize(("key", "value", "error", "what"), MORE)
def test_lies_of_a_header_are_refused(
    tmp_path: Path, model: Model, key: str, value: object, error: type[Exception], what: str
) -> None:
    """Each fact that is missing, of another kind or impossible is an error that names it."""
    path = tmp_path / "head.gguf"
    head = random_head(path, model)
    metadata = dict(head.file.metadata) | {key: value}
    writer = gguf.GGUFWriter(path, str(metadata.pop("general.architecture")))
    for name, each in metadata.items():
        if isinstance(each, list):
            kind = gguf.GGUFValueType.get_type(each[0]) if each else gguf.GGUFValueType.INT32
            kind = gguf.GGUFValueType.INT64 if kind == gguf.GGUFValueType.INT32 else kind
            writer.add_key_value(name, each, gguf.GGUFValueType.ARRAY, sub_type=kind)
        elif each is not None:
            writer.add_key_value(name, each, gguf.GGUFValueType.get_type(each))
    for name in head.file.tensor_names:
        writer.add_tensor(name, head.file.tensor(name))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(error, match=what):
        HeadFile.open(path)


def test_every_tensor_must_be_there_in_its_shape(
    tmp_path: Path, model: Model, facts: HeadFacts
) -> None:
    """One that is missing, of another shape or unknown is named; nothing is written."""
    path = tmp_path / "head.gguf"
    for name, size in shape_for(model).tensors(len(facts.layers)).items():
        with pytest.raises(ModelFileError, match=re.escape(f"lacks the tensor {name!r}")):
            write(path, model, facts, **{name: None})
        for wrong in ((*size[:-1], size[-1] + 32), (*size, 1), size[:-1]):
            with pytest.raises(ModelFileError, match=r"is \(.*\), not \(|lacks the tensor"):
                write(path, model, facts, **{name: np.zeros(wrong, np.float32)})
    with pytest.raises(UnsupportedModelError, match=r"'d2t', which a head lacks"):
        write(path, model, facts, d2t=np.zeros(4, np.float32))
    with pytest.raises(ModelFileError, match="lm_head"):
        write(path, model, facts, **{HEAD: np.zeros((9, 32), np.float32)})
    assert not path.exists()


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_values_that_are_not_finite_are_not_written(
    tmp_path: Path, model: Model, facts: HeadFacts, value: float
) -> None:
    """Nor those whose type makes them so: 1e30 has no half float for its scale."""
    tensors = random_tensors(shape_for(model), facts)
    tensors["fc.weight"][3, 5] = value
    with pytest.raises(ModelFileError, match=r"'fc.weight' is not finite as Q4_1"):
        write_head(tmp_path / "head.gguf", tensors, facts)
    assert sorted(tmp_path.iterdir()) == [model.path]


def test_values_that_are_not_finite_are_not_read(tmp_path: Path, model: Model) -> None:
    """A head may be opened with them, never used: whoever reads them gets an error."""
    path = tmp_path / "head.gguf"
    head = random_head(path, model, kind="F32")
    data = bytearray(path.read_bytes())
    wanted = head.file.raw("norm.weight").tobytes()
    start = data.index(wanted)
    data[start : start + 4] = np.float32(np.nan).tobytes()
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match=r"'norm.weight' holds values that are not finite"):
        HeadFile.open(path).file.tensor("norm.weight")


def test_facts_are_checked_before_they_are_written(
    tmp_path: Path, model: Model, facts: HeadFacts
) -> None:
    """By the reader's own rules: what is written can be read."""
    nothing = np.array([], np.int64)
    for wrong in ({"layers": ()}, {"tokens": nothing}, {"target": "x"}, {"layers": (2, 2, 3)}):
        with pytest.raises(ModelFileError, match=f"head.{next(iter(wrong))}"):
            write(tmp_path / "head.gguf", model, facts._replace(**wrong))


def test_types_of_matrices(tmp_path: Path, model: Model, facts: HeadFacts) -> None:
    """A type that is none, or that nobody writes, is refused before anything is written."""
    tensors = random_tensors(shape_for(model), facts)
    for kind in ("Q9", "q8_0", "Q4_K", ""):
        with pytest.raises(OptionError, match="Choose"):
            write_head(tmp_path / "head.gguf", tensors, facts, kind)


def test_a_head_is_for_one_target(tmp_path: Path, model: Model) -> None:
    """Another model of the same shape, and the same cut to fewer layers, need force."""
    head = random_head(tmp_path / "head.gguf", model, layers=(0, 1, 2))
    other = load_model(Tiny(layers=4, inner=64, seed=1).write(tmp_path / "other.gguf"))
    for stranger in (other, model.cut(3)):
        with pytest.raises(OtherTargetError, match="was learned from another target"):
            head.check_target(stranger)
        head.check_target(stranger, force=True)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"width": 64}, "its width is 32, not 64"),
        ({"heads": 8}, "its query width is 32, not 64"),
        ({"kv_heads": 4}, "its kv width is 16, not 32"),
        ({"inner": 96}, "its inner width is 64, not 96"),
        ({"layers": 2}, "wants layer 3 of 2"),
        ({"vocab_size": 290}, "names token 299 of 290"),
    ],
)
def test_no_force_makes_a_head_fit(
    tmp_path: Path, model: Model, changes: dict[str, Any], why: str
) -> None:
    """Sizes, layers and tokens have to be the target's."""
    facts = random_facts(model)._replace(tokens=np.array([7, 299]))
    head = write(tmp_path / "head.gguf", model, facts)
    tiny = replace(Tiny(layers=4, inner=64), **changes)
    stranger = load_model(tiny.write(tmp_path / "stranger.gguf"))
    for force in (False, True):
        with pytest.raises(OtherTargetError, match=why):
            head.check_target(stranger, force=force)


def test_checksums_are_of_content(tmp_path: Path, model: Model) -> None:
    """The same bytes elsewhere are the same target; a changed file is an error."""
    data = model.path.read_bytes()
    assert target_checksum(model) == hashlib.sha256(data).hexdigest()
    (tmp_path / "copy.gguf").write_bytes(data)
    assert target_checksum(load_model(tmp_path / "copy.gguf")) == target_checksum(model)
    assert target_checksum(model.cut(4)) == target_checksum(model)
    cuts = {target_checksum(model.cut(layers)) for layers in (1, 2, 3, 4)}
    assert len(cuts) == 4
    path = Tiny(seed=9).write(tmp_path / "other.gguf")
    other = load_model(path)
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(ModelFileError, match="changed after it was opened"):
        target_checksum(other)


def test_a_folder_is_all_its_weights(tmp_path: Path) -> None:
    """One behind the other in the order of their names, however they are rounded when read."""
    folder = TinyFolder(Tiny(), shards=3).write(tmp_path / "folder")
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        digest.update(path.read_bytes())
    assert target_checksum(load_model(folder)) == digest.hexdigest()
    assert target_checksum(load_model(folder, weights="int8")) == digest.hexdigest()


@pytest.mark.model
def test_a_named_model_is_known_without_reading_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checksum is the one that its file was fetched with."""
    default = load_model("smollm2")
    digest = hashlib.sha256(default.path.read_bytes()).hexdigest()
    monkeypatch.setattr(hashlib, "sha256", None)
    assert target_checksum(default) == digest
