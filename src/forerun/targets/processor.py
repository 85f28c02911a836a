"""Which processor this is."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

__all__ = ["processor_name", "usable_cores"]


def processor_name() -> str:
    """Return the processor's name as the system gives it, or "unknown"."""
    file = Path("/proc/cpuinfo")
    information = file.read_text("utf-8", errors="replace") if file.exists() else ""
    name = re.search(r"^model name\s*:\s*(.+)$", information, re.MULTILINE)
    return name[1] if name else platform.processor() or platform.machine() or "unknown"


def usable_cores() -> int:
    """Return how many cores the process may run on, as far as the system says."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
