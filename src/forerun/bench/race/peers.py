"""Other engines that can race beside Forerun: one line a side, loaded in a process of its own.

A peer is started with `python -m forerun.bench.race.child`; records go to and fro as JSON lines.
So it takes neither our threads nor our memory with it when it crashes, and one that hangs can be
ended. What a peer has to be is `forerun.bench.race.child.Engine`.
"""

from __future__ import annotations

import json
import math
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

from forerun.bench.race.protocol import Acceptance, Job, Written
from forerun.errors import ForerunError

__all__ = ["RACE_PEERS", "PeerError", "PeerKit", "PeerSide"]

_LLAMA = "forerun.bench.race.llama_cpp:LlamaCpp"
_TRANSFORMERS = "forerun.bench.race.transformers:Transformers"
_OPENVINO = "forerun.bench.race.openvino:OpenVino"

RACE_PEERS: dict[str, str] = {
    "llama.cpp": _LLAMA,
    "llama.cpp:lookup": _LLAMA,
    "llama.cpp:q4_0": _LLAMA,
    "llama.cpp:q4_0:lookup": _LLAMA,
    "transformers": _TRANSFORMERS,
    "transformers:lookup": _TRANSFORMERS,
    "openvino": _OPENVINO,
    "openvino:lookup": _OPENVINO,
}
"""What follows a name's first colon says how it is set: an engine reads it as its modes."""

_SECONDS_TO_OPEN = 900.0
_SECONDS_TO_WRITE = 600.0
_QUIET = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
_QUIET |= {"PYTHONUNBUFFERED": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


class PeerError(ForerunError):
    """A peer can't go on; the others do."""


class PeerKit(NamedTuple):
    """What a peer is opened with.

    Attributes:
        path: The model's file or folder.
        threads: Threads of its passes.
        context: Tokens that prompt and text need at most.
        ends: Tokens that end a text.
        cache: A folder for what has to be made of the file.
        q4_0: The model as a Q4_0 file, or None: it is made.
    """

    path: str
    threads: int
    context: int
    ends: tuple[int, ...]
    cache: str
    q4_0: str | None = None


class PeerSide:
    """An engine in a process of its own.

    Args:
        name: Of the side, a key of `RACE_PEERS`.
        kit: What it is opened with.
        patience: Seconds until it is taken to hang, opening and writing.

    Raises:
        PeerError: It can't be opened.
    """

    is_ours = False

    def __init__(
        self,
        name: str,
        kit: PeerKit,
        patience: tuple[float, float] = (_SECONDS_TO_OPEN, _SECONDS_TO_WRITE),
    ) -> None:
        self.name = name
        self._patience = patience
        # To a file, which no amount of talk can fill as it would a pipe.
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)
        self._process = self._started(kit.threads)
        self._answers: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            home, modes = RACE_PEERS[name], name.split(":")[1:]
            opened = self._asked({"home": home, "modes": modes, **kit._asdict()}, patience[0])
        except BaseException:
            self.close()
            raise
        self._details: dict[str, Any] = opened

    def describe(self) -> dict[str, Any]:
        """Return what it said of itself when it was opened."""
        return self._details

    def write(self, job: Job) -> Written:
        """Write one text.

        Raises:
            PeerError: It failed, ended or hung.
        """
        asked = {
            "tokens": list(job.tokens),
            "max_tokens": job.max_tokens,
            "temperature": job.temperature,
            "seed": job.seed % 2**32,
        }
        answer = self._asked(asked, self._patience[1])
        try:
            return _written(answer, job.max_tokens)
        except (KeyError, TypeError, ValueError) as error:
            raise PeerError(f"It answered with what is no text: {error!r}.") from None

    def cpu_seconds(self) -> float:
        """Return what its process has used; 0 where the system does not say."""
        try:
            line = Path(f"/proc/{self._process.pid}/stat").read_text("utf-8", errors="replace")
            user, system = line.rpartition(")")[2].split()[11:13]
        except (OSError, ValueError):
            return 0.0
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End its process."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._said):
            if pipe is not None:
                _close(pipe)

    def _started(self, threads: int) -> subprocess.Popen[bytes]:
        own = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        own |= {f"{name}_NUM_THREADS": str(threads) for name in ("OMP", "OPENBLAS", "MKL")}
        return subprocess.Popen(
            [sys.executable, "-m", "forerun.bench.race.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env={**os.environ, **_QUIET, **own},
            start_new_session=True,  # Ctrl-C is ours to hear
        )

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(b"")

    def _asked(self, record: Mapping[str, Any], patience: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(record).encode() + b"\n")
            self._process.stdin.flush()
            line = self._answers.get(timeout=patience)
        except queue.Empty:
            self.close()
            raise PeerError(f"It gave no answer within {patience:.0f} seconds.") from None
        except (OSError, ValueError):  # it is gone, and its pipe with it
            line = b""
        if not line:
            raise PeerError(self._last_words())
        try:
            answer = json.loads(line, parse_constant=_finite, parse_float=_finite)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise PeerError(f"It answered {line[:80]!r}.")
        if "error" in answer:
            raise PeerError(str(answer["error"])[:500])
        return answer

    def _last_words(self) -> str:
        """How it ended, and the last that it said."""
        if self._said.closed:
            return "It was ended."
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "It closed its output."
        how = signal.strsignal(-code) if code < 0 else f"exit code {code}"
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - 4000))
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return f"It ended: {how}. {lines[-1][:300] if lines else ''}".strip()


def _close(pipe: IO[bytes]) -> None:
    try:
        pipe.close()
    except OSError:  # what was still to be written has no reader
        return


def _finite(text: str) -> float:
    """A number that the report can hold."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _written(answer: Mapping[str, Any], most: int) -> Written:
    tokens = tuple(int(token) for token in answer["token_ids"])
    if len(tokens) > most:
        raise ValueError(f"{len(tokens)} tokens instead of {most}")
    passes, drafts = answer.get("passes"), answer.get("drafts")
    acceptance = None
    if drafts is not None:
        acceptance = Acceptance()
        for drafted, accepted in drafts:
            for position in range(1, int(drafted) + 1):
                acceptance.count(position, 0, position <= int(accepted))
    return Written(
        token_ids=tokens,
        first_seconds=float(answer["first_seconds"]),
        seconds=float(answer["seconds"]),
        later=max(0, len(tokens) - 1),
        passes=None if passes is None else int(passes),
        acceptance=acceptance,
    )
