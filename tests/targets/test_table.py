"""Which target runs a model, and that nobody is left to guess."""

from __future__ import annotations

from pathlib import Path

import pytest

import forerun
from forerun.errors import NativeModuleError, OptionError, UnsupportedModelError
from forerun.models.model import Model, load_model
from forerun.targets import native
from forerun.targets.table import TARGETS, open_target
from models.tiny_gguf import Tiny
from targets.targets_under_test import ELSEWHERE
from targets.targets_under_test import TARGETS as TESTED


@pytest.fixture
def model(tmp_path: Path) -> Model:
    """One that both targets run."""
    return load_model(Tiny().write(tmp_path / "tiny.gguf"))


@pytest.fixture
def strange(tmp_path: Path) -> Model:
    """One of a type without kernels."""
    return load_model(Tiny(width=256, quantisation="TQ2_0").write(tmp_path / "strange.gguf"))


def test_listed_means_tested(model: Model) -> None:
    """Every target of the table passes the conformance suite and is called what it is chosen by."""
    assert TARGETS.keys() <= TESTED.keys() | ELSEWHERE.keys()
    assert all((Path(__file__).parent / file).exists() for file in ELSEWHERE.values())
    for name in TARGETS.keys() - ELSEWHERE.keys():  # which of the others are called so, they test
        assert open_target(name, model).target.capabilities.name == name


def test_auto_takes_the_native_target(model: Model, strange: Model) -> None:
    """Where it runs the model; else the reference, with the reason."""
    target, reason = open_target("auto", model, threads=2, context=9)
    assert (target.capabilities.name, target.context_length, reason) == ("native", 9, "")
    target, reason = open_target("auto", strange, context=9)
    assert (target.capabilities.name, target.context_length) == ("reference", 9)
    assert "TQ2_0" in reason


def test_without_the_compiled_module_auto_is_the_reference(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And whoever asks for the native target by name is told."""

    def missing() -> None:
        raise NativeModuleError("It is not there.", "Compile it.")

    monkeypatch.setattr(native, "load", missing)
    monkeypatch.setattr("forerun.targets.native_weights.load", missing)
    target, reason = open_target("auto", model)
    assert (target.capabilities.name, reason) == ("reference", "It is not there. Compile it.")
    with pytest.raises(NativeModuleError):
        open_target("native", model)


def test_what_cannot_be_had_is_refused(model: Model, strange: Model) -> None:
    """Unknown targets, threads where there are none, kernels that do not exist."""
    with pytest.raises(OptionError, match=r"no target 'gpu'"):
        open_target("gpu", model)
    for spec in ("reference", "auto"):
        with pytest.raises(OptionError, match="threads = 2"):
            open_target(spec, strange, threads=2)
    with pytest.raises(UnsupportedModelError, match="TQ2_0"):
        open_target("native", strange)


def test_a_text_says_what_computed_it(model: Model) -> None:
    """The result names the target; the model says why it was not the native one."""
    for name in TARGETS.keys() - ELSEWHERE.keys():
        lm = forerun.load(model.path, target=name)
        result = lm.generate([1, 2, 3], max_tokens=2)
        assert (result.target, lm.target_reason) == (name, "")
        assert result.as_json()["target"] == name
