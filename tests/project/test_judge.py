"""The judge group's installer: what it refuses, decided from pip's own report."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from project.script import loaded


@pytest.fixture
def judge() -> ModuleType:
    return loaded("tools/judge.py")


def report(*packages: str) -> dict[str, Any]:
    """An installation report, as pip writes it, of `name==version` packages."""
    pairs = [package.split("==") for package in packages]
    return {"install": [{"metadata": {"name": name, "version": v}} for name, v in pairs]}


@pytest.mark.parametrize(
    "package",
    [
        "nvidia-cublas-cu12==12.8",
        "nvidia_cudnn_cu13==9.1",
        "cuda-bindings==13.0",
        "triton==3.5",
        "torch==2.13.0+cu130",
        "torch==2.13.0+rocm7.1",
    ],
)
def test_an_accelerator_build_is_recognised(judge: ModuleType, package: str) -> None:
    """By torch's own version, or by what it pulls in: the bare version does not tell."""
    name = package.split("==")[0].replace("_", "-")
    [found] = judge.accelerated(report("torch==2.13.0", "transformers==5.1", package))
    assert found.startswith(name)


def test_a_cpu_build_is_recognised(judge: ModuleType) -> None:
    """Neither the local CPU label nor the bare version of a platform without CUDA is refused."""
    assert judge.accelerated(report("torch==2.13.0+cpu", "transformers==5.1", "numpy==2.4")) == []
    assert judge.accelerated(report("torch==2.13.0", "sympy==1.14")) == []
    assert judge.accelerated(report()) == []


@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 1)])
def test_a_refusal_is_loud_and_fails_in_ci_only(
    judge: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    ci: str,
    code: int,
) -> None:
    """Refused, nothing is installed, no stamp is left, and stderr says what to do."""
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(judge, "reason_to_refuse", lambda: "it would download triton 3.5.")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("installed"))
    stamp = tmp_path / "stamp"
    assert judge.main(str(stamp)) == code
    assert not stamp.exists()
    assert "triton 3.5" in capsys.readouterr().err


def test_what_is_not_refused_is_installed(
    judge: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The group is installed before the stamp says so."""
    commands: list[Any] = []
    monkeypatch.setattr(judge, "reason_to_refuse", lambda: "")
    monkeypatch.setattr(subprocess, "run", lambda command, **_: commands.append(command))
    stamp = tmp_path / "stamp"
    assert judge.main(str(stamp)) == 0
    assert stamp.exists()
    assert commands == [judge.PIP]
