"""`forerun generate --beams`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import forerun

PROMPT = "the then he in"
ASK = ("--beams", "3", "--max-tokens", "8")


@pytest.fixture(scope="module")
def lm(tiny: Path) -> forerun.LanguageModel:
    return forerun.load(str(tiny))


def test_the_best_beam_and_nothing_else_is_on_stdout(run: Any, lm: forerun.LanguageModel) -> None:
    """Stdout is the library's best text and one line end."""
    result = run("generate", PROMPT, *ASK, "--drafter", "lookup", "--draft-length", "2")
    assert result.exit_code == 0
    assert result.stdout == lm.beam_search(PROMPT, beams=3, max_tokens=8).beams[0].text + "\n"
    assert result.stderr == ""


def test_json_tells_all_beams_and_what_they_cost(run: Any, lm: forerun.LanguageModel) -> None:
    """One line: the beams, best first, and the statistics."""
    result = run("generate", PROMPT, *ASK, "--json", "--length-penalty", "0.5")
    (line,) = result.stdout.splitlines()
    told = json.loads(line)
    found = lm.beam_search(PROMPT, beams=3, max_tokens=8, length_penalty=0.5)
    assert told["event"] == "beams"
    assert [beam["score"] for beam in told["beams"]] == [beam.score for beam in found.beams]
    assert told["stats"]["steps"] == 8
    assert told["stats"]["tokens_per_pass"] >= 1
    assert told["guarantee"] == "bitwise"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--beams", "0"), "beams = '0'"),
        (("--beams", "3", "--temperature", "1"), "temperature = 1.0 does not go with beams"),
        (("--beams", "3", "--show"), "--show follows a text"),
        (("--beams", "3", "--compare"), "--compare follows a text"),
        (("--length-penalty", "2"), "is for beam search; give beams"),
    ],
)
def test_what_cannot_be_is_wrong_use(run: Any, arguments: tuple[str, ...], told: str) -> None:
    """Exit code 2, and one line that says why."""
    result = run("generate", PROMPT, *arguments)
    assert result.exit_code == 2
    assert told in result.stderr
    assert result.stdout == ""
