"""A process may be forked at any time: the child's locks are free, and its models write."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from random import Random

import pytest

import forerun
from forerun.api import LanguageModel
from forerun.fork_lock import fork_lock
from models.tiny_gguf import Tiny

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

PROMPT = [5, 6, 7, 5, 6, 7, 5, 6]
OPTIONS = {"max_tokens": 30, "temperature": 1.0, "seed": 3}


@pytest.fixture(scope="module", params=["native", "reference"])
def lm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    path = Tiny(layers=3).write(tmp_path_factory.mktemp("fork") / "tiny.gguf")
    threads = 2 if request.param == "native" else None
    return forerun.load(path, target=request.param, threads=threads)


def in_child(ask: Callable[[], bool]) -> bool:
    """What a forked process answers; one that hangs is ended, and that is no."""
    child = os.fork()
    if child == 0:
        answer = False
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(60)
            answer = ask()
        finally:
            os._exit(0 if answer else 1)
    return os.waitpid(child, 0)[1] == 0


@pytest.fixture
def busy(lm: LanguageModel) -> Iterator[None]:
    """Another thread writes one text after the other."""
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            lm.generate(PROMPT, **OPTIONS)

    thread = threading.Thread(target=write)
    thread.start()
    yield
    stop.set()
    thread.join()


def test_a_fork_after_load_writes_the_same(lm: LanguageModel) -> None:
    """In the child, in a child of the child, and in the parent afterwards."""
    expected = lm.generate(PROMPT, **OPTIONS).token_ids

    def is_same() -> bool:
        return lm.generate(PROMPT, **OPTIONS).token_ids == expected

    assert in_child(lambda: is_same() and in_child(is_same))
    assert is_same()


@pytest.mark.usefixtures("busy")
def test_a_fork_while_another_thread_writes(lm: LanguageModel) -> None:
    """Wherever the other thread's round is, the child's models are whole, and nobody waits."""
    expected = lm.generate(PROMPT, **OPTIONS).token_ids
    random = Random(0)
    for _ in range(12):
        threading.Event().wait(random.random() / 100)
        assert in_child(lambda: lm.generate(PROMPT, **OPTIONS).token_ids == expected)


def test_texts_under_way_go_on_in_the_parent_alone(lm: LanguageModel) -> None:
    """The child's copy ends as interrupted, costs it no pass, and keeps what it had."""
    expected = lm.generate(PROMPT, **OPTIONS).token_ids
    lm.forget()  # or one round would write it all
    stream = lm.stream(PROMPT, **OPTIONS)
    tokens = iter(stream)
    first = next(tokens).token

    def ask() -> bool:
        other = lm.generate(PROMPT, **OPTIONS).token_ids == expected
        kept = stream.result
        alone = not lm._scheduler.requests
        ended = (kept.finish_reason, kept.token_ids) == ("interrupted", begun)
        return other and alone and ended and not list(tokens)[len(begun) - 1 :]

    begun = stream.result.token_ids
    assert begun[0] == first
    assert in_child(ask)
    assert (first, *(token.token for token in tokens)) == expected


def test_a_fork_waits_for_who_holds_a_lock() -> None:
    """And for locks that are made meanwhile; in the child all of them are free."""
    held, released = threading.Event(), threading.Event()
    lock = fork_lock(0)
    made: list[threading.RLock] = []

    def hold() -> None:
        with lock:
            held.set()
            threading.Event().wait(0.2)
            made.append(fork_lock(1))
            with made[0]:
                released.set()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()

    def ask() -> bool:
        was_released = released.is_set()
        with lock, made[0]:
            return was_released

    assert in_child(ask)
    thread.join()
    with lock, made[0]:
        pass


def test_who_holds_a_lock_may_fork() -> None:
    """The child's only thread holds it too, and gives it back."""
    lock = fork_lock(0)

    def free_again() -> bool:
        lock.release()
        taken: list[bool] = []
        thread = threading.Thread(target=lambda: taken.append(lock.acquire(timeout=30)))
        thread.start()
        thread.join()
        return taken == [True]

    lock.acquire()
    assert in_child(free_again)
    lock.release()
