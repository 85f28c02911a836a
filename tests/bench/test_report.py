"""The arithmetic of a report, on figures chosen by hand."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from forerun.bench.machine import Reading
from forerun.bench.measure import Plan, Samples, Task
from forerun.bench.options import Timing
from forerun.bench.report import Load, PassReport

KEYS = {
    "rows", "sides", "ratios", "v", "bandwidth_gb_s", "bytes_per_pass", "memory_limit_ms",
    "barrier_ns", "load", "prefill", "decode", "machine",
}  # fmt: skip


def report(
    ours: dict[Task, list[float]], theirs: Samples | None = None, **changes: Any
) -> PassReport:
    """Ours in seconds; 100 MB a pass at 50 GB/s."""
    samples = {"forerun": Samples(ours)} | ({} if theirs is None else {"other": theirs})
    readings = [Reading(40.0, 60.0), Reading(55.0, 300.0), Reading(50.0, 70.0)]
    fields: dict[str, Any] = {
        "model": "m",
        "options": Timing(rows=(4, 1), context=7),
        "plan": Plan((4, 1), 100, 10, 2, range(100)),
        "samples": samples,
        "details": {name: {"version": "1", "weights": "auto", "kv_bits": 16} for name in samples},
        "machine": {"processor": "p", "threads": 2, "instructions": "avx2"},
        "bytes_per_pass": 100_000_000,
        "readings": readings,
        "load": Load(0.5, 2.0, 0.25, 0.0),
    }
    return PassReport(**{**fields, **changes})


OURS = {
    Task("pass", 1): [0.003, 0.001, 0.002],
    Task("pass", 4): [0.004, 0.002, 0.003],
    Task("prefill", 100): [0.5],
    Task("decode", 10): [0.02, 0.02],
}
THEIRS = Samples({Task("pass", 1): [0.005], Task("pass", 4): [0.018], Task("prefill", 100): [0.25]})


def text_of(report: PassReport) -> str:
    console = Console(file=StringIO(), width=120)
    console.print(report.as_text())
    printed: str = console.file.getvalue()  # type: ignore[attr-defined]
    return printed


def test_the_record() -> None:
    """Rows ascend; v and ratios are of medians; a limit is bytes over bandwidth."""
    record = report(OURS, THEIRS).as_json()
    assert set(record) >= KEYS
    assert record["rows"] == [1, 4]
    assert record["sides"]["forerun"]["ms"] == pytest.approx([2, 3])
    assert record["sides"]["other"]["ms"] == pytest.approx([5, 18])
    assert record["sides"]["other"]["v"] == pytest.approx([1, 3.6])
    assert record["sides"]["other"]["version"] == "1"
    assert record["v"] == pytest.approx([1, 1.5])
    assert record["ratios"] == {"other": pytest.approx([2.5, 6])}
    assert record["bandwidth_gb_s"] == 50
    assert record["memory_limit_ms"] == pytest.approx(2)
    assert record["over_limit"] == pytest.approx([1, 1.5])
    assert record["barrier_ns"] == 70
    assert record["load"]["others"] == 0.25
    assert record["readings"][1] == {"bandwidth_gb_s": 55, "barrier_ns": 300}
    assert record["context"] == 7


def test_prompts_and_texts() -> None:
    """Tokens a second, and how many times the peer's; a peer without samples has none."""
    record = report(OURS, THEIRS).as_json()
    assert record["prefill"]["tokens_per_second"] == {"forerun": 200, "other": 400}
    assert record["prefill"]["ratios"] == {"other": 0.5}
    assert record["decode"]["tokens_per_second"] == {"forerun": pytest.approx(500), "other": None}
    assert record["decode"]["ratios"] == {"other": None}
    plan = Plan((1,), 0, 0, 1, ())
    without = report(OURS, plan=plan).as_json()
    assert without["prefill"] is without["decode"] is None


def test_what_was_not_measured_is_none() -> None:
    """Without a pass of one row there is no v, without bandwidth no limit; all of it is JSON."""
    readings, load = [Reading(None, 60.0)], Load(None, None, None, None)
    lacking = report(
        {Task("pass", 4): [0.003]}, Samples(error="E: no"), load=load, readings=readings
    )
    assert "memory limit" not in text_of(lacking)
    assert "load" not in text_of(lacking)
    record = lacking.as_json()
    assert record["v"] == [None, None]
    assert record["sides"]["forerun"]["ms"] == [None, pytest.approx(3)]
    assert record["sides"]["other"]["error"] == "E: no"
    assert record["ratios"] == {"other": [None, None]}
    assert record["memory_limit_ms"] is record["bandwidth_gb_s"] is None
    json.dumps(record, allow_nan=False)


def test_raw_samples_are_kept() -> None:
    """Every sample in milliseconds, in the order taken."""
    lines = list(report(OURS, THEIRS).samples_as_json())
    assert lines[-1]["side"] == "other"
    first = next(line for line in lines if line["kind"] == "pass" and line["size"] == 1)
    assert first["side"] == "forerun"
    assert first["ms"] == pytest.approx([3, 1, 2])
    assert len(lines) == 7


def test_the_table_shows_all_of_it() -> None:
    """Times, v, the distance to the limit, the peer's times and ratios, load and failures."""
    text = text_of(report(OURS, THEIRS))
    assert "1  2.00  1.00     1.00      5.00  1.00           2.50" in text
    assert "4  3.00  1.50     1.50        18  3.60           6.00" in text
    assert "decode of 10 tokens, tokens a second: forerun 500, other –" in text
    assert "prefill of 100 tokens, tokens a second: forerun 200, other 400" in text
    assert "0.50 times other's" in text
    assert "memory limit: 2.00 ms, 100.0 MB a pass at 50.0 GB/s" in text
    assert "barrier: 70 ns, 60 to 300" in text
    assert "0.25 cores by others, 0.00 by the host: not a quiet machine" in text
    assert "other was given up: E: no" in text_of(report(OURS, Samples(error="E: no")))


def test_a_quiet_machine_is_not_doubted() -> None:
    """Below a tenth of a core nothing is said."""
    assert "not a quiet" not in text_of(report(OURS, load=Load(0.1, 0.1, 0.04, 0.05)))
    assert "not a quiet" in text_of(report(OURS, load=Load(0.1, 0.1, 0.04, 0.07)))
