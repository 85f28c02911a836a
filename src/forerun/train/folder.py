"""A folder that a capture or a training works in: one at a time, and whole after any end.

Every file is written under another name and renamed when it is complete, so that whoever is killed
leaves either the old file or the new one.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError
from safetensors import SafetensorError

from forerun.errors import ModelFileError, TrainingError
from forerun.models.folder_lock import folder_lock
from forerun.models.plain_file import read_text
from forerun.printable import shown

__all__ = ["AS_WRITTEN", "check_room", "parsed_as", "read_record", "working_folder"]
__all__ += ["write_record", "written_whole"]

AS_WRITTEN = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
"""How a record is read: nothing that Forerun would not have written."""

Record = TypeVar("Record")

_LONGEST_RECORD = 64 << 20
_SPARE = 256 << 20  # bytes that are left to everybody else


@contextmanager
def working_folder(folder: Path) -> Iterator[None]:
    """Make a folder, and hold it for the length of a `with` block.

    Raises:
        TrainingError: It can't be made, or another capture or training works in it.
    """

    def busy() -> None:
        raise TrainingError(
            f"Another capture or training works in {folder}.", "Wait for it, or name another."
        )

    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = folder_lock(folder, busy)
        lock.__enter__()
    except OSError as error:
        what = f"The folder {folder} can't be used: {error.strerror or error}."
        raise TrainingError(what, "Name another.") from None
    try:
        yield
    finally:
        lock.__exit__(None, None, None)


def check_room(folder: Path, needed: int) -> None:
    """Check that the disk has room.

    Args:
        folder: An existing folder on it.
        needed: Bytes that will be written.

    Raises:
        TrainingError: It has not.
    """
    free = shutil.disk_usage(folder).free
    if needed + _SPARE > free:
        raise TrainingError(
            f"{needed / 1e9:.2f} GB will be written to {folder}, and {free / 1e9:.2f} GB are free.",
            "Make room, name a folder on another disk, or ask for fewer tokens.",
        )


def written_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Let a file be written beside its place, and put it there when it is complete.

    Args:
        path: Its place.
        write: Writes the file it is given.

    Raises:
        TrainingError: It can't be written.
    """
    beside = path.with_name(f".{path.name}.part")
    try:
        write(beside)
        with open(beside, "rb") as file:
            os.fsync(file.fileno())
        os.replace(beside, path)
    except (OSError, SafetensorError) as error:  # safetensors tells of a full disk in its own way
        beside.unlink(missing_ok=True)
        told = getattr(error, "strerror", None) or error
        what = f"{path} can't be written: {told}."
        raise TrainingError(what, "Make room; then the same command goes on.") from error


def write_record(path: Path, record: Mapping[str, object]) -> None:
    """Write one JSON object as a file.

    Raises:
        TrainingError: It can't be written.
    """
    text = json.dumps(record, indent=1, allow_nan=False) + "\n"
    written_whole(path, lambda beside: _write_text(beside, text))


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")


def read_record(path: Path, kind: type[Record], way_out: str) -> Record | None:
    """Return what was written as a JSON object, or None if there is no such file.

    Args:
        path: Of the file.
        kind: What it holds; its types and their bounds are checked.
        way_out: What to do with a damaged one.

    Raises:
        TrainingError: It holds something else, or can't be read.
    """
    if not path.exists():
        return None
    try:
        return parsed_as(read_text(path, _LONGEST_RECORD), kind)
    except ModelFileError as error:
        raise TrainingError(error.what, way_out) from None
    except ValueError as error:
        raise TrainingError(f"The record {path} is damaged: {error}.", way_out) from None


def parsed_as(text: str | bytes, kind: type[Record]) -> Record:
    """Return what a JSON text holds.

    Raises:
        ValueError: It holds something else; the message ends a sentence.
    """
    try:
        return TypeAdapter(kind).validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        named = f"{place} = {shown(first['input'])}: " if place else ""
        raise ValueError(f"{named}{first['msg']}") from None
