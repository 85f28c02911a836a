from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import forerun.audit
from forerun.audit import Certificate
from forerun.models.model import Model

Audit = Callable[..., Certificate]


@pytest.fixture
def audits(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What audits were asked for; each finds a broken promise if it is thorough."""
    asked: list[dict[str, Any]] = []

    def run_audit(
        *, model: Model | None, target: Any, thorough: bool, progress: Any, is_over: Any
    ) -> Certificate:
        asked.append({"model": model, "target": target, "thorough": thorough, "is_over": is_over})
        progress("laws", 0.5)
        control = "a wrong law" if thorough else ""
        name = None if model is None else model.name
        return Certificate(model=name, thorough=thorough, control=control)

    monkeypatch.setattr(forerun.audit, "run_audit", run_audit)
    return asked


def test_the_certificate_is_printed(run: Any, tiny: Path, audits: list[dict[str, Any]]) -> None:
    """The model is the one that was named, and the certificate alone is on stdout."""
    result = run("audit")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("All promises that were tested are kept.")
    assert audits[0]["model"].path == tiny


def test_a_broken_promise_ends_with_1(run: Any, audits: list[dict[str, Any]]) -> None:
    """Printed like any certificate, and the exit code tells."""
    result = run("audit", "--thorough")
    assert result.exit_code == 1
    assert "A promise is broken." in result.stdout
    assert "a wrong law" in result.stdout
    assert audits[0]["thorough"]


@pytest.mark.parametrize(("flags", "code"), [([], 0), (["--thorough"], 1)])
@pytest.mark.usefixtures("audits")
def test_json_is_one_line(run: Any, flags: list[str], code: int) -> None:
    """The whole certificate, with the verdict that the exit code gives."""
    result = run("audit", "--json", *flags)
    record = json.loads(result.stdout)
    assert result.exit_code == code
    assert record["ok"] is (code == 0)
    assert {"laws", "match", "sampler", "identity", "mutants"} <= set(record)


def test_toys_need_no_model(
    run: Any, audits: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --toys nothing is fetched and nothing opened; a model beside it is a contradiction."""
    monkeypatch.delenv("FORERUN_MODEL")
    assert run("audit", "--toys").exit_code == 0
    assert audits[0]["model"] is None
    for more in (("-m", "x.gguf"), ("--target", "transformers"), ("--dtype", "float16")):
        result = run("audit", "--toys", *more)
        assert result.exit_code == 2
        assert "--toys leaves the model out" in result.stderr
        assert more[1] in result.stderr


def test_what_only_transformers_has_is_refused_where_it_does_not_run_the_model(run: Any) -> None:
    """A type of weights that nothing would have would be tested by nobody."""
    result = run("audit", "--dtype", "float16")
    assert result.exit_code == 2
    assert "dtype = float16 is for the transformers target" in result.stderr


def test_a_model_that_is_not_there_ends_with_3(run: Any) -> None:
    """Nothing could start."""
    result = run("audit", "-m", "missing.gguf")
    assert (result.exit_code, result.stdout) == (3, "")


@pytest.mark.parametrize("finds", [False, True])
def test_ctrl_c_prints_what_was_tested(
    run: Any, monkeypatch: pytest.MonkeyPatch, finds: bool
) -> None:
    """And what was left, with the exit code of an interruption, or of what was found."""

    def run_audit(*, is_over: Callable[[], bool], **_: Any) -> Certificate:
        assert not is_over()
        signal.raise_signal(signal.SIGINT)
        assert is_over()
        return Certificate(left=["rows", "mutants"], basics=["a wrong coin"] * finds)

    monkeypatch.setattr(forerun.audit, "run_audit", run_audit)
    monkeypatch.delenv("FORERUN_MODEL")
    result = run("audit", "--toys")
    assert result.exit_code == (1 if finds else 130)
    assert result.stdout.startswith("INTERRUPTED before the end.")
    assert "What was interrupted, or still to come: rows, mutants." in result.stdout
    assert "0 " not in result.stdout.partition("Not tested")[0]
    record = json.loads(run("audit", "--toys", "--json").stdout)
    assert (record["interrupted"], record["ok"]) == (True, False)
