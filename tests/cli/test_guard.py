"""What every command leaves behind, however it ends."""

from __future__ import annotations

import io
import os
import sys

import pytest

from forerun.cli.guard import INTERRUPTED, last_resort, prepare_streams


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
