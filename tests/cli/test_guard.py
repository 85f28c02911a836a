"""What every command leaves behind, however it ends."""

from __future__ import annotations

import errno
import io
import os
import sys
import time
from pathlib import Path

import pytest

from forerun.cli.guard import INTERRUPTED, guarded, last_resort, prepare_streams
from forerun.cli.waiting import counting, pulling, spinner
from forerun.errors import OptionError


class Terminal(io.StringIO):
    """Text that claims to be shown on a terminal."""

    def isatty(self) -> bool:
        """It does."""
        return True


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_the_cursor_is_shown_again(
    monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO]
) -> None:
    """A terminal whose cursor a spinner had just hidden gets it back; a file gets nothing."""
    monkeypatch.setattr(sys, "stderr", written := stream())
    monkeypatch.setenv("TERM", "xterm")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SystemExit) as ended, last_resort():
        raise KeyboardInterrupt
    assert ended.value.code == INTERRUPTED
    assert written.getvalue() == ("\x1b[?25h" if written.isatty() else "")


@pytest.mark.parametrize("columns", ["0", "50"])
def test_a_width_of_zero_is_none(monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    """Where nothing would fit, tables are as wide as on any unknown terminal."""
    monkeypatch.setenv("COLUMNS", columns)
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.StringIO())
    prepare_streams()
    assert os.environ.get("COLUMNS") == (None if columns == "0" else columns)


def test_an_error_is_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever names are in it: they are shown, and steer nothing."""
    monkeypatch.setattr(sys, "stderr", written := io.StringIO())
    with pytest.raises(SystemExit), guarded():
        raise OptionError("[/x] [red]a\\ \x1b[2J", "[link=y]b[/]\\")
    assert written.getvalue() == "error: [/x] [red]a\\ \\x1b[2J [link=y]b[/]\\\n"


def test_what_is_waited_for_is_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model's path, a task's name: on a terminal, where a bar or a spinner shows them."""
    monkeypatch.setattr(sys, "stderr", written := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with spinner("Opening [/a]\x07"):
        time.sleep(0.2)
    with pulling("[/b]\x07"):
        pass
    with counting("Race") as report:
        report("[/c]\x07", 0.5)
    shown = written.getvalue()
    assert all(name in shown for name in ("[/a]", "[/b]", "[/c]"))
    assert "\x07" not in shown


def test_what_the_system_refuses_names_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And a folder that was removed while a shell stands in it is told as what it is."""
    monkeypatch.chdir(tmp_path)
    for gone, told in ((False, "error: x.gguf: No space left"), (True, "current folder is gone")):
        monkeypatch.setattr(sys, "stderr", written := io.StringIO())
        if gone:
            tmp_path.rmdir()
        with pytest.raises(SystemExit), last_resort():
            raise OSError(errno.ENOSPC, "No space left", "x.gguf")
        assert told in written.getvalue()
