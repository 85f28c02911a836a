"""transformers' engine, over a tiny folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from forerun.bench.race.peers import PeerKit
from forerun.bench.race.transformers import Transformers
from models.tiny_folder import TinyFolder

pytestmark = pytest.mark.judge

PROMPT = [5, 6, 7, 5, 6, 7, 5, 6]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TinyFolder().write(tmp_path_factory.mktemp("folder") / "tiny")


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("modes", [frozenset(), frozenset({"lookup"})])
def test_it_writes_so_many_tokens(folder: Path, modes: frozenset[str], temperature: float) -> None:
    """Without the prompt; with its times; none if none are asked for."""
    engine = Transformers(PeerKit(str(folder), 1, 100, (), "cache"), modes)
    answer = engine.write(PROMPT, 12, temperature, 3)
    assert len(answer["token_ids"]) == 12
    assert answer["first_seconds"] > 0
    assert answer["seconds"] > 0
    assert engine.write(PROMPT, 12, temperature, 3)["token_ids"] == answer["token_ids"]
    assert engine.write(PROMPT, 0, temperature, 3)["token_ids"] == []
    said = engine.describe()
    assert (said["threads"], said["weights"]) == (1, "bfloat16")
    assert ("prompt_lookup_num_tokens" in said) == bool(modes)


def test_a_text_ends_at_our_end_tokens(folder: Path) -> None:
    """Whatever its own configuration holds for them."""
    free = Transformers(PeerKit(str(folder), 1, 100, (), "cache"), frozenset())
    tokens = free.write(PROMPT, 12, 0.0, 0)["token_ids"]
    end = tokens[3]
    bound = Transformers(PeerKit(str(folder), 1, 100, (end,), "cache"), frozenset())
    assert bound.write(PROMPT, 12, 0.0, 0)["token_ids"] == tokens[: tokens.index(end) + 1]


def test_a_gguf_file_needs_accelerate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told as what is missing, not as what transformers makes of it."""
    monkeypatch.setitem(sys.modules, "accelerate", None)
    path = tmp_path / "x.gguf"
    path.touch()
    with pytest.raises(ImportError, match="accelerate"):
        Transformers(PeerKit(str(path), 1, 100, (), "cache"), frozenset())
