"""The checks behind `forerun doctor`: each looks at one thing and says what to do about it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

import forerun
from forerun import __version__
from forerun.errors import ForerunError, NativeModuleError, OptionError
from forerun.extras import pip_command
from forerun.models.gguf_file import GGUFFile
from forerun.models.pull import cache_folder, cached_path, is_sound
from forerun.models.registry import DEFAULT_MODEL, find_registered
from forerun.native import load, use_instructions
from forerun.targets.memory import free_memory
from forerun.targets.processor import processor_name, usable_cores

__all__ = ["Finding", "examine"]

_OLDEST_PYTHON = (3, 11)
# With the default model; the reference target keeps its weights in 32 bits.
_NATIVE_MEMORY, _REFERENCE_MEMORY = 1 << 29, 2 << 30
_SIMD = ("sse4_2", "avx2", "fma", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "asimd", "sve")


State = Literal["ok", "warn", "fail"]


class Finding(NamedTuple):
    """What one check found.

    Attributes:
        state: `ok`, `warn` (something is less than it could be) or `fail` (it cannot run).
        name: What was looked at.
        found: What is there.
        way_out: What to do about it, if anything.
    """

    state: State
    name: str
    found: str
    way_out: str = ""


def examine(instruction_set: str = "auto") -> list[Finding]:
    """Run all checks; a check that itself fails is a finding, not an error.

    Args:
        instruction_set: What the compiled module is to use, as in `forerun.config.Loading`.
    """
    findings: list[Finding] = []
    checks = dict(_CHECKS)
    checks["native"] = partial(_native, instruction_set)
    for name, check in checks.items():
        try:
            findings += check()
        except (OSError, ValueError, KeyError, ForerunError) as error:
            findings.append(Finding("warn", name, f"unknown: {error}"))
    return findings


def _versions() -> Iterator[Finding]:
    yield Finding("ok", "forerun", __version__)
    old = sys.version_info < _OLDEST_PYTHON
    way_out = "Forerun needs Python 3.11 or newer." if old else ""
    found = f"{platform.python_version()} at {sys.executable}"
    yield Finding("fail" if old else "ok", "python", found, way_out)


def _packages() -> Iterator[Finding]:
    """Forerun's own requirements, and the extras that are there."""
    extras: dict[str, list[str]] = {}
    for requirement in _requirements():
        package = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", requirement)
        extras.setdefault(extra[1] if extra else "", []).append(package)
    needed = extras.pop("", [])
    missing = [package for package in needed if _version_of(package) is None]
    found = ", ".join(f"{package} {_version_of(package) or 'missing'}" for package in needed)
    way_out = pip_command(*missing) if missing else ""
    yield Finding("fail" if missing else "ok", "packages", found, way_out)
    for extra_name, packages in extras.items():
        is_there = all(_version_of(package) for package in packages)
        way = f"not installed: {pip_command(f'forerun[{extra_name}]')}"
        yield Finding("ok", f"extra {extra_name}", "installed" if is_there else way)


def _requirements() -> list[str]:
    try:
        return importlib.metadata.requires("forerun") or []
    except importlib.metadata.PackageNotFoundError:
        raise ValueError("forerun runs from its sources and is not installed") from None


def _version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _blas() -> Iterator[Finding]:
    # `show_config(mode="dicts")` returns what numpy was built with.
    config: dict[str, Any] = np.show_config(mode="dicts")  # type: ignore[assignment]
    blas = config["Build Dependencies"]["blas"]
    known = f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()
    yield Finding("ok", "numpy", f"{np.__version__} with {known}")


def _processor() -> Iterator[Finding]:
    information = _read("/proc/cpuinfo")
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", information, re.MULTILINE)
    yield Finding("ok", "processor", processor_name())
    has = set(flags[1].split()) if flags else set()
    found = " ".join(each for each in _SIMD if each in has) or f"{platform.machine()}, unknown"
    yield Finding("ok", "instructions", found)
    yield Finding("ok", "cores", f"{usable_cores()} of {os.cpu_count() or 1} usable")


def _native(instruction_set: str) -> Iterator[Finding]:
    """Whether the compiled module is there, and what it runs on."""
    try:
        module = load()
        if instruction_set != "auto":
            use_instructions(instruction_set)
    except NativeModuleError as error:
        yield Finding("warn", "native", error.what, error.way_out)
        return
    except OptionError as error:
        yield Finding("fail", "native", error.what, error.way_out)
        return
    others = [name for name in module.instruction_sets() if name != module.instruction_set()]
    also = f"; also has {', '.join(others)}" if others else ""
    yield Finding("ok", "native", f"uses {module.instruction_set()}{also}")


def _memory() -> Iterator[Finding]:
    free = free_memory()
    if free is None:
        yield Finding("ok", "memory", "unknown on this system")
        return
    try:
        load()
        needed = _NATIVE_MEMORY
    except NativeModuleError:
        needed = _REFERENCE_MEMORY
    short = free < needed
    way_out = f"End other programs: the default model wants {needed / 1e9:.1f} GB." if short else ""
    yield Finding("warn" if short else "ok", "memory", f"{free / 1e9:.1f} GB free", way_out)


def _cache() -> Iterator[Finding]:
    folder, model = cache_folder(), find_registered(DEFAULT_MODEL)
    there = next(each for each in (folder, *folder.parents) if each.exists())
    # With the model in the cache, nothing needs to be written there.
    needed = 0 if cached_path() else model.wheel_size + model.size
    way_out = ""
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        found, way_out = "cannot be written.", "Set FORERUN_CACHE to a folder that can."
    else:
        free = shutil.disk_usage(there).free
        found = f"{free / 1e9:.1f} GB free"
        if free < needed:
            way_out = f"{needed / 1e6:.0f} MB are needed: free some space."
    state: State = "ok" if not way_out else "fail" if needed else "warn"
    yield Finding(state, "cache", f"{folder}, {found}", way_out)


def _default_model() -> Iterator[Finding]:
    """Whether the default model is there, whole and readable."""
    path, name = cached_path(), f"model {DEFAULT_MODEL}"
    if path is None:
        yield Finding("warn", name, "not fetched yet.", "`forerun pull` fetches it.")
        return
    if not is_sound(path, find_registered(DEFAULT_MODEL)):
        way_out = "`forerun pull` fetches it again."
        yield Finding("fail", name, f"{path} is not the file it should be.", way_out)
        return
    GGUFFile.open(path)
    yield Finding("ok", name, f"{path}, checksum right")


def _pass_cost() -> Iterator[Finding]:
    """What passes of the default model cost here, by rows; timed if they never were."""
    if cached_path() is None:
        return
    curve = forerun.load(DEFAULT_MODEL).pass_cost()
    shown = ", ".join(f"{rows} rows {cost:.2f}" for rows, cost in curve.items() if rows > 1)
    yield Finding("ok", "pass cost", f"in passes of one row: {shown}")


def _pip() -> Iterator[Finding]:
    if importlib.util.find_spec("pip") is not None:
        yield Finding("ok", "pip", _version_of("pip") or "there")
        return
    # Needed only to fetch: with the model in the cache nothing is amiss.
    way_out = f"`{sys.executable} -m ensurepip` installs it; `pull` fetches models with it."
    yield Finding("warn" if cached_path() else "fail", "pip", "missing.", way_out)


def _read(path: str) -> str:
    file = Path(path)
    return file.read_text("utf-8", errors="replace") if file.exists() else ""


_CHECKS: dict[str, Callable[[], Iterator[Finding]]] = {
    "versions": _versions,
    "packages": _packages,
    "blas": _blas,
    "processor": _processor,
    "native": partial(_native, "auto"),
    "memory": _memory,
    "cache": _cache,
    "default model": _default_model,
    "pass cost": _pass_cost,
    "pip": _pip,
}
