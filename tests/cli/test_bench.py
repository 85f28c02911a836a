from __future__ import annotations

import json
from typing import Any

import pytest

from bench.test_report import KEYS
from forerun.bench import machine
from forerun.bench.peers import PEERS
from forerun.cli.interrupt import Interruption

QUICK = ("--rows", "1,2", "--context", "4", "--prefill", "6", "--decode", "2", "--repeats", "1")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little of the machine is read."""
    monkeypatch.setattr(machine, "_READ", 1 << 20)
    monkeypatch.setattr(machine, "_BATCHES", 1)


def test_the_last_line_is_the_report(run: Any) -> None:
    """Before it stands every sample; each line is one object."""
    result = run("bench", "pass", *QUICK, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    *samples, last = map(json.loads, result.stdout.splitlines())
    assert set(last) >= KEYS
    assert last["rows"] == [1, 2]
    assert len(last["sides"]["forerun"]["ms"]) == 2
    assert {(line["kind"], line["size"]) for line in samples} == {
        ("pass", 1), ("pass", 2), ("prefill", 6), ("decode", 2)
    }  # fmt: skip


def test_a_person_gets_a_table(run: Any) -> None:
    """With the remarks that figures need."""
    result = run("bench", "pass", *QUICK, "--threads", "1")
    assert (result.exit_code, result.stderr) == (0, "")
    told = " ".join(result.stdout.split())  # lines break where the model's path lets them
    for said in ("rows", "v(M)", "memory limit", "barrier", "1 thread,"):
        assert said in told


def test_peers_stand_beside_it(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer has its columns."""
    monkeypatch.setitem(PEERS, "fake", "bench.fake_side:FakePeer")
    result = run("bench", "pass", *QUICK, "--peers", "fake")
    assert "fake ms" in result.stdout
    assert "times as fast" in result.stdout


def test_ctrl_c_prints_what_there_is(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report of the samples so far, and the exit code of an interruption."""
    monkeypatch.setattr(Interruption, "came", True, raising=False)
    monkeypatch.setattr(Interruption, "__init__", lambda self: setattr(self, "is_final", False))
    result = run("bench", "pass", *QUICK, "--json")
    assert result.exit_code == 130
    assert json.loads(result.stdout)["sides"]["forerun"]["ms"] == [None, None]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--peers", "exllama"), "There is no peer 'exllama'"),
        (("--rows", "0"), "rows = '0'"),
        (("--rows", "1,100000"), "rows = '100000'"),
        (("--rows", "one"), "rows = 'one'"),
        (("--context", "0"), "context = '0'"),
        (("--context", "100000"), "the model reads 4096"),
        (("--prefill", "5000"), "the model reads 4096"),
        (("--repeats", "0"), "repeats = '0'"),
        (("--threads", "0"), "threads = '0'"),
        (("--shape", "70b"), "shape = '70b'"),
        (("--shape", "1b", "--peers", "llama.cpp"), "leave peers or shape out"),
        (("--shape", "1b", "-m", "x.gguf"), "contradict each other"),
        (("--shape", "1b", "--weights", "int8"), "has 4-bit weights"),
        (("--kv-bits", "8"), "kv_bits = '8'"),
    ],
)
def test_what_cannot_be_is_one_line(run: Any, arguments: tuple[str, ...], said: str) -> None:
    """Wrong use ends with 2, what is wrong, and no output."""
    result = run("bench", "pass", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_bench_alone_shows_what_there_is(run: Any) -> None:
    """The command `pass`, with a line of help."""
    result = run("bench", "--help")
    assert result.exit_code == 0
    assert "pass" in result.stdout
