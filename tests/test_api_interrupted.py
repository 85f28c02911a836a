"""Ctrl-C at any moment leaves a model that writes on, and several models leave each other alone."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

import forerun
from forerun.api import LanguageModel
from models.tiny_gguf import Tiny

PROMPT = [5 + i % 7 for i in range(500)]
OPTIONS: dict[str, Any] = {"max_tokens": 20, "temperature": 1.0, "seed": 3, "drafter": "bigram"}


@pytest.fixture(scope="module", params=["native", "reference"])
def lm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    path = Tiny(context=1024).write(tmp_path_factory.mktemp("interrupted") / "tiny.gguf")
    return forerun.load(path, target=request.param)


def holds_nothing(lm: LanguageModel) -> bool:
    """No request waits or runs, and no sequence is open."""
    return not lm._scheduler.requests and not lm.target._sequences


@pytest.mark.parametrize("method", ["score", "commit"])
@pytest.mark.parametrize("call", range(7))
def test_an_interruption_in_a_pass_leaves_nothing(
    lm: LanguageModel, monkeypatch: pytest.MonkeyPatch, method: str, call: int
) -> None:
    """In any part of a long prefill, and in any round: the next text is as if nothing had been."""
    expected = lm.generate(PROMPT, **OPTIONS).token_ids
    real, calls = getattr(lm.target, method), iter(range(100))

    def interrupt(*given: Any, **named: Any) -> Any:
        if next(calls) == call:
            raise KeyboardInterrupt
        return real(*given, **named)

    with monkeypatch.context() as patched:
        patched.setattr(lm.target, method, interrupt)
        with pytest.raises(KeyboardInterrupt):
            lm.generate(PROMPT, **OPTIONS)
    assert holds_nothing(lm)
    assert lm.generate(PROMPT, **OPTIONS).token_ids == expected


@contextmanager
def ctrl_c_after(seconds: float) -> Iterator[None]:
    """As the terminal does it, at a moment that nobody has chosen."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no such timer")
def test_ctrl_c_at_any_moment_leaves_a_model_that_writes(lm: LanguageModel) -> None:
    """The same text as ever, alone and beside another thread's."""
    expected, random, interrupted = lm.generate(PROMPT, **OPTIONS).token_ids, Random(1), 0
    for _ in range(40):
        try:
            with ctrl_c_after(random.random() / 20 + 1e-4):
                lm.generate(PROMPT, **OPTIONS)
        except KeyboardInterrupt:
            interrupted += 1
        assert not lm._scheduler.requests
    assert interrupted > 0
    assert lm.generate(PROMPT, **OPTIONS).token_ids == expected
    with ThreadPoolExecutor(2) as pool:  # no lock was left held
        found = pool.map(lambda _: lm.generate(PROMPT, **OPTIONS).token_ids, range(4))
        assert set(found) == {expected}


def test_two_models_in_one_process_leave_each_other_alone(tmp_path: Path) -> None:
    """Their texts grow in turns and in four threads; each is what its model writes alone."""
    paths = [Tiny(seed=seed).write(tmp_path / f"{seed}.gguf") for seed in (1, 2)]
    models = [forerun.load(path, target="native", threads=2) for path in (*paths, paths[0])]
    asked: dict[str, Any] = {**OPTIONS, "max_tokens": 30}
    expected = [lm.generate(PROMPT[:50], **asked).token_ids for lm in models]
    assert expected[0] != expected[1]
    assert expected[0] == expected[2]
    streams = [iter(lm.stream(PROMPT[:50], **asked)) for lm in models]
    grown = [tuple(token.token for token in column) for column in zip(*streams, strict=True)]
    assert [tuple(column) for column in zip(*grown, strict=True)] == expected
    begin = threading.Barrier(4)

    def write(number: int) -> bool:
        begin.wait()
        which = number % 3
        found = (models[which].generate(PROMPT[:50], **asked).token_ids for _ in range(5))
        return set(found) == {expected[which]}

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(write, range(4)))
