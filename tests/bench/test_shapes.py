"""Random models of known shapes: a small one stands for the large ones."""

from __future__ import annotations

import numpy as np
import pytest

from forerun.api import LanguageModel
from forerun.bench import shapes
from forerun.bench.shapes import SHAPES, architecture_of, make_model
from forerun.config import Loading
from forerun.errors import NotEnoughMemoryError, OptionError
from forerun.targets import loading
from forerun.targets.native import NativeTarget
from forerun.targets.protocol import Row
from forerun.targets.reference import ReferenceTarget


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> str:
    """A shape of toy size, with a head of its own."""
    monkeypatch.setitem(SHAPES, "small", (64, 2, 8, 8, 128, False))
    monkeypatch.setattr(shapes, "_VOCAB_SIZE", 320)
    return "small"


@pytest.mark.parametrize(
    ("shape", "parameters", "bytes_"), [("1b", 1.236e9, 0.695e9), ("3b", 3.21e9, 1.81e9),
                                        ("8b", 8.03e9, 4.52e9)]
)  # fmt: skip
def test_the_shapes_are_those_of_the_models(shape: str, parameters: float, bytes_: float) -> None:
    """As many parameters as published, and 4.5 bits for nearly each of them."""
    architecture = architecture_of(shape)
    count = sum(int(np.prod(sizes)) for _, sizes in architecture.tensor_shapes())
    assert count == pytest.approx(parameters, rel=0.003)
    file = shapes.RandomFile(shape, architecture)
    assert file.file_bytes == pytest.approx(bytes_, rel=0.01)
    assert "output.weight" not in file or shape == "8b"


def test_the_native_target_opens_it(small: str) -> None:
    """It packs, scores finite logits that differ by token, and writes text."""
    lm = LanguageModel(make_model(small), Loading(target="native", threads=1))
    target = lm.target
    assert isinstance(target, NativeTarget)
    sequence = target.open([1, 2, 3])
    logits = target.score([Row(sequence, 4, 3, -1), Row(sequence, 5, 4, 0)]).logits
    assert np.isfinite(logits).all()
    assert 0.1 < logits.std() < 10
    assert (logits[0] != logits[1]).any()
    assert len(lm.generate([1, 2], drafter="none", max_tokens=5, ignore_eos=True).tokens) == 5


def test_it_is_a_model_like_any_other(small: str) -> None:
    """The reference target reads the same weights out of it."""
    model = make_model(small)
    logits = []
    for target in (NativeTarget(model, threads=1), ReferenceTarget(model)):
        sequence = target.open([1, 2, 3])
        logits.append(target.score([Row(sequence, 4, 3, -1)]).logits)
    # 8-bit activations are what lies between them.
    assert np.abs(logits[0] - logits[1]).max() < 0.1 * np.abs(logits[1]).max()


def test_each_weight_is_counted(small: str) -> None:
    """What a pass reads is all matrices but the embedding, of which each row reads its own line."""
    model = make_model(small)
    target = NativeTarget(model, threads=1)
    embedding = model.file.nbytes("token_embd.weight")
    assert target.row_bytes == embedding // 320
    assert target.weight_bytes == model.file.file_bytes - embedding


def test_too_little_memory_is_said(small: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is packed."""
    monkeypatch.setitem(SHAPES, "tight", SHAPES[small])  # a name whose weights are not there yet
    monkeypatch.setattr(loading, "free_memory", lambda: 1000)
    with pytest.raises(NotEnoughMemoryError, match="random tight needs"):
        NativeTarget(make_model("tight"), threads=1)


def test_an_unknown_shape() -> None:
    """The error lists what there is."""
    with pytest.raises(OptionError, match=r"'70b'.*1b, 3b, 8b"):
        architecture_of("70b")
