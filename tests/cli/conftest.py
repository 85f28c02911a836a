"""A tiny model that can chat, and the command line run in this process or in its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from forerun.cli.main import app
from models.tiny_gguf import Tiny

TEMPLATE = (
    "{% for message in messages %}<|endoftext|>{{ message.role }}: {{ message.content }}"
    "<|im_end|>{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
)

Run = Callable[..., Result]
Start = Callable[..., Any]  # a subprocess.Popen of bytes


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random model with a chat template and a long context."""
    metadata = {"tokenizer.chat_template": TEMPLATE}
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    return Tiny(context=4096, metadata=metadata).write(path)


@pytest.fixture
def run(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command line in this process, on the tiny model unless told otherwise."""
    monkeypatch.setenv("FORERUN_MODEL", str(tiny))

    def run(*arguments: str, stdin: str = "") -> Result:
        return CliRunner().invoke(app, list(arguments), input=stdin, catch_exceptions=False)

    return run


@pytest.fixture
def start(tiny: Path) -> Start:
    """Starts the command line in a process of its own, with pipes for all three streams."""

    def start(*arguments: str | bytes, **settings: Any) -> Any:
        environment = {**os.environ, "FORERUN_MODEL": str(tiny), **settings.pop("env", {})}
        # Unbuffered: `communicate` would not see what a buffer has read ahead.
        settings.setdefault("bufsize", 0)
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | settings
        command = [sys.executable, "-m", "forerun", *arguments]
        # A shell starts what runs in its background with Ctrl-C ignored; a terminal does not.
        return subprocess.Popen(
            command,
            env=environment,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            **pipes,
        )

    return start
