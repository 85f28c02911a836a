"""Heads that come with Forerun are found by what they were learned from, not by their names."""

from __future__ import annotations

from pathlib import Path

import pytest

import forerun
from forerun.errors import ModelFileError
from forerun.models.model import load_model
from forerun.models.shipped_head import shipped_head
from models.random_head import random_head
from models.tiny_gguf import Tiny


def test_a_head_is_found_by_its_targets_checksum(tmp_path: Path) -> None:
    """Among heads of other sizes, and of other weights of the same size."""
    heads = tmp_path / "heads"
    heads.mkdir()
    models = [
        load_model(tiny.write(tmp_path / f"{i}.gguf"))
        for i, tiny in enumerate((Tiny(), Tiny(seed=1), Tiny(width=64), Tiny(seed=2)))
    ]
    for i, model in enumerate(models[:3]):
        random_head(heads / f"{3 - i}.gguf", model)
        found = shipped_head(model, heads)
        assert found is not None
        assert found.file.path.name == f"{3 - i}.gguf"
    assert shipped_head(models[3], heads) is None
    assert shipped_head(models[0], tmp_path / "nowhere") is None


def test_a_damaged_head_is_told(tmp_path: Path) -> None:
    """And not passed over: what is missing then would be missed."""
    model = load_model(Tiny().write(tmp_path / "model.gguf"))
    heads = tmp_path / "heads"
    heads.mkdir()
    (heads / "a.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelFileError):
        shipped_head(model, heads)


@pytest.mark.model
def test_a_head_comes_with_the_default_model() -> None:
    """Small enough for the package; its card says how it was made; `auto` asks it."""
    model = load_model("smollm2")
    head = shipped_head(model)
    assert head is not None
    assert head.file.file_bytes <= 8_000_000
    assert head.facts.card["target"]["sha256"] == head.facts.target
    assert head.facts.card["training"]["learned_tokens"] > 0


@pytest.mark.model
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_head_that_comes_along_writes_tokens_and_changes_none(temperature: float) -> None:
    """A conversation that repeats nothing is written in fewer passes, and is the same."""
    lm = forerun.load("smollm2", threads=2)
    prompt = "Explain to a child why the sky is blue."
    options = {"max_tokens": 64, "temperature": temperature, "seed": 5}
    plain = lm.generate(prompt, drafter="none", **options)
    drafted = lm.generate(prompt, drafter="eagle", draft_length=2, **options)
    assert [(t.token, t.logprob) for t in drafted.tokens] == [
        (t.token, t.logprob) for t in plain.tokens
    ]
    assert drafted.stats.accepted > 0
    chosen = lm.generate(prompt, drafter="auto", **options)
    assert chosen.token_ids == plain.token_ids
