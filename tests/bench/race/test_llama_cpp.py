"""llama.cpp's engine in the race, against a double of its library and against the library."""

# ruff: noqa: D102 (the library's own names say what the double does)

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench.test_llama_cpp import VOCAB, Library
from forerun.api import load
from forerun.bench import llama_engine
from forerun.bench.race import llama_cpp
from forerun.bench.race.llama_cpp import LlamaCpp, requantised
from forerun.bench.race.peers import PeerKit
from forerun.errors import StartError

END = 9
KIT = PeerKit("x.gguf", 2, 40, (END,), "cache")
PLAIN: frozenset[str] = frozenset()
LOOKUP = frozenset({"lookup"})
HAS_LLAMA = importlib.util.find_spec("llama_cpp") is not None


class Double(Library):
    """Follows each token with the next; knows an end, and draws the token after the next."""

    LLAMA_FTYPE_MOSTLY_Q4_0 = 2

    def __init__(self) -> None:
        super().__init__()
        self.chains: list[list[Any]] = []
        self.quantised: list[tuple[bytes, Any]] = []
        self.code = 0

    def llama_vocab_is_eog(self, vocab: str, token: int) -> bool:
        return token == END

    def llama_sampler_chain_default_params(self) -> None:
        return None

    def llama_sampler_chain_init(self, parameters: None) -> list[Any]:
        self.chains.append([])
        return self.chains[-1]

    def llama_sampler_chain_add(self, chain: list[Any], one: Any) -> None:
        chain.append(one)

    def llama_sampler_init_temp(self, temperature: float) -> tuple[str, float]:
        return "temp", temperature

    def llama_sampler_init_dist(self, seed: int) -> tuple[str, int]:
        return "dist", seed

    def llama_sampler_sample(self, chain: list[Any], context: int, row: int) -> int:
        assert len(chain) == 2
        return (int(self.batches[-1][1][row][0]) + 2) % VOCAB

    def llama_sampler_free(self, chain: list[Any]) -> None:
        chain.append("freed")

    def llama_model_quantize_default_params(self) -> SimpleNamespace:
        return SimpleNamespace()

    def llama_model_quantize(self, path: bytes, to: bytes, parameters: Any) -> int:
        self.quantised.append((path, parameters))
        if self.code == 0:
            Path(to.decode()).write_bytes(b"GGUF")
        return self.code


class FirstMatch:
    """Guesses what followed the last token where it stood before."""

    def __init__(self, num_pred_tokens: int) -> None:
        self.count = num_pred_tokens

    def __call__(self, tokens: Any) -> Any:
        places = [i for i in range(len(tokens) - 1) if tokens[i] == tokens[-1]]
        return np.array(tokens[places[0] + 1 :][: self.count] if places else [], np.intc)


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Double:
    """The double, in the library's place."""
    lib = Double()
    monkeypatch.setattr(llama_engine, "library", lambda: lib)
    monkeypatch.setattr(llama_cpp, "library", lambda: lib)
    monkeypatch.setattr(llama_engine.LlamaEngine, "describe", lambda self: {"version": "0"})
    monkeypatch.setattr(llama_cpp.ctypes, "byref", lambda parameters: parameters)
    speculative = ModuleType("llama_cpp.llama_speculative")
    speculative.LlamaPromptLookupDecoding = FirstMatch  # type: ignore[attr-defined]
    monkeypatch.setitem(__import__("sys").modules, "llama_cpp", ModuleType("llama_cpp"))
    monkeypatch.setitem(__import__("sys").modules, speculative.__name__, speculative)
    return lib


@pytest.mark.parametrize("modes", [PLAIN, LOOKUP])
@pytest.mark.parametrize(
    ("prompt", "most", "text"),
    [
        ([3], 4, [4, 5, 6, 7]),
        ([3], 9, [4, 5, 6, 7, 8, 9]),
        ([1, 2, 3, 4, 1], 6, [2, 3, 4, 5, 6, 7]),
        ([5, 1, 5], 3, [6, 7, 8]),
        ([10, 0, 1, 2, 3, 10], 1, [0]),
        ([6, 7, 8, 9, 6], 9, [7, 8, 9]),
        ([3], 0, []),
    ],
)
def test_a_text_is_greedy_and_ends(
    double: Double, modes: frozenset[str], prompt: list[int], most: int, text: list[int]
) -> None:
    """Up to the end token or so many, with lookup as without; the double checks every place.

    Two texts in a row: nothing of the first is left.
    """
    engine = LlamaCpp(KIT, modes)
    for _ in range(2):
        answer = engine.write(prompt, most, 0.0, 0)
        assert answer["token_ids"] == text
        assert answer["seconds"] >= 0


def test_lookup_takes_fewer_passes(double: Double) -> None:
    """Two tokens are drafted at most; what held of each draft is told."""
    prompt = [1, 2, 3, 4, 5, 1]
    plain = LlamaCpp(KIT, PLAIN).write(prompt, 7, 0.0, 0)
    lookup = LlamaCpp(KIT, LOOKUP).write(prompt, 7, 0.0, 0)
    assert lookup["token_ids"] == plain["token_ids"] == [2, 3, 4, 5, 6, 7, 8]
    assert (plain["passes"], plain["drafts"]) == (7, [])
    # 2 of the prompt's pass; 3 4 5 by a draft; "1" after 5 fails and brings 6; then no guess.
    assert lookup["drafts"] == [[2, 2], [2, 0]]
    assert lookup["passes"] == 5
    assert max(len(rows) for _, rows in double.batches[-5:][1:]) == 3


def test_a_draw_is_llama_cpp_s_own(double: Double) -> None:
    """With temperature and seed; the chain is given back."""
    engine = LlamaCpp(KIT, LOOKUP)
    assert engine.write([1], 4, 0.7, 5)["token_ids"] == [3, 5, 7, 9]
    assert double.chains == [[("temp", 0.7), ("dist", 5), "freed"]]


def test_what_it_says_of_itself(double: Double) -> None:
    """File, threads and settings."""
    said = LlamaCpp(KIT._replace(q4_0="given.gguf"), frozenset({"q4_0", "lookup"})).describe()
    assert said["file"] == "given.gguf"
    assert said["same_file"] is False
    assert said["num_pred_tokens"] == 2
    assert LlamaCpp(KIT, PLAIN).describe()["same_file"] is True
    assert [s.n_threads for s in double.settings] == [2, 2]


def test_a_q4_0_file_is_made_once(double: Double, tmp_path: Path) -> None:
    """Of another file another one; a failure leaves nothing behind."""
    model = tmp_path / "model.gguf"
    model.write_bytes(b"1")
    cache = str(tmp_path / "cache")
    made = requantised(str(model), cache, 2)
    assert requantised(str(model), cache, 2) == made
    with pytest.raises(StartError, match="no cache"):
        requantised(str(model), "", 2)
    ((path, parameters),) = double.quantised
    assert path == str(model).encode()
    assert (parameters.ftype, parameters.allow_requantize, parameters.nthread) == (2, True, 2)
    model.write_bytes(b"22")
    assert requantised(str(model), cache, 2) != made
    double.code = 3
    model.write_bytes(b"333")
    with pytest.raises(StartError, match="code 3"):
        requantised(str(model), cache, 2)
    assert len(list((tmp_path / "cache").iterdir())) == 2


@pytest.mark.model
@pytest.mark.skipif(not HAS_LLAMA, reason="llama-cpp-python is missing")
def test_the_library_writes_with_lookup_as_without(tmp_path: Path) -> None:
    """On the default model, which copies what it is given."""
    lm = load("smollm2")
    prompt = list(lm.tokens_of("Repeat these words: the tide is full, the moon lies fair tonight."))
    kit = PeerKit(str(lm.model.path), 1, 128, (2,), str(tmp_path))
    plain, lookup = (LlamaCpp(kit, modes).write(prompt, 24, 0.0, 0) for modes in (PLAIN, LOOKUP))
    assert plain["token_ids"] == lookup["token_ids"]
    assert plain["passes"] == len(plain["token_ids"])
    assert lookup["passes"] < plain["passes"]
