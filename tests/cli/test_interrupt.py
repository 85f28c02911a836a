from __future__ import annotations

import signal
from pathlib import Path

import pytest

import forerun
from forerun.cli.generate import Printer, run_stream
from forerun.cli.interrupt import patient
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
