"""The peer llama.cpp against a double of its library, and against the library where it is."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from forerun.api import load
from forerun.bench import llama_engine
from forerun.bench.llama_cpp import LlamaCpp
from forerun.bench.sides import Side
from forerun.errors import ForerunError, StartError

VOCAB = 11


class Library:
    """Remembers each decoded batch; the likeliest token is the last one's follower."""

    LLAMA_FLASH_ATTN_TYPE_ENABLED = 1

    def __init__(self) -> None:
        self.batches: list[tuple[int, list[tuple[int, int, bool]]]] = []
        self.lengths: dict[int, int] = {}
        self.settings: list[SimpleNamespace] = []
        self.freed: list[str] = []
        self.fails = False
        self.has_model = True

    def llama_log_callback(self, function: Any) -> Any:
        """Return the function itself."""
        return function

    def llama_log_set(self, function: Any, data: Any) -> None:
        """Keep who listens."""
        self.listener = function

    def llama_backend_init(self) -> None:
        """Do nothing."""

    def llama_model_default_params(self) -> SimpleNamespace:
        """Return what may be set."""
        return SimpleNamespace()

    def llama_context_default_params(self) -> SimpleNamespace:
        """Return what may be set."""
        return SimpleNamespace()

    def llama_model_load_from_file(self, path: bytes, parameters: Any) -> Any:
        """Say two things, and return a model or nothing."""
        assert parameters.n_gpu_layers == 0
        self.listener(2, b"reading", None)
        self.listener(4, b"no magic\n", None)
        self.listener(4, b"failed", None)
        return "model" if self.has_model else None

    def llama_model_get_vocab(self, model: Any) -> str:
        """Return a name."""
        return "vocab"

    def llama_vocab_n_tokens(self, vocab: Any) -> int:
        """Return how many tokens there are."""
        return VOCAB

    def llama_init_from_model(self, model: Any, parameters: SimpleNamespace) -> int:
        """Return a number, and keep what was set."""
        self.settings.append(parameters)
        self.lengths[len(self.settings)] = 0
        return len(self.settings)

    def llama_batch_init(self, tokens: int, embedding: int, sequences: int) -> SimpleNamespace:
        """Return empty lists."""
        lists = {name: [None] * tokens for name in ("token", "pos", "n_seq_id", "logits")}
        return SimpleNamespace(n_tokens=0, seq_id=[[None] for _ in range(tokens)], **lists)

    def llama_decode(self, context: int, batch: SimpleNamespace) -> int:
        """Keep the rows, which must follow what the context holds."""
        if self.fails:
            self.listener(4, b"no room", None)
            return 1
        count = batch.n_tokens
        rows = list(zip(batch.token[:count], batch.pos[:count], batch.logits[:count], strict=True))
        assert [place for _, place, _ in rows] == list(
            range(self.lengths[context], self.lengths[context] + count)
        )
        assert batch.n_seq_id[:count] == [1] * count
        assert batch.seq_id[:count] == [[0]] * count
        self.lengths[context] += count
        self.batches.append((context, rows))
        return 0

    def llama_get_logits(self, context: int) -> None:
        """Do nothing."""

    def llama_get_logits_ith(self, context: int, row: int) -> Any:
        """Return logits that favour the follower of that row's token."""
        logits = np.zeros(VOCAB, np.float32)
        logits[(self.batches[-1][1][row][0] + 1) % VOCAB] = 1
        self.kept = logits
        return np.ctypeslib.as_ctypes(logits)

    def llama_get_memory(self, context: int) -> int:
        """Return the context itself."""
        return context

    def llama_memory_seq_rm(self, memory: int, sequence: int, start: int, end: int) -> bool:
        """Shorten what the context holds."""
        assert (sequence, end) == (0, -1)
        self.lengths[memory] = min(self.lengths[memory], start)
        return True

    def llama_batch_free(self, batch: Any) -> None:
        """Take note."""
        self.freed.append("batch")

    def llama_free(self, context: int) -> None:
        """Take note."""
        self.freed.append(f"context {context}")

    def llama_model_free(self, model: Any) -> None:
        """Take note."""
        self.freed.append(model)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    """The double, in the library's place."""
    double = Library()
    monkeypatch.setattr(llama_engine, "library", lambda: double)
    return double


@pytest.fixture
def peer(library: Library) -> Iterator[LlamaCpp]:
    """A peer with a context of three tokens."""
    peer = LlamaCpp("x.gguf", 2, [7, 8, 9], 4, 5)
    library.batches.clear()
    yield peer
    peer.close()


def test_it_is_a_side(peer: LlamaCpp) -> None:
    """With all that is asked of one."""
    assert isinstance(peer, Side)


def test_its_settings_are_those_for_speed(peer: LlamaCpp, library: Library) -> None:
    """The threads asked for, flash attention, and room for what is timed."""
    for settings in library.settings:
        assert settings.n_threads == settings.n_threads_batch == 2
        assert settings.flash_attn_type == 1
        assert settings.n_ctx == settings.n_batch >= 3 + 4 + 1


def test_a_pass_is_one_batch_with_all_logits(peer: LlamaCpp, library: Library) -> None:
    """Behind the context, which is as it was afterwards."""
    for _ in range(2):
        assert peer.time_pass([1, 2, 3]) >= 0
        assert library.batches.pop() == (1, [(1, 3, True), (2, 4, True), (3, 5, True)])
        assert library.lengths[1] == 3


def test_a_prompt_is_one_batch_of_its_own(peer: LlamaCpp, library: Library) -> None:
    """In a context without the other's tokens, with the last one's logits."""
    for _ in range(2):
        assert peer.time_prefill([4, 5]) >= 0
        assert library.batches.pop() == (2, [(4, 0, False), (5, 1, True)])
        assert library.lengths == {1: 3, 2: 0}


def test_all_logits_of_a_prompt(peer: LlamaCpp, library: Library) -> None:
    """One batch of its own, row by row, then forgotten."""
    for _ in range(2):
        assert peer.logits([4, 9, 5]).argmax(axis=1).tolist() == [5, 10, 6]
        assert library.batches.pop() == (2, [(4, 0, True), (9, 1, True), (5, 2, True)])
        assert library.lengths == {1: 3, 2: 0}


def test_a_text_is_greedy(peer: LlamaCpp, library: Library) -> None:
    """Each token is the likeliest after the one before; so many and one, then forgotten."""
    assert peer.time_decode(3) >= 0
    assert [rows for _, rows in library.batches] == [
        [(token, 3 + token, True)] for token in range(4)
    ]
    assert library.lengths[1] == 3


def test_a_failing_call_is_an_error(peer: LlamaCpp, library: Library) -> None:
    """With its number and what the library said."""
    library.fails = True
    with pytest.raises(ForerunError, match=r"llama_decode returned 1: no room"):
        peer.time_pass([1])


def test_a_file_it_can_t_open(library: Library) -> None:
    """The error says why."""
    library.has_model = False
    with pytest.raises(StartError, match=r"can't open x\.gguf: no magic"):
        LlamaCpp("x.gguf", 2, [7], 4, 5)


def test_all_is_given_back_once(library: Library) -> None:
    """Batch, both contexts, then the model; closing again does nothing."""
    peer = LlamaCpp("x.gguf", 2, [7], 4, 5)
    peer.close()
    peer.close()
    assert library.freed == ["batch", "context 1", "context 2", "model"]


@pytest.mark.model
@pytest.mark.skipif(not importlib.util.find_spec("llama_cpp"), reason="llama-cpp-python is missing")
def test_both_sides_compute_the_same() -> None:
    """On the default model's file, the same greedy text, as far as rounding lets it be."""
    lm = load("smollm2", target="native")
    *context, last = lm.tokens_of("Write a short story about a fox.")
    peer = LlamaCpp(str(lm.model.path), 2, context, 16, 16)
    theirs = [last]
    for i in range(8):
        theirs.append(peer._next(theirs[-1], len(context) + i))
    peer.close()
    ours = lm.generate([*context, last], drafter="none", temperature=0, max_tokens=8)
    assert [token.token for token in ours.tokens] == theirs[1:]
