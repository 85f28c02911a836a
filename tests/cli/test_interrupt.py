from __future__ import annotations

import io
import signal
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import forerun
from forerun.cli.generate import Printer, run_stream
from forerun.cli.interrupt import TERMINATED, patient
from forerun.events import Event, Result, RoundEvent, Stats, TokenEvent


class Interrupting(Printer):
    """Presses Ctrl-C as soon as it hears of a round with several tokens."""

    def __init__(self, presses: int) -> None:
        super().__init__()
        self.heard: list[int] = []
        self.told: Result | None = None
        self._presses = presses

    def hear(self, event: Event) -> None:
        """Note tokens, and interrupt."""
        if isinstance(event, RoundEvent) and event.emitted > 1:
            for _ in range(self._presses):
                signal.raise_signal(signal.SIGINT)
        if isinstance(event, TokenEvent):
            self.heard.append(event.token)

    def end(self, result: Result) -> None:
        """Note the result."""
        self.told = result


def interrupted(tiny: Path, presses: int) -> tuple[Interrupting, Result]:
    lm = forerun.load(str(tiny))
    stream = lm.stream("the then he in", max_tokens=3000, ignore_eos=True, draft_length=8)
    printer = Interrupting(presses)
    return printer, run_stream(stream, printer)


def test_a_round_is_told_to_its_end(tiny: Path) -> None:
    """After Ctrl-C the result holds the tokens that were told, all of them and no more."""
    printer, result = interrupted(tiny, 1)
    assert result.finish_reason == "interrupted"
    assert printer.heard == list(result.token_ids)
    assert printer.told == result
    assert 1 < len(result.token_ids) < 3000


def test_a_second_press_ends_it_at_once(tiny: Path) -> None:
    """Whoever presses again does not wait for the round, and still has a result."""
    printer, result = interrupted(tiny, 2)
    assert result.finish_reason == "interrupted"
    assert printer.told == result
    assert len(printer.heard) < len(result.token_ids)


def test_ctrl_c_is_given_back(tiny: Path) -> None:
    """Afterwards Ctrl-C interrupts as it did before."""
    before = signal.getsignal(signal.SIGINT)
    interrupted(tiny, 1)
    assert signal.getsignal(signal.SIGINT) is before
    with patient() as interruption:
        signal.raise_signal(signal.SIGINT)
        assert interruption.came
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_what_was_held_back_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    """Text that waited for the rest of a stop string stands in the output of a cut text."""
    printer = Printer()
    printer.hear(TokenEvent(0, 0, 0, "ab", "bonus", None, None, 0.0, (), 0))
    result = Result(0, "abc", (0,), "interrupted", "", True, "bitwise", 0, (), Stats())
    printer.end(result)
    assert capsys.readouterr().out == "abc\n"


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("at", [2, 5])
def test_a_long_prompt_is_not_read_to_its_end(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, signum: signal.Signals, at: int
) -> None:
    """The end comes between two of its passes, there is no text, and the model stays usable."""
    lm = forerun.load(str(tiny), threads=1)
    honest, passes = lm.target.score, 0

    def score(*rows: Any, **more: Any) -> Any:
        nonlocal passes
        passes += 1
        if passes == at:
            signal.raise_signal(signum)
        return honest(*rows, **more)

    monkeypatch.setattr(lm.target, "score", score)
    stream = lm.stream([5] * 3000, max_tokens=8)
    printer = Interrupting(0)
    with pytest.raises(SystemExit) if signum == signal.SIGTERM else nullcontext():
        run_stream(stream, printer)
    assert passes == at
    assert stream.result.finish_reason == "interrupted"
    assert stream.result.token_ids == ()
    assert printer.told == stream.result
    monkeypatch.undo()
    assert len(lm.generate([5] * 300, max_tokens=8, ignore_eos=True).token_ids) == 8


def test_the_end_within_what_is_no_loss_comes_at_once() -> None:
    """The first Ctrl-C, too; told to end, the program ends with that code though it was cut."""
    with patient() as interruption:
        with pytest.raises(KeyboardInterrupt), interruption.impatient():
            signal.raise_signal(signal.SIGINT)
        assert interruption.came
    with pytest.raises(SystemExit) as ended, patient() as interruption, interruption.impatient():
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == TERMINATED
    with pytest.raises(KeyboardInterrupt), patient() as interruption, interruption.impatient():
        signal.raise_signal(signal.SIGINT)
    with patient() as interruption:
        assert list(interruption.heard(iter([1, 2]))) == [1, 2]
        assert list(interruption.heard(iter([]))) == []


@pytest.mark.parametrize("watched", [True, False])
def test_a_terminal_is_not_steered_by_a_text(
    monkeypatch: pytest.MonkeyPatch, watched: bool
) -> None:
    """A pipe gets the text as it is; coloured or not, a terminal gets it harmless."""
    monkeypatch.setenv("TERM", "xterm")
    for coloured in (True, False):
        monkeypatch.setattr(sys, "stdout", written := io.StringIO())
        monkeypatch.setattr(written, "isatty", lambda: watched)
        Printer(coloured=coloured).hear(
            TokenEvent(0, 0, 0, "a\x1b]0;b\x07", "bonus", None, None, 0.0, (), 0)
        )
        said = "a\\x1b]0;b\\x07" if watched else "a\x1b]0;b\x07"
        assert said in written.getvalue()
        assert ("\x07" in written.getvalue()) is not watched
