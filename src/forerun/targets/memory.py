"""How much memory a process may still take, as far as the system says."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

__all__ = ["free_memory"]

_GROUPS = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60  # how the older control groups write "no limit", about


def free_memory() -> int | None:
    """Return bytes that can be allocated without swapping or being killed; None if not known."""
    return min(_limits(), default=None)


def _limits() -> Iterator[int]:
    """Yield what each authority leaves: the machine, the control group, the process's own limit."""
    with suppress(OSError, ValueError):
        yield _kilobytes("/proc/meminfo", "MemAvailable")
    with suppress(OSError, ValueError):
        yield from _group_limits()
    if sys.platform == "win32":
        return
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        with suppress(OSError, ValueError):
            yield max(limit - _kilobytes("/proc/self/status", "VmSize"), 0)
    if sys.platform == "darwin":
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _kilobytes(path: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", Path(path).read_text(), re.MULTILINE)
    if found is None:
        raise ValueError(name)
    return int(found[1]) << 10


def _group_limits() -> Iterator[int]:
    """Yield what is left in the process's own control group, old or new, and in the outermost."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, kind, place = line.split(":", 2)
        if kind == "":
            root, names = _GROUPS, ("memory.max", "memory.current", "inactive_file")
        elif kind == "memory":
            root = _GROUPS / "memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        for folder in (root, root / place.lstrip("/")):
            with suppress(OSError, ValueError):
                yield _left(folder, *names)


def _left(folder: Path, limit: str, usage: str, reclaimable: str) -> int:
    """Return limit - usage; the pages of files that the kernel would give back count as free."""
    most = int((folder / limit).read_text())  # "max" is no number: no limit
    if most >= _UNLIMITED:
        raise ValueError(limit)
    used = int((folder / usage).read_text())
    with suppress(OSError):
        lines = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        used -= int(lines.get(reclaimable, 0))
    return max(most - used, 0)
