"""Near-ties: counted with their gaps, and told from faults."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun.audit import identity
from forerun.audit.identity import Cell, compare
from forerun.audit.near import gap_between, tolerance_of
from forerun.audit.stages import Stage, model_cells, model_stage, toy_stage
from forerun.models.model import load_model
from forerun.targets.protocol import Capabilities, Row, Scores
from forerun.targets.table import open_target
from forerun.targets.toy import ToyTarget
from models.tiny_folder import byte_tokenizer, write_json
from targets.tiny_networks import tiny_network


class Wavering(ToyTarget):
    """Promises the same law: a row's logits move with the number of rows in its pass.

    Attributes:
        step: By how much, up or down with the token.
    """

    step = 0.0

    def score(self, rows: Sequence[Row], **asked: Any) -> Scores:
        """Score as a toy, and move every logit a little."""
        scores = super().score(rows, **asked)
        signs = np.where(np.arange(self.vocab_size) % 2, 1, -1)
        return Scores(scores.logits + np.float32(self.step * np.cos(len(rows))) * signs)


def stage_of(step: float, table: np.ndarray[Any, Any] | None = None) -> Stage:
    stage = toy_stage(max_tokens=20)
    own = stage.target._table  # type: ignore[attr-defined]
    target = Wavering(own if table is None else table)
    target.step = step
    target.capabilities = Capabilities(True, "same law", name="toy", layers=own.ndim - 1)
    return replace(stage, target=target)


def tied() -> np.ndarray[Any, Any]:
    """A table in which an even and an odd token are equally likely everywhere, and likeliest."""
    table = np.array(toy_stage().target._table)  # type: ignore[attr-defined]
    table[..., 1] = table[..., 0] = table.max(axis=-1)
    return table


CELLS = [Cell("random", temperature, "no filter", 2) for temperature in (0.0, 1.0)]


def test_near_ties_are_counted_and_are_no_fault() -> None:
    """Where two tokens are equal but for rounding, texts part, and the gap is told."""
    report = compare(stage_of(1e-5, tied()), CELLS)
    assert report.problems == []
    assert report.near
    assert 0 < max(report.near) <= report.tolerance == 1e-3


def test_a_fault_is_no_near_tie(monkeypatch: pytest.MonkeyPatch) -> None:
    """What rounding does not explain is a problem, with what lies between the tokens."""
    assert compare(stage_of(0.2), CELLS).problems
    monkeypatch.setattr(identity, "tolerance_of", lambda _: 1e-9)
    report = compare(stage_of(1e-5, tied()), CELLS)
    assert report.near == []
    assert any("lie between them" in problem for problem in report.problems)


def test_log_probabilities_are_compared_within_rounding() -> None:
    """The same tokens are not enough here, either."""
    report = compare(stage_of(0.05), [Cell("random", 0.0, "no filter")])
    assert any("log-probability" in problem for problem in report.problems)
    assert compare(stage_of(1e-6), [Cell("random", 0.0, "no filter")]).problems == []


def test_bits_stay_bits() -> None:
    """A target that promises bits is allowed no gap."""
    stage = toy_stage(max_tokens=12)
    assert tolerance_of(stage.target) == 0
    assert compare(stage, CELLS).tolerance == 0


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_the_gap_is_what_it_takes(temperature: float) -> None:
    """From either side the same, and none between a token and itself."""
    stage = stage_of(0.0)
    (ask,) = stage.asks(Cell("none", temperature, "no filter"))[:1]
    from forerun.audit.loop import write

    (request,) = write(stage.target, [ask], stage.drafter_for)
    written = request.output[3]
    other = (written + 1) % stage.target.vocab_size
    gap = gap_between(stage.target, request, 3, written, other)
    assert 0 < gap < math.inf
    assert gap_between(stage.target, request, 3, written, written) == 0.0
    assert gap_between(stage.target, request, 3, other, written) == gap


def test_cells_are_what_a_target_has() -> None:
    """No heads beside one that runs none, no trees where chains are all."""
    target = stage_of(0.0).target
    cells = model_cells(target)
    assert {cell.width for cell in cells} == {0, 1, 2}
    drafters = {name for cell in cells for name in cell.drafter.split(",")}
    assert {"suffix", "lookup", "early_exit"} <= drafters
    assert not drafters & {"eagle", "medusa", "model"}
    target.capabilities = replace(target.capabilities, trees=False, layers=0)  # type: ignore[misc]
    cells = model_cells(target)
    assert {cell.width for cell in cells} == {0, 1}
    assert "early_exit" not in {cell.drafter for cell in cells}


@pytest.mark.judge
def test_a_network_of_transformers_is_audited(tmp_path: Path) -> None:
    """Its texts are the same with any drafter that its target has, but for near-ties."""
    tiny_network("gpt2", vocab_size=300).save_pretrained(tmp_path)
    write_json(tmp_path / "tokenizer.json", byte_tokenizer(300))
    model = load_model(tmp_path, foreign=True)
    target = open_target("auto", model).target
    stage = model_stage(model, 6, target=target)
    cells = [
        cell
        for cell in model_cells(target)
        if (cell.filter, cell.rule, cell.temperature) == ("no filter", "match", 1.0)
        and cell.drafter in ("suffix", "random", "early_exit")
    ]
    report = compare(stage, cells)
    assert report.mismatches == []
    assert report.by_target.keys() == {"transformers"}
    assert report.tolerance == 1e-3
    assert all(gap <= 1e-3 for gap in report.near)
    assert sum(report.drafted.values()) > 30
    assert sum(report.accepted.values()) > 0
