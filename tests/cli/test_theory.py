from __future__ import annotations

import json
from typing import Any

import pytest
import typer

import forerun.theory as formulas
from forerun.cli.main import app

ASK = ("theory", "--alpha", "0.8", "--draft-length", "5", "--cost")


def answer(run: Any, *arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    record: dict[str, Any] = json.loads(result.stdout)
    return record


def test_the_papers_example(run: Any) -> None:
    """α = 0.8, γ = 5, c = 0: 3.69 tokens per pass, 3.69 times as fast, 1.63 times the work."""
    record = answer(run, *ASK, "0")
    assert record["tokens_per_pass"] == pytest.approx(3.68928)
    assert record["speedup"] == pytest.approx(3.68928)
    assert round(record["operations"], 2) == 1.63
    assert record["oracle"]["speedup"] == pytest.approx(5)


def test_the_answers_are_the_formulas(run: Any) -> None:
    """A cost, a cost of operations and a longest draft reach the formulas they belong to."""
    record = answer(run, *ASK, "0.1", "--ops-cost", "0.2", "--longest", "9")
    assert record["speedup"] == pytest.approx(formulas.speedup(0.8, 5, 0.1))
    assert record["operations"] == pytest.approx(formulas.operations_factor(0.8, 5, 0.2))
    assert record["optimal_draft_length"] == formulas.optimal_length(0.8, 0.1, 9)
    assert record["oracle"]["speedup"] == pytest.approx(formulas.oracle_speedup(0.8, 0.1))
    assert [row["draft_length"] for row in record["lengths"]] == list(range(10))
    for row in record["lengths"]:
        truth = formulas.speedup(0.8, row["draft_length"], 0.1)
        assert row["speedup"] == pytest.approx(truth)


def test_operations_cost_what_time_does_unless_told(run: Any) -> None:
    """Without --ops-cost, ĉ is c."""
    truth = formulas.operations_factor(0.8, 5, 0.1)
    assert answer(run, *ASK, "0.1")["operations"] == pytest.approx(truth)


def test_a_measured_curve_replaces_free_rows(run: Any) -> None:
    """With v(M) the speedup is the measured one, over the lengths that were measured."""
    curve = {1: 1.0, 2: 1.1, 4: 1.3, 6: 1.5}
    record = answer(run, *ASK, "0.1", "--curve", "1:1,2:1.1,4:1.3,6:1.5")
    assert record["speedup"] == pytest.approx(formulas.measured_speedup(0.8, 5, 0.1, curve))
    assert [row["draft_length"] for row in record["lengths"]] == [0, 1, 3, 5]
    best = formulas.optimal_length_measured(0.8, 0.1, curve, 12)
    assert record["optimal_draft_length"] == best


def test_without_a_bound_the_oracle_says_so(run: Any) -> None:
    """α = 1 and c = 0: null in JSON, words in the table."""
    ask = ("theory", "--alpha", "1", "--draft-length", "2", "--cost", "0")
    assert answer(run, *ask)["oracle"] == {"tokens_per_pass": None, "speedup": None}
    assert "no bound" in run(*ask).stdout


def test_the_table_has_a_row_for_each_length(run: Any) -> None:
    """Facts and table are on stdout, the best length among them."""
    result = run(*ASK, "0.1", "--longest", "8")
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["speedup", "2.46"] in rows
    assert ["best", "draft", "length", str(formulas.optimal_length(0.8, 0.1, 8))] in rows
    assert [row[0] for row in rows[-9:]] == [str(length) for length in range(9)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--alpha", "1.5", "--draft-length", "5", "--cost", "0"), "alpha is 1.5"),
        (("--alpha", "nan", "--draft-length", "5", "--cost", "0"), "alpha is nan"),
        (("--alpha", ".5", "--draft-length", "-1", "--cost", "0"), "draft_length is -1"),
        (("--alpha", ".5", "--draft-length", "5", "--cost", "-1"), "cost is -1"),
        (("--alpha", ".5", "--draft-length", "5", "--cost", "0", "--curve", "1:1"), "6 rows"),
        (("--alpha", ".5", "--draft-length", "1", "--cost", "0", "--curve", "1:1,2"), "'2'"),
        (("--alpha", ".5", "--draft-length", "1", "--cost", "0", "--curve", "1:2,2:3"), "one row"),
    ],
)
def test_what_no_formula_holds_for_is_refused(
    run: Any, arguments: tuple[str, ...], words: str
) -> None:
    """Outside the formulas' domain: exit code 2 and one line."""
    result = run("theory", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_help_loses_no_word(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands in brackets is a default, and no style that swallows it."""
    monkeypatch.setenv("COLUMNS", "400")
    group: Any = typer.main.get_command(app)
    for name, command in group.commands.items():
        shown = run(name, "--help").stdout
        for parameter in command.params:
            assert (parameter.help or "") in shown, parameter.name
