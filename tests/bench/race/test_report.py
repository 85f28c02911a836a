"""What a report says of given samples, and its shape for programs."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from bench.race.fakes import sample
from forerun.bench.machine import Reading
from forerun.bench.race.protocol import Acceptance
from forerun.bench.race.report import RaceReport
from forerun.bench.race.run import Difference, LeftOut, Plan
from forerun.bench.report import Load
from forerun.events import Stats

MACHINE = {"processor": "p", "cores": 2, "threads": 2, "instructions": "avx2"}
LOOP = [1, 2] * 10


def report(**changes: Any) -> RaceReport:
    """Two tasks of two prompts, twice; auto is twice as fast as plain in one, as fast in the other.

    A peer wrote one prompt and was given up.
    """
    samples = []
    for repeat in (0, 1):
        for task, question, factor in (("t", "1", 2), ("t", "2", 2), ("u", "3", 1), ("u", "4", 1)):
            place = {"task": task, "repeat": repeat}
            samples.append(sample("plain", question, 2.0, **place))
            samples.append(sample("auto", question, 2.0 / factor, **place))
    samples.append(sample("peer", "1", 4.0))
    values: dict[str, Any] = {
        "model": "toy",
        "plan": Plan(11, 0.0, 5, 2),
        "prompts": {"t": 2, "u": 2},
        "reference": "plain",
        "ours": ("plain", "auto"),
        "details": {"plain": {}, "auto": {"drafter": "auto"}, "peer": {"version": "1"}},
        "errors": {"peer": "out of ideas"},
        "samples": samples,
        "differences": [],
        "left_out": [],
        "machine": MACHINE,
        "readings": [Reading(10.0, 50.0), Reading(None, 60.0)],
        "load": Load(0.1, 0.2, 0.0, 0.0),
        "kept": "runs/x.jsonl",
        "is_interrupted": False,
    }
    return RaceReport(**{**values, **changes})


def printed(one: RaceReport) -> str:
    """As a terminal shows it."""
    console = Console(file=io.StringIO(), width=120)
    console.print(one.as_text())
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_speeds_are_ratios_of_totals() -> None:
    """Ten tokens after the first in the seconds after it, summed."""
    sides = report().as_json()["sides"]
    assert sides["plain"]["tokens_per_second"] == {"overall": 5, "by_task": {"t": 5, "u": 5}}
    assert sides["auto"]["tokens_per_second"]["by_task"] == {"t": 10, "u": 5}
    assert sides["auto"]["tokens_per_second"]["overall"] == pytest.approx(80 / 12)
    assert sides["auto"]["tokens_per_pass"] == {"overall": 1, "by_task": {"t": 1, "u": 1}}
    assert sides["peer"]["tokens_per_second"] == {"overall": 2.5, "by_task": {"t": 2.5, "u": None}}
    assert sides["peer"]["error"] == "out of ideas"
    assert sides["plain"]["first_token_ms"]["overall"] == pytest.approx(100)
    assert "error" not in sides["plain"]


def test_ratios_are_of_every_side_over_plain_and_auto_over_every_other() -> None:
    """Each has a value in its interval; None where the two share nothing."""
    ratios = report().as_json()["ratios"]
    assert set(ratios) == {"auto/plain", "peer/plain", "auto/peer"}
    overall = ratios["auto/plain"]["overall"]
    assert overall == pytest.approx({"value": 4 / 3, "low": 4 / 3, "high": 4 / 3})
    assert ratios["auto/plain"]["by_task"]["t"]["value"] == pytest.approx(2)
    assert ratios["auto/peer"]["overall"]["value"] == pytest.approx(4)
    assert ratios["auto/peer"]["by_task"]["u"] is None


def test_the_best_fixed_side_is_the_one_that_auto_is_ahead_of_least() -> None:
    """Overall and for each task; a warm or choosing side is none."""
    base = report()
    extra = []
    for task, question, seconds in (("t", "1", 0.8), ("t", "2", 0.8), ("u", "3", 2.2)):
        for name in ("suffix:5", "suffix", "auto:warm"):
            factor = 1 if name == "suffix:5" else 0.1
            extra.append(sample(name, question, seconds * factor, task=task))
    fixed, free = {"draft_length": 5}, {"draft_length": "auto"}
    details = {"plain": free, "auto": free, "suffix:5": fixed, "suffix": free, "auto:warm": free}
    one = report(details=details, ours=tuple(details), samples=[*base.samples[:-1], *extra])
    best = one.as_json()["best_fixed"]
    assert best["by_task"]["t"]["side"] == "suffix:5"
    assert best["by_task"]["t"]["auto_over_it"]["value"] == pytest.approx(0.8)
    assert (best["by_task"]["t"]["at_least"], best["by_task"]["t"]["verdict"]) == (0.95, "fails")
    assert best["by_task"]["u"]["side"] == "plain"
    assert best["by_task"]["u"]["verdict"] == "holds"
    assert best["overall"]["at_least"] == 1
    assert "is suffix:5; auto over it" in printed(one)
    assert report(ours=("plain",), details={"plain": free}, samples=[]).best_fixed is None


def test_a_long_table_goes_down_the_page() -> None:
    """Many sides become rows, few stay columns."""
    many = {"plain": {}, "auto": {}, **{f"suffix:{i}": {"draft_length": i} for i in range(5)}}
    one = report(details=many, ours=tuple(many), samples=report().samples[:-1])
    wide, tall = (list(each.grids(with_intervals=False))[1] for each in (report(), one))
    assert list(wide.head) == ["", "auto", "peer"]
    assert list(tall.head) == ["", "t", "u"]
    assert list(tall.rows[0]) == ["auto", "2.00", "1.00"]


def test_the_record_is_plain_json() -> None:
    """Also of a race in which nobody wrote anything."""
    for one in (report(), report(samples=[])):
        record = json.loads(json.dumps(one.as_json(), allow_nan=False))
        assert record["identical"] is True
        assert record["event"] == "race"
        assert set(record["sides"]) == {"plain", "auto", "peer"}
        assert record["interrupted"] is False
        printed(one)


def test_texts_that_repeat_themselves_are_left_out() -> None:
    """Of all sides' figures, in figures of their own."""
    extra = [sample(name, "5", s, tokens=LOOP) for name, s in (("plain", 30.0), ("auto", 1.0))]
    base = report()
    record = report(samples=[*base.samples, *extra]).as_json()
    spared = record["without_repeats"]
    assert spared["texts_left_out"] == 1
    assert spared["ratios"] == base.as_json()["ratios"]
    assert spared["tokens_per_second"]["plain"]["overall"] == 5
    assert record["ratios"]["auto/plain"]["overall"]["value"] > 4 / 3


def test_a_text_that_was_whole_with_the_first_pass_is_told_and_left_out() -> None:
    """No speed of 0: a dash, and a line that says whose texts have none."""
    base = report()
    extra = [sample("plain", "5", task="v"), sample("auto", "5", 0.001, task="v", later=0)]
    details = {"plain": {}, "auto": {}, "suffix:5": {"draft_length": 5}}
    one = report(samples=[*base.samples[:-1], *extra], details=details, ours=tuple(details))
    record, before = one.as_json(), base.as_json()["ratios"]["auto/plain"]
    assert record["sides"]["auto"]["tokens_per_second"]["by_task"]["v"] is None
    assert record["sides"]["auto"]["texts_in_one_pass"] == 1
    assert record["sides"]["plain"]["texts_in_one_pass"] == 0
    assert record["ratios"]["auto/plain"]["by_task"]["v"] is None
    assert record["ratios"]["auto/plain"]["overall"] == before["overall"]
    assert "in no speed and in no ratio: 1 text of auto." in printed(one)
    assert "0.00" not in "".join(
        cell for grid in one.grids(with_intervals=True) for row in grid.rows for cell in row
    )
    assert "in no speed" not in printed(base)


def test_acceptance_and_time_are_sums() -> None:
    """Over all texts; a side whose drafts nobody saw has none."""
    acceptance = Acceptance({1: [2, 1], 3: [1, 0]}, {0: [3, 1]})
    stats = Stats(seconds=10.0, draft_seconds=1.0, pass_seconds=8.0, choice_seconds=0.5)
    stats.expected_seconds = 9.0
    known = [sample("auto", acceptance=acceptance, stats=stats, repeat=r) for r in (0, 1)]
    side = report(samples=[*known, sample("plain")]).as_json()["sides"]
    assert side["auto"]["acceptance"] == {
        "by_position": [[4, 2], [0, 0], [2, 0]],
        "by_rank": [[6, 2]],
    }
    assert side["auto"]["time"] == pytest.approx(
        {"drafting": 0.1, "choice": 0.05, "pass": 0.8, "rest": 0.05}
    )
    predicted = side["auto"]["predicted"]
    assert predicted["overall"] == {"expected": 18, "measured": 20, "ratio": 0.9}
    assert predicted["by_task"]["t"] == predicted["overall"]
    assert side["plain"]["predicted"]["overall"] is None
    assert side["plain"]["acceptance"] is side["plain"]["time"] is None


def test_a_difference_is_told() -> None:
    """Prompt and side, and that the sides are not identical."""
    one = report(differences=[Difference("auto", "7", 0, 1, 3)])
    assert one.as_json()["identical"] is False
    (told,) = one.told_differences()
    for word in ("auto", "plain", "prompt 7", "turn 1", "token 3"):
        assert word in told
    assert told in printed(one).replace("\n", " ")
    assert "wrote the same" not in printed(one)


def test_a_person_reads_what_figures_need() -> None:
    """Speeds, intervals, who was given up, the load, the machine, where the samples are."""
    one = report(
        left_out=[LeftOut("9", 0, 5000)], load=Load(1.0, 1.0, 0.3, 0.1), is_interrupted=True
    )
    shown = printed(one)
    for said in ("1.33", "[1.33, 1.33]", "peer was given up: out of ideas", "context: 1 text."):
        assert said in shown
    for said in ("not a quiet machine", "50 to 60 ns", "avx2", "runs/x.jsonl", "INTERRUPTED"):
        assert said in shown
    assert "not a quiet machine" not in printed(report())
    assert "INTERRUPTED" not in printed(report())


def test_samples_that_are_missing_are_told() -> None:
    """In both forms of the report."""
    one = report(not_kept="No space left on device")
    assert "NOT every sample is in runs/x.jsonl: No space left on device." in printed(one)
    assert one.as_json()["samples_missing"] == "No space left on device"
    assert report().as_json()["samples_missing"] is None
