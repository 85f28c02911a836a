"""The machine a measurement ran on: what it is, what it gives, and who else was using it."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from forerun.native import load
from forerun.targets.memory import free_memory
from forerun.targets.processor import processor_name, usable_cores

__all__ = ["Gauge", "LoadMeter", "Reading", "describe", "load_average"]

_READ = 1 << 30  # bytes: far more than any cache holds
_BATCHES = 20  # of a thousand meetings each


class Reading(NamedTuple):
    """What the machine gave at one moment.

    Attributes:
        bandwidth_gb_s: 10^9 bytes a second that the threads read together from 1 GiB; None where
            there is no room for that.
        barrier_ns: Nanoseconds from one meeting of the threads to the next. It tells where the
            system put them: tens if they share a cache, hundreds if not.
    """

    bandwidth_gb_s: float | None
    barrier_ns: float


class Gauge:
    """Reads memory bandwidth and the latency of the pass's barrier, in a tenth of a second.

    Args:
        threads: As many as the passes have.

    Raises:
        NativeModuleError: There is no compiled module.
    """

    def __init__(self, threads: int) -> None:
        self._module, self._threads = load(), threads
        free = free_memory()
        has_room = free is None or free > _READ + (_READ >> 2)
        self._reader = self._module.MemoryReader(_READ, threads) if has_room else None
        self.readings: list[Reading] = []

    def read(self) -> None:
        """Add a reading: the better of two goes through memory, the median of the barrier's."""
        reader = self._reader
        bandwidth = None if reader is None else max(reader.read(), reader.read()) / 1e9
        barrier = self._module.barrier_seconds(self._threads, _BATCHES) * 1e9
        self.readings.append(Reading(bandwidth, barrier))


def load_average() -> float | None:
    """Return the system's own, over the last minute; None where it has none."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def describe(threads: int) -> dict[str, Any]:
    """Return what a reader of figures must know of the machine, as plain data."""
    return {
        "processor": processor_name(),
        "cores": usable_cores(),
        "threads": threads,
        "instructions": load().instruction_set(),
        "system": platform.system(),
        "python": platform.python_version(),
    }


class LoadMeter:
    """How many cores others kept busy since this was made.

    Args:
        children: Returns the seconds that processes of ours which still run have used.
    """

    def __init__(self, children: Callable[[], float] = lambda: 0.0) -> None:
        self._begun = time.perf_counter()
        self._children = children
        self._all, self._own, self._stolen = _busy(), self._ours(), _stolen()

    def others(self) -> float | None:
        """Return the cores other processes used on average; None where the system does not say."""
        busy, before = _busy(), self._all
        if busy is None or before is None:
            return None
        return max(0.0, busy - before - (self._ours() - self._own)) / self._elapsed()

    def stolen(self) -> float | None:
        """Return the cores that the host of a virtual machine gave to others, likewise."""
        now, before = _stolen(), self._stolen
        return None if now is None or before is None else (now - before) / self._elapsed()

    def _ours(self) -> float:
        return _own() + self._children()

    def _elapsed(self) -> float:
        return max(time.perf_counter() - self._begun, 1e-9)


def _ticks() -> list[int]:
    """User, nice, system, idle, waiting for disks, interrupts (two), stolen: of all cores."""
    found = re.match(r"cpu((?:\s+\d+){8,})", _read("/proc/stat"))
    return [int(ticks) for ticks in found[1].split()] if found else []


def _busy() -> float | None:
    ticks = _ticks()
    return (sum(ticks[:3]) + sum(ticks[5:7])) / os.sysconf("SC_CLK_TCK") if ticks else None


def _stolen() -> float | None:
    ticks = _ticks()
    return ticks[7] / os.sysconf("SC_CLK_TCK") if ticks else None


def _own() -> float:
    """Seconds of this process and of its ended children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _read(path: str) -> str:
    file = Path(path)
    return file.read_text("utf-8", errors="replace") if file.exists() else ""
