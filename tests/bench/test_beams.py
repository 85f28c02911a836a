"""The script that counts what beam search costs: its report on a tiny model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from models.tiny_gguf import Tiny

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "beams.py"


def test_the_script_counts_every_way(tmp_path: Path) -> None:
    """Passes and rows of each way, over as many prompts as were asked for."""
    path = Tiny(layers=2).write(tmp_path / "tiny.gguf")
    prompts = tmp_path / "prompts.jsonl"
    lines = [{"question_id": i, "category": "qa", "turns": ["abcd"]} for i in range(3)]
    prompts.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    command = [sys.executable, str(SCRIPT), "--prompts", str(prompts), "--model", str(path)]
    command += ["--drafters", "recycle", "--limit", "2", "--max-tokens", "5", "--repeats", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["prompts"] == 2
    assert report["ways"]["plain"]["tokens_per_pass"] == 1
    assert report["ways"]["plain"]["rows_over_plain"] == 1
    for found in report["ways"].values():
        assert 1 <= found["low"] <= found["tokens_per_pass"] <= found["high"] <= 5
        assert found["seconds"] > 0
    assert report["ways"]["recycle, 3 levels, 1x"]["rows_over_plain"] > 1
