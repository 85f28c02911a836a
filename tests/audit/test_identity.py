"""Identity with plain decoding: what passes, and what must be reported."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
import pytest

from forerun.audit import identity
from forerun.audit.identity import (
    CHOSEN,
    ENDINGS,
    FILTERS,
    TEMPERATURES,
    Cell,
    compare,
    exact_cells,
    grid,
    half_of,
)
from forerun.audit.row_models import SHAPES, random_model
from forerun.audit.stages import (
    chosen_cells,
    ending_cells,
    ending_stage,
    model_stage,
    random_stage,
    toy_cells,
    toy_stage,
)
from forerun.drafters.table import DRAFTERS
from forerun.models.model import load_model
from forerun.targets.protocol import Row, Scores
from forerun.targets.toy import ToyTarget


def test_every_cell_is_there() -> None:
    """The grid is every drafter × temperature × filter × shape, and more at temperature 0."""
    cells = toy_cells()
    assert len(set(cells)) == len(cells)
    assert set(grid(DRAFTERS, (1, 3))) <= set(cells)
    assert len(list(grid(DRAFTERS, (1,)))) == len(DRAFTERS) * len(TEMPERATURES) * len(FILTERS)
    assert {cell.rule for cell in cells} == {"match", "speculative", "block", "tree"}


@pytest.mark.parametrize(
    "cells", [toy_cells(), chosen_cells(), list(ending_cells())], ids=["grid", "chosen", "endings"]
)
def test_every_two_choices_meet_in_half_the_cells(cells: list[Cell]) -> None:
    """Whatever two attributes of a cell occur together do so in a cell of the half."""
    names = [field.name for field in fields(Cell)]

    def pairs(some: list[Cell]) -> set[object]:
        return {
            (a, getattr(cell, a), b, getattr(cell, b))
            for cell in some
            for a, b in itertools.combinations(names, 2)
        }

    half = half_of(cells)
    assert pairs(half) == pairs(cells)
    assert 2 * len(half) <= len(cells) + len({cell.drafter for cell in cells})


def test_toys_write_the_same_with_any_drafter() -> None:
    """All cells, in short: no token differs, and every cell drafts."""
    report = compare(toy_stage(max_tokens=12), toy_cells())
    assert report.problems == []
    assert report.tokens == 12 * 2 * report.cells
    assert set(report.drafted) == set(DRAFTERS)
    assert min(report.drafted.values()) > 0
    assert any(cell.width == CHOSEN for cell in toy_cells())
    assert sum(report.accepted.values()) > 0


@pytest.mark.parametrize("context", [4096, 16])
def test_texts_end_where_plain_decoding_ends_them(context: int) -> None:
    """Every ending, also inside a draft and at the context's border."""
    report = compare(ending_stage(context=context), list(ending_cells(("model", "suffix"))))
    assert report.problems == []
    assert report.ended_in_draft > 10


def test_every_ending_happens() -> None:
    """The cells reach end tokens, stop strings and limits."""
    ends: Counter[str] = Counter()
    stage = ending_stage()
    stage = replace(stage, judge=lambda request: ends.update([request.result().finish_detail]))  # type: ignore[arg-type, func-returns-value]
    compare(stage, list(ending_cells(("model",))))
    strings = {str(s) for ending in ENDINGS.values() for s in ending.get("stop", ())}  # type: ignore[attr-defined]
    assert ends["end of text"] > 10
    assert ends["max_tokens"] > 10
    assert len(strings & set(ends)) >= 4


class _Leaky(ToyTarget):
    """A target whose rows depend on how many rows a pass has."""

    def score(
        self,
        rows: Sequence[Row],
        *,
        logits: Sequence[int] | None = None,
        layers: Sequence[int] = (),
        until: int | None = None,
    ) -> Scores:
        scores = super().score(rows, logits=logits, layers=layers, until=until)
        return Scores(
            scores.logits + np.float32(self.leak) * np.arange(self.vocab_size) * len(rows)
        )

    leak = 0.0


def _leaky(leak: float) -> _Leaky:
    target = _Leaky(toy_stage().target._table)  # type: ignore[attr-defined]
    target.leak = leak
    return target


def test_a_token_that_differs_is_reported_with_its_place() -> None:
    """A mismatch names cell, position and both tokens."""
    stage = replace(toy_stage(max_tokens=12), target=_leaky(0.05))
    cell = Cell("random", 0.0, "no filter")
    report = compare(stage, [cell])
    assert str(cell) in report.problems[0]
    assert "position" in report.problems[0]
    assert "plain decoding writes" in report.problems[0]


def test_a_log_probability_that_differs_in_its_last_bits_is_reported() -> None:
    """The same tokens are not enough: log-probabilities are compared bit for bit."""
    stage = replace(toy_stage(max_tokens=4), target=_leaky(1e-6))
    report = compare(stage, [Cell("random", 0.0, "no filter")])
    assert "log-probability" in report.problems[0]


def test_a_drafter_that_never_drafts_shows_nothing() -> None:
    """A cell without a draft is a problem, not a success."""
    report = compare(toy_stage(max_tokens=4), [Cell("none", 1.0, "top-k")])
    assert report.mismatches == []
    assert len(report.idle) == 1
    assert "nothing was drafted" in report.problems[0]


def test_a_drafter_that_learns_from_rounds_must_draft_somewhere() -> None:
    """In a text of two tokens it can't; in none of its cells is a problem."""
    short, long = (
        Cell("recycle", 0.0, "no filter", ending=e) for e in ("2 at most", "full length")
    )
    stage = ending_stage(max_tokens=25)
    assert compare(stage, [short, long]).problems == []
    assert len(compare(stage, [short]).idle) == 1


def test_a_plain_text_that_breaks_its_own_promise_is_reported() -> None:
    """What plain and speculative decoding get wrong alike is judged without comparison."""
    stage = ending_stage(max_tokens=6)
    late = replace(stage, eos_ids=(6,))  # the judge knows better: token 7 ends a text
    cells = [Cell("model", 1.0, "bias", ending="likely end")]
    assert compare(stage, cells).problems == []
    assert any("goes on after its end" in problem for problem in compare(late, cells).problems)


def test_random_models_write_the_same_with_any_drafter() -> None:
    """Few cells of each drafter and rule on the native target, many texts in a pass."""
    cells = exact_cells(tuple(DRAFTERS), (1, 3))
    assert {cell.rule for cell in cells} == {"match", "speculative", "block", "tree"}
    with random_model(SHAPES[3]) as model:
        report = compare(random_stage(model, 6), cells[::5])
    assert report.mismatches == []
    assert report.by_target == {"native": 6 * 2 * report.cells}
    assert sum(report.accepted.values()) > 0


def test_long_lists_of_cells_are_written_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts show what the whole shows, and progress goes on through them to the end."""
    cells = [cell for cell in toy_cells() if cell.width != CHOSEN][::9]  # costs waver with time
    whole = compare(toy_stage(max_tokens=5), cells)
    monkeypatch.setattr(identity, "_TEXTS", 4)
    shares: list[float] = []
    assert compare(toy_stage(max_tokens=5), cells, shares.append) == whole
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.mark.model
def test_the_model_writes_the_same_with_any_drafter() -> None:
    """A few cells of each drafter on the default model."""
    cells = [Cell(d, t, name, w) for d in DRAFTERS for t, name, w in _FEW]
    report = compare(model_stage(load_model("smollm2"), 12), cells)
    assert report.problems == []
    assert report.tokens == 12 * len(cells)
    assert report.by_target == {"native": report.tokens}
    assert set(report.drafted) == set(DRAFTERS)


_FEW = ((0.0, "no filter", 1), (1.0, "top-p", 2))
