from __future__ import annotations

import json
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

    def run_audit(*, model: Model | None, thorough: bool, progress: Any) -> Certificate:
        asked.append({"model": model, "thorough": thorough})
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
    result = run("audit", "--toys", "-m", "x.gguf")
    assert result.exit_code == 2
    assert "contradict" in result.stderr


def test_a_model_that_is_not_there_ends_with_3(run: Any) -> None:
    """Nothing could start."""
    result = run("audit", "-m", "missing.gguf")
    assert (result.exit_code, result.stdout) == (3, "")
