"""Heads without attention: the formulas of their page, and both twins of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from forerun.errors import CapabilityError, EngineError, OptionError, OtherTargetError
from forerun.models.head_file import HeadFile, write_head
from forerun.models.head_shapes import HEAD
from forerun.models.model import Model, load_model
from forerun.targets.native_head import NativeHead
from forerun.targets.native_readout import NativeReadout
from forerun.targets.readout import FileReadout, Readout
from forerun.targets.reference import ReferenceTarget
from forerun.targets.reference_head import ReferenceHead
from forerun.targets.reference_readout import ReferenceReadout
from forerun.targets.table import open_readout
from forerun.targets.toy import ToyTarget
from models.random_head import random_facts, random_head, random_tensors, shape_of
from models.tiny_gguf import Tiny

Doubles = NDArray[np.float64]
KINDS = ["medusa", "exit"]
TWINS: list[type[FileReadout]] = [ReferenceReadout, NativeReadout]


def model_in(folder: Path, **changes: object) -> Model:
    """A random model of 64 components."""
    options = {"width": 64, "inner": 96, "quantisation": "Q8_0", **changes}
    return load_model(Tiny(**options).write(folder / "tiny.gguf"))  # type: ignore[arg-type]


def judge(head: HeadFile, model: Model, hidden: Doubles) -> Doubles:
    """The formulas, in 64 bits."""
    w = {name: head.file.tensor(name).astype(np.float64) for name in head.file.tensor_names}

    def rms(x: Doubles, weight: Doubles) -> Doubles:
        epsilon = model.architecture.norm_epsilon
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight

    def silu(x: Doubles) -> Doubles:
        return x / (1 + np.exp(-x))

    name = "token_embd.weight" if model.architecture.is_tied else "output.weight"
    rows = w.get(HEAD, model.file.tensor(name)[head.facts.tokens].astype(np.float64))
    if head.kind == "exit":
        n = rms(hidden, w["input_layernorm.weight"])
        inner = silu(n @ w["mlp.gate_proj.weight"].T) * (n @ w["mlp.up_proj.weight"].T)
        x = hidden + inner @ w["mlp.down_proj.weight"].T
        return (rms(x, w["norm.weight"]) @ rows.T)[:, None]
    x = rms(hidden, model.file.tensor("output_norm.weight").astype(np.float64))
    made = []
    for k in range(3):
        u = x @ w[f"{k}.0.linear.weight"].T + w[f"{k}.0.linear.bias"]
        made.append((x + silu(u)) @ w.get(f"{k}.1.weight", rows).T)
    return np.stack(made, axis=1)


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("own", [(), (HEAD,), ("0.1.weight", "1.1.weight", "2.1.weight")])
@pytest.mark.parametrize("kind", KINDS)
def test_a_readout_computes_its_formulas(
    tmp_path: Path, kind: str, own: tuple[str, ...], twin: type[FileReadout]
) -> None:
    """In 32 bits within their error; with float weights the compiled one does as well."""
    if kind == "exit" and len(own) > 1:
        return
    model = model_in(tmp_path, is_tied=bool(own), quantisation="F32")
    facts = random_facts(model, of=kind)
    tensors = random_tensors(shape_of(kind, model), facts)
    random = np.random.default_rng(5)
    for name in own:
        tensors[name] = random.standard_normal((48, 64), dtype=np.float32) / 8
    write_head(tmp_path / "head.gguf", tensors, facts, "F32")
    head = HeadFile.open(tmp_path / "head.gguf")
    readout = twin(head, model)
    assert isinstance(readout, Readout)
    assert (readout.layer, readout.guesses) == (facts.layers[0], 3 if kind == "medusa" else 1)
    np.testing.assert_array_equal(readout.tokens, facts.tokens)
    hidden = random.standard_normal((5, 64)) * 3
    expected = judge(head, model, hidden)
    np.testing.assert_allclose(readout.read(hidden.astype(np.float32)), expected, atol=2e-5)


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("kind", KINDS)
def test_rows_do_not_see_each_other(tmp_path: Path, kind: str, twin: type[FileReadout]) -> None:
    """A row's result is the same bits in any company, 4-bit weights or not."""
    model = model_in(tmp_path)
    head = random_head(tmp_path / "head.gguf", model, of=kind, kind="Q4_1", has_own_head=True)
    readout = twin(head, model)
    hidden = np.random.default_rng(1).standard_normal((9, 64), dtype=np.float32)
    whole = readout.read(hidden)
    for count in (1, 2, 4):
        for start in range(0, 9 - count, 3):
            part = readout.read(hidden[start : start + count])
            np.testing.assert_array_equal(part, whole[start : start + count])
    assert readout.read(hidden[:0]).shape == (0, readout.guesses, 48)


@pytest.mark.parametrize("kind", KINDS)
def test_the_compiled_one_is_the_reference_but_for_8_bits(tmp_path: Path, kind: str) -> None:
    """Weights are the same; activations are rounded, and the logits hardly differ."""
    model = model_in(tmp_path)
    head = random_head(tmp_path / "head.gguf", model, of=kind)
    hidden = np.random.default_rng(2).standard_normal((4, 64), dtype=np.float32)
    ours, theirs = (twin(head, model).read(hidden) for twin in TWINS)
    assert 0 < np.abs(ours - theirs).max() < 0.05 * np.abs(ours).max()


def test_a_readout_refuses_what_is_not_for_it(tmp_path: Path) -> None:
    """Another kind, another target unless forced, states of another width, a target without."""
    model = model_in(tmp_path)
    eagle = random_head(tmp_path / "eagle.gguf", model)
    medusa = random_head(tmp_path / "medusa.gguf", model, of="medusa")
    (tmp_path / "other").mkdir()
    other = model_in(tmp_path / "other", seed=3)
    for twin in TWINS:
        with pytest.raises(OptionError, match="of kind 'eagle3', not medusa or exit"):
            twin(eagle, model)
        with pytest.raises(OtherTargetError, match="was learned from another target"):
            twin(medusa, other)
        forced = twin(medusa, other, force=True)
        for shape in ((64,), (2, 32)):
            with pytest.raises(EngineError, match="Hidden states are"):
                forced.read(np.zeros(shape, np.float32))
    for head in (NativeHead, ReferenceHead):
        with pytest.raises(OptionError, match="of kind 'medusa', not eagle3"):
            head(medusa, model)
    with pytest.raises(CapabilityError, match="this model runs on toy"):
        open_readout(medusa, model, ToyTarget.random(4, 1, 1))
    assert isinstance(open_readout(medusa, model, ReferenceTarget(model)), ReferenceReadout)
