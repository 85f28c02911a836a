"""The script that compares rules on a head: what blind means, and its report on a tiny model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import forerun
from drafters.loop import Text
from forerun.targets.toy import ToyTarget
from models.random_head import random_head
from models.tiny_gguf import Tiny
from project.script import loaded


@pytest.fixture(scope="module")
def script() -> Any:
    """The script, as a module."""
    return loaded("benchmarks/rules.py")


def test_blind_is_without_the_noise_and_nothing_else(script: Any) -> None:
    """The head is asked for the same text, size and warp."""
    seen: list[Any] = []

    class Spy:
        layers = (1,)
        open = see = fork = rollback = free = observe = None

        def draft(self, requests: list[Any]) -> list[Any]:
            seen.extend(requests)
            return []

    request = Text(1, (1, 2), ToyTarget.random(5, 0, 1)).request()
    assert request.noise is not None
    script.Blind(Spy()).draft([request])
    (blind,) = seen
    assert blind.noise is None
    names = set(request.__dataclass_fields__) - {"noise"}
    assert all(getattr(blind, name) == getattr(request, name) for name in names)


def test_the_script_counts_every_way(script: Any, tmp_path: Path) -> None:
    """A value within its interval for each, of as many prompts as were asked for."""
    path = Tiny(layers=3).write(tmp_path / "tiny.gguf")
    random_head(tmp_path / "head.gguf", forerun.load(path).model)
    prompts = tmp_path / "prompts.jsonl"
    lines = [{"question_id": i, "category": "qa", "turns": ["abcd"]} for i in range(3)]
    prompts.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    command = [
        sys.executable,
        script.__file__,
        "--prompts",
        str(prompts),
        "--model",
        str(path),
    ]
    command += ["--head", str(tmp_path / "head.gguf"), "--temperatures", "1", "--limit", "2"]
    done = subprocess.run(
        [*command, "--max-tokens", "4"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["prompts"] == 2
    assert set(report["tokens_per_pass"]["1.0"]) == {way.name for way in script._WAYS}
    for found in report["tokens_per_pass"]["1.0"].values():
        assert 1 <= found["low"] <= found["value"] <= found["high"] <= 4
