"""How far laws are from a reference's: against hand-made laws, and the script on a tiny model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from forerun.bench.fidelity import Distance, as_texts, compare, logits_of, read_prompts
from forerun.errors import PromptError
from forerun.models.model import load_model
from forerun.targets.reference import ReferenceTarget
from models.tiny_gguf import Tiny

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "fidelity.py"


def logits(*laws: list[float]) -> np.ndarray:
    """Logits of these laws, each row shifted by another constant."""
    shifts = np.arange(len(laws), dtype=np.float32)[:, np.newaxis]
    return np.log(np.array(laws, np.float32)) + 10 * shifts


def test_the_divergence_is_kullback_and_leiblers() -> None:
    """From the first law to the second, in nats; a shift of the logits is none."""
    distance = Distance()
    distance.add(logits([0.5, 0.5], [0.9, 0.1]), logits([0.25, 0.75], [0.9, 0.1]) - 3)
    found = distance.as_json()
    expected = 0.5 * np.log(2) + 0.5 * np.log(2 / 3)
    assert found["mean_kl"] == pytest.approx(expected / 2, rel=1e-6)
    assert found["largest_kl"] == pytest.approx(expected, rel=1e-6)
    assert found["flips"] == 1


def test_many_positions_are_all_counted() -> None:
    """More than are compared at a time."""
    distance = Distance()
    distance.add(np.zeros((50, 3), np.float32), np.eye(3, dtype=np.float32)[np.arange(50) % 3])
    assert distance.as_json()["flips"] == 50 - 17
    assert distance.as_json()["median_kl"] == distance.as_json()["largest_kl"]


def test_a_context_counts_once() -> None:
    """Of a later text, the positions behind what an earlier one began with too."""
    texts = as_texts([[1, 2, 3], [1, 2, 4, 3], [2], [1, 2, 3]])
    assert [text.repeated for text in texts] == [0, 2, 0, 3]
    right, wrong = logits([0.5, 0.5], [0.5, 0.5]), logits([0.5, 0.5], [0.1, 0.9])
    distance = Distance()
    distance.add(right, right)
    distance.add(right[::-1], wrong[::-1], repeated=1)
    assert distance.as_json()["mean_kl"] == 0
    assert distance.as_json()["mean_kl_repeats_counted"] > 0


def test_a_target_is_at_no_distance_from_itself(tmp_path: Path) -> None:
    """And leaves no sequence behind; the progress is told."""
    target = ReferenceTarget(load_model(Tiny().write(tmp_path / "tiny.gguf")))
    told: list[float] = []
    score = logits_of(target)
    texts = as_texts([[1, 2, 3], [4, 5]])
    found = compare(score, {"itself": score}, texts, lambda part, share: told.append(share))
    assert found["itself"].as_json()["largest_kl"] == 0
    assert told == [0, 0.5]
    assert target.open() == 4


def test_prompts_are_a_text_or_the_first_of_turns(tmp_path: Path) -> None:
    """The first lines of the file, without empty ones."""
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "a"}\n\n{"turns": ["b", "c"]}\n{"prompt": "d"}\n', "utf-8")
    assert read_prompts(path, 2) == ["a", "b"]


@pytest.mark.parametrize("text", ["", "x", "[]", '{"turns": []}', '{"text": "a"}', '{"prompt": 1}'])
def test_a_file_without_prompts_is_refused(tmp_path: Path, text: str) -> None:
    """Empty, no JSON, or other JSON."""
    path = tmp_path / "prompts.jsonl"
    path.write_text(text, "utf-8")
    with pytest.raises(PromptError, match=r"is no file of prompts"):
        read_prompts(path, 2)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script."""
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_the_script_measures_a_tiny_model(tmp_path: Path) -> None:
    """Float weights: both sides are near the reference, 32 bits nearer than 16."""
    model = Tiny().write(tmp_path / "tiny.gguf")
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "abcd"}\n{"prompt": "abde"}\n', "utf-8")
    done = run("--prompts", str(prompts), "--model", str(model), "--tokens", "3", "--threads", "1")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    sides = report["sides"]
    assert report["texts"] == 2
    assert report["positions"] + report["repeated"] == 6
    assert report["repeated"] >= 2
    assert 0 < sides["native, 32 bits"]["mean_kl"] < sides["native, 16 bits"]["mean_kl"] < 1e-6
    assert len(sides["native, 16 bits"]["mean_kl_of_each"]) == 2


def test_the_script_says_what_is_wrong(tmp_path: Path) -> None:
    """A line and an exit code; no traceback."""
    done = run("--prompts", str(tmp_path / "none.jsonl"), "--model", str(tmp_path / "none.gguf"))
    assert done.returncode == 3
    assert "none.gguf" in done.stderr.replace("\n", "")
    assert "Traceback" not in done.stderr
    assert run("--prompts", "x", "--peer", "y").returncode == 2
