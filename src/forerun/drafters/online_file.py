"""What was learned online, in a file: written at once or not at all, read whole or refused.

JSON: {"format": "forerun online", "version", "target": checksum, "head": checksum, "lengths",
"tenants": [{"name", "boosts", "curvature", "gained", "judged", "pause"}], the last to write last;
"checksum"}, which is the SHA-256 of the same without it. The file holds numbers and the tenants'
names, no word of a text; only its owner may read it.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import NamedTuple, Never

import numpy as np
from numpy.typing import NDArray

from forerun.drafters.online import KINDS, Lesson, Limits, Online
from forerun.drafters.repeats import LENGTHS
from forerun.drafters.store_file import check_place
from forerun.errors import StoreFileError
from forerun.models.plain_file import parse_json
from forerun.regular_file import read_file, reason_of, replace_file

__all__ = ["Origin", "load_online", "open_online", "save_online"]

_FORMAT, _VERSION = "forerun online", 1
_MOST_BYTES = 4 << 30
_MOST_NAME = 256
_LARGEST = 1e9  # of a number that was summed up
_KEYS = {"name", "boosts", "curvature", "gained", "judged", "pause"}
_AWAY = "Remove the file, or name another one."


class Origin(NamedTuple):
    """Whose guesses were learned from.

    Attributes:
        target: The target's checksum, 64 hexadecimal digits.
        head: The head's.
    """

    target: str
    head: str


def save_online(online: Online, path: str, origin: Origin) -> None:
    """Write all lessons; the file is either the old or the new one, whatever happens.

    Args:
        online: Has them.
        path: Of the file.
        origin: Of the target and the head in use.

    Raises:
        StoreFileError: The file can't be written.
    """
    tenants = [{"name": tenant, **_told(lesson)} for tenant, lesson in online.lessons.items()]
    kept: dict[str, object] = {
        "format": _FORMAT,
        "version": _VERSION,
        **origin._asdict(),
        "lengths": list(LENGTHS),
        "tenants": tenants,
    }
    try:
        replace_file(path, json.dumps({**kept, "checksum": _checksum(kept)}).encode())
    except (OSError, ValueError) as error:  # a name that no file can have is a ValueError
        reason = getattr(error, "strerror", None) or error
        raise StoreFileError(f"{path!r} can't be written: {reason}.", "") from error


def open_online(limits: Limits, path: str | None, origin: Origin) -> Online:
    """Return what there is to learn into: of a file, if it is there, or nothing yet.

    Args:
        limits: How much may be learned.
        path: Of the file; None if there is none to be kept.
        origin: Of the target and the head in use.

    Raises:
        StoreFileError: The file is refused, or could not be written.
    """
    online = Online(limits)
    if path is not None:
        try:
            load_online(online, path, origin)
        except FileNotFoundError:  # the first time there is none
            check_place(path)
    return online


def load_online(online: Online, path: str, origin: Origin) -> None:
    """Add a file's lessons.

    Args:
        online: Where to; unchanged if the file is refused.
        path: Of the file.
        origin: Of the target and the head in use.

    Raises:
        FileNotFoundError: There is no such file.
        StoreFileError: It can't be read, is damaged, of another version, target or head, or holds
            more tenants or larger boosts than may be kept.
    """
    try:
        kept = parse_json(read_file(path, _MOST_BYTES))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreFileError(f"{path!r} {reason_of(error)}.", _AWAY) from error
    except ValueError as error:
        raise StoreFileError(f"{path!r} {error}.", _AWAY) from None
    _check(kept, path, origin)
    tenants = kept["tenants"]
    if not isinstance(tenants, list):
        _damaged(path)
    lessons = dict(_lesson(each, path) for each in tenants)
    if len(lessons) != len(tenants):
        _damaged(path)
    if len(lessons) > online.limits.tenants:
        what = f"{path!r} holds {len(lessons)} tenants, and {online.limits.tenants} may be kept."
        raise StoreFileError(what, f"Set online_tenants to {len(lessons)} or more.")
    highest = max((float(abs(lesson.boosts).max()) for lesson in lessons.values()), default=0.0)
    if highest > online.limits.reach:
        what = f"{path!r} holds a boost of {highest:g}, and the limit is {online.limits.reach:g}."
        raise StoreFileError(what, f"Set online_reach to {highest:g} or more.")
    for tenant, lesson in lessons.items():
        online.put(tenant, lesson)


def _told(lesson: Lesson) -> dict[str, object]:
    numbers = {"boosts": lesson.boosts.tolist(), "curvature": lesson.curvature.tolist()}
    return {
        **numbers,
        "gained": lesson.gained,
        "judged": lesson.judged,
        "pause": lesson.pause,
    }


def _checksum(kept: dict[str, object]) -> str:
    without = {key: value for key, value in kept.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(without, sort_keys=True).encode()).hexdigest()


def _check(kept: dict[str, object], path: str, origin: Origin) -> None:
    """Refuse what is damaged, or was learned elsewhere."""
    if kept.get("format") != _FORMAT:
        raise StoreFileError(f"{path!r} holds nothing that was learned online.", _AWAY)
    if type(kept.get("version")) is not int or kept["version"] != _VERSION:
        what = f"{path!r} has version {kept.get('version')!r:.80}; this Forerun reads {_VERSION}."
        raise StoreFileError(what, _AWAY)
    if kept.get("checksum") != _checksum(kept):
        _damaged(path)
    for name, own in origin._asdict().items():
        if kept.get(name) != own:
            raise StoreFileError(f"{path!r} was learned with another {name}.", _AWAY)
    if kept.get("lengths") != list(LENGTHS):
        _damaged(path)


def _lesson(told: object, path: str) -> tuple[str, Lesson]:
    """Return a tenant's name and lesson, once all of it is known to be sound."""
    if not isinstance(told, dict) or set(told) != _KEYS:
        _damaged(path)
    name, pause = told["name"], told["pause"]
    if not isinstance(name, str) or len(name) > _MOST_NAME:
        _damaged(path)
    if type(pause) is not int or not 0 <= pause < 1 << 31:
        _damaged(path)
    curvature = told["curvature"]
    if not isinstance(curvature, list) or len(curvature) != KINDS:
        _damaged(path)
    numbers = np.stack([_numbers(row, path) for row in curvature])
    if not np.array_equal(numbers, numbers.T) or np.linalg.eigvalsh(numbers).min() < -1e-6:
        _damaged(path)  # no sum of squares: a step from there could lead anywhere
    gained, judged = _number(told["gained"], path), _number(told["judged"], path)
    return name, Lesson(_numbers(told["boosts"], path), numbers, gained, judged, pause)


def _numbers(told: object, path: str) -> NDArray[np.float64]:
    if not isinstance(told, list) or len(told) != KINDS:
        _damaged(path)
    return np.array([_number(each, path) for each in told])


def _number(told: object, path: str) -> float:
    if type(told) is not float or not math.isfinite(told) or abs(told) > _LARGEST:
        _damaged(path)
    return told


def _damaged(path: str) -> Never:
    raise StoreFileError(f"{path!r} is truncated or damaged.", _AWAY)
