"""The script that races transformers' ways of drafting against ours: its report on a tiny model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from models.tiny_gguf import Tiny

pytestmark = pytest.mark.judge

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "assisted.py"
THEIRS = ["generate", "generate, prompt lookup", "generate, assisted"]
OURS = ["forerun, lookup", "forerun, model", "forerun, early_exit", "forerun, auto"]


def test_all_sides_write_the_same_and_steps_add_up(tmp_path: Path) -> None:
    """Each side's texts, times and ratios; a second step's are added to the first one's."""
    path = Tiny(layers=3).write(tmp_path / "tiny.gguf")
    prompts = tmp_path / "prompts.jsonl"
    lines = [{"question_id": i, "category": "qa", "turns": ["abcd" * i]} for i in range(1, 5)]
    prompts.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    command = [sys.executable, str(SCRIPT), "--prompts", str(prompts), "--model", str(path)]
    command += ["--layers", "1", "--max-tokens", "6", "--keep", str(tmp_path / "samples.jsonl")]
    for step in (["--count", "2", "--batch", "0"], ["--start", "2", "--batch", "2"]):
        done = subprocess.run(
            [*command, *step], capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert sorted(found["sides"]) == sorted([*THEIRS, *OURS])
    for side, own in found["sides"].items():
        assert (own["texts"], own["same"], own["gaps"]) == (4, 4, []), side
        assert own["seconds"] > 0
        assert set(own["times_as_fast_as"]) == {*THEIRS} - {side}
        for ratio in own["times_as_fast_as"].values():
            assert ratio["low"] <= ratio["value"] <= ratio["high"]
    assert set(found["batches"]) == {"batch of 1", "batch of 2"}
    assert all(own["same"] == own["texts"] == 1 for own in found["batches"].values())
    assert "forerun, early_exit" in done.stderr
