"""What passes cost, kept from one process to the next: a file a machine, model and setting."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from forerun.config import LARGEST_DRAFT, Loading
from forerun.control.cost import CostCurve, measure
from forerun.models.model import Model
from forerun.native import is_there, load
from forerun.regular_file import read_file
from forerun.targets.processor import processor_name, usable_cores
from forerun.targets.protocol import Target

__all__ = ["CostKey", "cost_key", "remembered_costs"]

CostKey = Mapping[str, str | int]
"""All that the cost of a pass depends on; equal keys share a file."""

_VERSION = 1
_MOST_BYTES = 1 << 18
_SHORTEST, _LONGEST = 1e-7, 1e3  # seconds of a pass


def remembered_costs(
    target: Target, key: CostKey, folder: Path, *, again: bool = False
) -> CostCurve:
    """Return what the target's passes cost: as it was measured before, or measured now.

    A file that is damaged or of another version is measured anew; where none can be written, or the
    machine was too busy to believe the times, the next process measures again.

    Args:
        target: Whose passes.
        key: The machine, the model and its settings.
        folder: Where the files are.
        again: Measure though it was measured before: passes have shown another cost.
    """
    name = hashlib.sha256(json.dumps(dict(key), sort_keys=True).encode()).hexdigest()[:24]
    file = folder / f"{name}.json"
    seconds = None if again else _read(file, key)
    if seconds is None:
        curve = measure(target)
        if curve.is_steady:
            with suppress(OSError):  # a cache is a convenience: less than a second was lost
                _write(file, key, curve.measured)
        return curve
    return CostCurve(seconds)


def _read(file: Path, key: CostKey) -> dict[int, float] | None:
    """Return seconds by rows, if the file holds them for this very key."""
    try:
        kept = json.loads(read_file(file, _MOST_BYTES))
        if kept["version"] != _VERSION or kept["key"] != dict(key):
            return None
        seconds = {int(rows): time for rows, time in kept["seconds"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    is_sound = all(_is_cost(*each) for each in seconds.items())
    return seconds if is_sound and 1 in seconds else None


def _is_cost(rows: int, seconds: object) -> bool:
    """Whether this can have been measured: no other numbers are to be reckoned with."""
    is_time = type(seconds) is float and _SHORTEST <= seconds <= _LONGEST
    return is_time and 1 <= rows <= LARGEST_DRAFT


def _write(file: Path, key: CostKey, seconds: Mapping[int, float]) -> None:
    """Write all or nothing: another process may be reading."""
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=file.parent, suffix=".part")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump({"version": _VERSION, "key": dict(key), "seconds": dict(seconds)}, stream)
        os.replace(temporary, file)
    except BaseException:
        os.unlink(temporary)
        raise


def cost_key(model: Model, target: Target, loading: Loading) -> CostKey:
    """Return what the cost of this target's passes depends on.

    Args:
        model: What is run; a file that changes counts as another model.
        target: What runs it.
        loading: With these options.
    """
    capabilities = target.capabilities
    file = model.path.stat()
    return {
        "processor": processor_name(),
        "cores": usable_cores(),
        "instructions": load().instruction_set() if is_there() else "",
        "target": capabilities.name,
        "threads": capabilities.threads,
        "kv_bits": loading.kv_bits or "",
        "model": str(model.path.absolute()),
        "changed": file.st_mtime_ns,
        "size": file.st_size,
        "layers": model.architecture.num_layers,
        "weights": loading.weights,
        "setting": capabilities.setting,
    }
