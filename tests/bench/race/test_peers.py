"""Peers in processes of their own: what they answer, and every way in which they may end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bench.race.fakes import EchoEngine
from forerun.bench.race.peers import RACE_PEERS, PeerError, PeerKit, PeerSide
from forerun.bench.race.protocol import Job, Side

KIT = PeerKit("x.gguf", 2, 100, (2, 0), "cache")
JOB = Job((5, 6, 7), 2, 0.5, 2**40 + 3)
Open = Callable[..., PeerSide]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens fake peers, and closes them."""
    sides: list[PeerSide] = []

    def opened(name: str = "fake", home: str = "bench.race.fakes:EchoEngine", **more: Any) -> Any:
        monkeypatch.setitem(RACE_PEERS, name, home)
        sides.append(PeerSide(name, KIT, **more))
        return sides[-1]

    yield opened
    for side in sides:
        side.close()
        side.close()


def job(first: int) -> Job:
    """A prompt that makes the engine misbehave."""
    return Job((first, 1), 2, 0.0, 0)


def test_a_peer_writes_in_its_own_process(opened: Open) -> None:
    """With the kit, its modes and as many threads as ours; what it prints is no answer."""
    side = opened("fake:lookup:q4_0")
    assert isinstance(side, Side)
    assert not side.is_ours
    assert side.describe() == {
        **KIT._asdict(), "ends": [2, 0], "modes": ["lookup", "q4_0"], "OMP_NUM_THREADS": "2"
    }  # fmt: skip
    written = side.write(JOB)
    assert written.token_ids == (5, 6)
    assert (written.first_seconds, written.seconds, written.later) == (0.5, 2.0, 1)
    assert written.passes == 2
    assert written.acceptance is not None
    assert written.acceptance.as_json()["by_position"] == [[2, 2], [2, 1], [1, 0]]


def test_a_peer_that_is_not_installed_says_how_it_is(opened: Open) -> None:
    """Which module is missing, and the command."""
    with pytest.raises(PeerError, match=r"forerun_of_nobody.*-m pip install 'forerun\[peers\]'"):
        opened("fake:missing")


def test_sampling_is_passed_on(opened: Open) -> None:
    """Temperature, and as much of the seed as engines take."""
    told = opened().write(Job((EchoEngine.TELL,), 2, 0.5, 2**40 + 3))
    assert told.token_ids == (3, 5)


def test_ctrl_c_does_not_reach_a_peer(opened: Open) -> None:
    """A terminal sends it to all of a group."""
    assert os.getpgid(opened()._process.pid) != os.getpgid(0)


def test_an_error_in_a_text_is_told_and_no_end(opened: Open) -> None:
    """The next text can still be asked."""
    side = opened()
    with pytest.raises(PeerError, match="RuntimeError: out of ideas"):
        side.write(job(EchoEngine.RAISE))
    assert side.write(JOB).token_ids == (5, 6)


@pytest.mark.parametrize("first", [EchoEngine.SWAMP, EchoEngine.GARBAGE])
def test_an_answer_that_is_no_text(opened: Open, first: int) -> None:
    """More tokens than asked for, or none at all."""
    with pytest.raises(PeerError, match="no text"):
        opened().write(job(first))


@pytest.mark.parametrize("first", [EchoEngine.LIST, EchoEngine.ENDLESS, EchoEngine.NOT_A_NUMBER])
def test_an_answer_that_no_report_can_hold(opened: Open, first: int) -> None:
    """The race would end with it, and its report be lost; the peer goes on."""
    side = opened()
    with pytest.raises(PeerError, match="It answered b"):
        side.write(job(first))
    assert side.write(JOB).token_ids == (5, 6)


def test_a_crash_is_told_with_its_last_words(opened: Open) -> None:
    """The signal, and the last line of what it said; afterwards it stays gone."""
    side = opened()
    for _ in range(2):
        with pytest.raises(PeerError) as error:
            side.write(job(EchoEngine.CRASH))
        assert str(signal.strsignal(signal.SIGABRT)) in str(error.value)
        assert "segments and faults" in str(error.value)
        assert "long story" not in str(error.value)


def test_a_peer_that_hangs_is_ended(opened: Open) -> None:
    """After its patience."""
    side = opened(patience=(60.0, 0.2))
    with pytest.raises(PeerError, match="no answer within 0 seconds"):
        side.write(job(EchoEngine.HANG))
    assert side._process.poll() is not None
    with pytest.raises(PeerError):
        side.write(JOB)


@pytest.mark.parametrize(
    ("name", "home", "said"),
    [
        ("fake:closed", "bench.race.fakes:EchoEngine", "RuntimeError: out of order"),
        ("fake", "bench.nowhere:Engine", "ModuleNotFoundError"),
        ("fake", "bench.race.fakes:Nobody", "AttributeError"),
    ],
)
def test_a_peer_that_cannot_be_opened(opened: Open, name: str, home: str, said: str) -> None:
    """Told at once, and no process is left."""
    with pytest.raises(PeerError, match=said):
        opened(name, home)


def test_its_work_is_counted_as_ours(opened: Open) -> None:
    """Its process has used some time; a closed one's is the parent's to count."""
    side = opened()
    assert side.cpu_seconds() > 0
    side.close()
    assert side.cpu_seconds() == 0
