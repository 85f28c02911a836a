from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from forerun import __version__
from forerun.cli import main as command_line
from forerun.cli.guard import BROKEN_PIPE, INTERRUPTED
from forerun.cli.interrupt import TERMINATED

LONG = ("--max-tokens", "4000", "--ignore-eos", "--drafter", "none")
POSIX = pytest.mark.skipif(os.name != "posix", reason="signals and pipes as POSIX has them")


def ended(process: subprocess.Popen[bytes], stdin: bytes | None = None) -> tuple[int, bytes, bytes]:
    """Exit code, the rest of stdout, and stderr."""
    out, err = process.communicate(stdin, timeout=60)
    return process.returncode, out, err


@POSIX
@pytest.mark.parametrize("arguments", [["--json"], []])
def test_a_closed_pipe_ends_it_quietly(start: Any, arguments: list[str]) -> None:
    """As `... | head -1` does: no traceback, not a word, and the exit code of a broken pipe."""
    process = start("generate", "the", *LONG, *arguments)
    process.stdout.read(1)
    process.stdout.close()
    process.stdin.close()
    assert (process.stderr.read(), process.wait(60)) == (b"", BROKEN_PIPE)


@POSIX
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["theory", "--alpha=.5", "--draft-length=3", "--cost=0"], BROKEN_PIPE),
        (["theory", "--alpha=.5", "--draft-length=3", "--cost=0", "--json"], BROKEN_PIPE),
        (["--help"], 1),  # printed by the parser's own console
    ],
)
def test_a_pipe_closed_from_the_start_is_quiet_too(
    start: Any, arguments: list[str], expected: int
) -> None:
    """Also where all output would come at the end."""
    read, write = os.pipe()
    os.close(read)
    process = start(*arguments, stdout=write)
    os.close(write)
    code, _, err = ended(process)
    assert (code, err) == (expected, b"")


@POSIX
def test_ctrl_c_leaves_a_result(start: Any) -> None:
    """With --json the last line is a result: its text is that of the tokens told before."""
    process = start("generate", "the", *LONG, "--json")
    first = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    code, out, err = ended(process)
    *events, last = [json.loads(line) for line in (first + out).splitlines()]
    tokens = [event["token"] for event in events if event["event"] == "token"]
    assert (code, err) == (INTERRUPTED, b"")
    assert (last["event"], last["finish_reason"]) == ("result", "interrupted")
    assert last["token_ids"] == tokens
    assert 0 < len(tokens) < 4000


@POSIX
def test_being_told_to_end_leaves_a_result(start: Any) -> None:
    """SIGTERM, as `timeout` and service managers send it, loses no more than Ctrl-C."""
    process = start("generate", "the", *LONG, "--json")
    first = process.stdout.readline()
    process.terminate()
    code, out, err = ended(process)
    last = json.loads((first + out).splitlines()[-1])
    assert (code, err) == (TERMINATED, b"")
    assert (last["event"], last["finish_reason"]) == ("result", "interrupted")


@POSIX
def test_being_told_to_end_ends_a_chat(start: Any) -> None:
    """Not just the answer: whoever sends it waits for the program to go."""
    process = start("chat", *LONG)
    process.stdin.write(b"the\n")
    process.stdin.flush()
    process.stdout.read(1)
    process.terminate()
    assert process.wait(60) == TERMINATED


@POSIX
def test_ctrl_c_during_the_imports_is_quiet() -> None:
    """Pressed before anything is there to catch it, it still ends with 130 and without a word."""
    code = (
        "import signal, sys\n"
        "class Pressing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer': signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Pressing())\n"
        "import runpy; runpy.run_module('forerun', run_name='__main__')"
    )
    # In the background of a shell Ctrl-C would be ignored.
    code = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n{code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (INTERRUPTED, b"", b"")


@POSIX
def test_ctrl_c_leaves_the_text(start: Any) -> None:
    """The text so far stays and its line is ended."""
    process = start("generate", "the", *LONG)
    first = process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    code, out, err = ended(process)
    assert (code, err) == (INTERRUPTED, b"")
    assert (first + out).endswith(b"\n")


@POSIX
def test_ctrl_c_in_a_chat_ends_the_answer_and_then_the_chat(start: Any) -> None:
    """The first stops an answer and keeps the chat; one that meets the prompt ends it."""
    process = start("chat", *LONG)
    process.stdin.write(b"the\n")
    process.stdin.flush()
    process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    said = b""
    while b"Stopped; the answer so far is kept." not in said:
        line = process.stderr.readline()
        assert line
        said += line
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert (code, err) == (INTERRUPTED, b"")


@POSIX
def test_bytes_that_are_no_text_are_refused(start: Any) -> None:
    """On stdin and on the command line alike: exit code 2 and one line."""
    for process, stdin in (
        (start("generate", "-"), b"a\xffb"),
        (start("generate", b"a\xffb", env={"PYTHONUTF8": "1"}), b""),
    ):
        code, out, err = ended(process, stdin)
        assert (code, out) == (2, b"")
        assert err.startswith(b"error: The prompt is not valid text")
        assert err.count(b"\n") == 1


def test_a_question_that_is_no_text_leaves_the_chat(start: Any) -> None:
    """A chat refuses such bytes like any prompt it cannot take, and goes on."""
    code, out, err = ended(start("chat", "--max-tokens=3"), b"a\xff\nthe\n")
    assert code == 0
    assert out
    assert b"The prompt is not valid text" in err
    assert b"The conversation is kept" in err


def test_what_the_terminal_cannot_show_is_escaped(start: Any) -> None:
    """A terminal of ASCII gets an escaped text, and no error."""
    process = start("generate", "the", "--max-tokens=30", env={"PYTHONIOENCODING": "ascii"})
    code, out, err = ended(process)
    assert (code, err) == (0, b"")
    assert b"\\ufffd" in out


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_one_clear_line(start: Any) -> None:
    """Output that cannot be written is the system's refusal, not a bug."""
    with open("/dev/full", "wb") as full:
        code, _, err = ended(start("generate", "the", "--max-tokens=3", stdout=full))
    assert (code, err.count(b"\n")) == (1, 1)
    assert err.startswith(b"error: No space left")


def test_the_version_is_printed(start: Any) -> None:
    """`python -m forerun --version` is the package's version."""
    assert ended(start("--version")) == (0, f"forerun {__version__}\n".encode(), b"")


def test_help_opens_no_engine() -> None:
    """What makes a start slow is imported by the command that needs it."""
    code = (
        "import sys; sys.argv = ['forerun', 'generate', '--help']\n"
        "from forerun.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(loaded & {'torch', 'transformers', 'tokenizers', 'gguf', 'jinja2'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_bug_is_called_a_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The unforeseen is two lines, and a traceback for those who ask."""

    def broken() -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(command_line, "app", broken)
    monkeypatch.delenv("FORERUN_DEBUG", raising=False)
    with pytest.raises(SystemExit) as exit_:
        command_line.main()
    error = capsys.readouterr().err
    assert exit_.value.code == 1
    assert "this is a bug in Forerun: ZeroDivisionError: by nothing" in error
    assert "FORERUN_DEBUG=1" in error
    assert "Traceback" not in error
    monkeypatch.setenv("FORERUN_DEBUG", "1")
    with pytest.raises(SystemExit):
        command_line.main()
    assert "Traceback" in capsys.readouterr().err


def test_a_variable_that_is_none_is_told(start: Any) -> None:
    """A misspelt one would change nothing, silently; those that are read are not mentioned."""
    known = {"FORERUN_TOP_K": "3", "FORERUN_CACHE": "/nowhere", "FORERUN_MAX_TOKENS": "2"}
    unknown = {"FORERUN_TOPP": "0.5", "FORERUN_\x1b[31mX": "1"}
    code, out, err = ended(start("generate", "the", env={**known, **unknown}))
    assert (code, bool(out)) == (0, True)
    told = err.decode().splitlines()
    assert told[1] == "FORERUN_TOPP is no variable that Forerun reads. Did you mean FORERUN_TOP_P?"
    assert told[0].startswith("FORERUN_\\x1b[31mX is no variable that Forerun reads.")
    assert len(told) == 2
