"""How a command ends: errors become one clear line and an exit code, never a traceback.

0 fine, 1 a check failed (or a bug), 2 wrong use, 3 could not start, 130 interrupted, 141 the
reader of our output went away, as for any program that a broken pipe ends, 143 told to end.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rich.text import Text

from forerun.cli.consoles import stderr
from forerun.errors import ForerunError
from forerun.printable import printable

__all__ = ["BROKEN_PIPE", "INTERRUPTED", "guarded", "last_resort", "prepare_streams"]

INTERRUPTED = 130
BROKEN_PIPE = 141


@contextmanager
def guarded() -> Iterator[None]:
    """Turn the errors we foresee into a line on stderr and an exit code."""
    try:
        yield
    except ForerunError as error:
        tell(error)
        raise SystemExit(error.exit_code) from None
    except BrokenPipeError:
        quieten()
        raise SystemExit(BROKEN_PIPE) from None


def tell(error: ForerunError) -> None:
    """Print what is wrong and the way out."""
    told = printable(f" {error.what} {error.way_out}".rstrip())
    stderr().print(Text.assemble(("error:", "bold red"), told), soft_wrap=True)
    if os.environ.get("FORERUN_DEBUG"):
        traceback.print_exception(error)


@contextmanager
def last_resort() -> Iterator[None]:
    """Turn anything unforeseen into a short request to report it; exit code 1."""
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:
        quieten()
        raise SystemExit(BROKEN_PIPE) from None
    except OSError as error:
        # A full disk behind stdout, say: the system's refusal, and no bug of ours.
        _print_plainly(f"error: {_refusal(error)}")
        raise SystemExit(1) from None
    except Exception as error:
        if os.environ.get("FORERUN_DEBUG"):
            traceback.print_exc()
        _print_plainly(
            f"error: this is a bug in Forerun: {type(error).__name__}: {error}\n"
            "Set FORERUN_DEBUG=1 for the traceback, and please report it."
        )
        raise SystemExit(1) from None
    finally:
        # Ctrl-C may come between a spinner's hiding the cursor and its promise to show it again.
        with suppress(OSError, ValueError):
            stderr().show_cursor()


def _refusal(error: OSError) -> str:
    """Return what the system refused, and of which file."""
    try:
        os.getcwd()
    except OSError:  # whatever was asked for, it was looked up from there
        return "The current folder is gone. Change to another one."
    named = f"{error.filename}: " if error.filename else ""
    return f"{named}{error.strerror or error}."


def prepare_streams() -> None:
    """Make sure that no text can break reading or writing it."""
    if os.environ.get("COLUMNS") == "0":  # of unknown width, and not one where nothing fits
        del os.environ["COLUMNS"]
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (open for good)
    # Undecodable input becomes surrogates, which the tokenizer refuses with a clear error;
    # output that the terminal's encoding lacks is escaped.
    for stream, errors in ((sys.stdin, "surrogateescape"), (sys.stdout, "backslashreplace")):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors=errors)


def quieten() -> None:
    """Point stdout nowhere, so that Python's last flush finds no broken pipe."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_plainly(text: str) -> None:
    with suppress(OSError):
        sys.stderr.write(printable(text) + "\n")
