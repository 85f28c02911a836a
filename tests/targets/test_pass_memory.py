"""Rows that do not fit into memory are refused before it is taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from forerun.errors import NotEnoughMemoryError
from forerun.models.model import Model, load_model
from forerun.targets import pass_memory
from forerun.targets.protocol import Row, Target
from forerun.targets.rotary_table import RotaryTable
from forerun.targets.table import open_target
from models.tiny_gguf import Tiny


class Many(Sequence[Row]):
    """So many rows, side by side, none of which takes memory before it is looked at."""

    def __init__(self, sequence: int, number: int) -> None:
        self._row, self._number = Row(sequence, 1, 0, -1), number

    def __len__(self) -> int:
        return self._number

    def __getitem__(self, index: Any) -> Any:
        if index >= self._number:
            raise IndexError(index)
        return self._row


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return load_model(Tiny(context=300).write(tmp_path_factory.mktemp("memory") / "tiny.gguf"))


@pytest.fixture(params=["native", "reference"])
def target(request: pytest.FixtureRequest, model: Model) -> Target:
    return open_target(request.param, model).target


def test_ten_million_rows_are_refused_at_once(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their number, before any of them is looked at; the sequence works on."""
    monkeypatch.setattr(pass_memory, "free_memory", lambda: 8_000_000_000)
    sequence = target.open([1, 2])
    told = r"pass of 10,000,000 rows needs \d+\.\d GB of memory, and 8\.0 GB"
    with pytest.raises(NotEnoughMemoryError, match=told):
        target.score(Many(sequence, 10_000_000))
    assert target.score([Row(sequence, 1, 2, -1)]).logits.shape == (1, target.vocab_size)


def test_memory_that_ends_all_the_same_is_an_error_of_ours(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the estimate said; and the next pass is as if nothing had been."""
    text = [1, 2] * 128  # behind it, turns are computed anew
    sequence = target.open(text)

    def end(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as poor:
        poor.setattr(RotaryTable, "through", end)
        with pytest.raises(NotEnoughMemoryError, match="pass of 1 rows needs more memory"):
            target.score([Row(sequence, 1, 256, -1)])
    logits = [target.score([Row(one, 1, 256, -1)]).logits for one in (sequence, target.open(text))]
    np.testing.assert_array_equal(*logits)


def test_small_passes_do_not_ask_the_system(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading the system's files would cost more than a pass of a small model."""

    def ask() -> int:
        raise AssertionError("asked")

    monkeypatch.setattr(pass_memory, "free_memory", ask)
    assert target.score([Row(target.open([1]), 1, 1, -1)]).logits.shape == (1, target.vocab_size)
