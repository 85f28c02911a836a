"""Whether auto keeps up with what is fixed: three verdicts, and the table of them."""

from __future__ import annotations

import pytest

from forerun.bench.race.verdicts import best_of, grid_of_best, verdict


def ratio(value: float, low: float | None = None, high: float | None = None) -> dict[str, object]:
    """A figure with its interval."""
    return {"value": value, "low": low, "high": high}


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (ratio(1.0), "undecided"),
        (ratio(1.0, 0.9, 1.1), "holds"),
        (ratio(1.2, 0.9, 1.3), "holds"),
        (ratio(0.9, 0.8, 0.99), "fails"),
        (ratio(0.9, 0.8, 1.0), "undecided"),
        (ratio(0.9), "undecided"),
    ],
)
def test_a_bound_is_missed_only_by_a_whole_interval(of: dict[str, float], said: str) -> None:
    """A value that reaches it holds; one below with an interval that does not is undecided.

    Without an interval nothing is decided.
    """
    assert verdict(of, 1.0) == said


def test_the_best_is_found_anew_in_each_task() -> None:
    """What nobody shared with auto has none."""
    ratios = {
        "auto/a:1": {
            "overall": ratio(1.3),
            "by_task": {"t": ratio(0.94, 0.93, 0.945), "u": ratio(2.0), "v": None},
        },
        "auto/b:1": {
            "overall": ratio(1.2),
            "by_task": {"t": ratio(1.0), "u": ratio(0.95, 0.9, 1.0), "v": None},
        },
    }
    best = best_of(ratios, ["a:1", "b:1"], ["t", "u", "v"])
    assert {
        task: own and (own["side"], own["verdict"]) for task, own in best["by_task"].items()
    } == {
        "t": ("a:1", "fails"),
        "u": ("b:1", "holds"),
        "v": None,
    }
    assert (best["overall"]["side"], best["overall"]["at_least"]) == ("b:1", 1.0)
    speeds = {
        name: {"overall": 1.0, "by_task": {"t": 2.0, "u": 3.0, "v": None}}
        for name in ("auto", "a:1", "b:1")
    }
    rows = grid_of_best(best, speeds).rows
    assert [list(row) for row in rows] == [
        ["t", "a:1", "2.00", "2.00", "0.94 [0.93, 0.94]", "≥ 0.95", "fails"],
        ["u", "b:1", "3.00", "3.00", "0.95 [0.90, 1.00]", "≥ 0.95", "holds"],
        ["v", "–", "–", "–", "–", "–", "–"],
        ["overall", "b:1", "1.00", "1.00", "1.20", "≥ 1", "undecided"],
    ]
