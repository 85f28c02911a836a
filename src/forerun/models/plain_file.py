"""Files that others wrote, read with bounds: no mapping, no handle that outlives a call.

A file that is cut short or replaced while a model is loaded is an error, where a mapped one would
end the process with SIGBUS.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forerun.errors import ModelFileError, ModelNotFoundError
from forerun.regular_file import UnfitFileError, opened_file

__all__ = ["DAMAGED", "FileIdentity", "opened", "parse_json", "read_json", "read_span", "read_text"]

DAMAGED = "Fetch or convert the file again."


class FileIdentity(NamedTuple):
    """What tells a file from another, and from itself after a change."""

    path: str
    size: int
    modified_ns: int


@contextmanager
def opened(path: Path) -> Iterator[tuple[BufferedReader, FileIdentity]]:
    """Open a regular file; translate what the system says about it.

    Raises:
        ModelNotFoundError: There is no such file.
        ModelFileError: It is a folder, no regular file, or cannot be read.
    """
    try:
        with opened_file(path) as (stream, status):
            yield stream, FileIdentity(str(path), status.st_size, status.st_mtime_ns)
    except UnfitFileError as error:
        raise ModelFileError(f"{path} {error.reason}.", "Name a model's file.") from None
    except (FileNotFoundError, NotADirectoryError):
        raise ModelNotFoundError(f"There is no file {path}.", "Check the path.") from None
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}.", DAMAGED) from error


def read_span(file: FileIdentity, start: int, nbytes: int, what: str) -> NDArray[np.uint8]:
    """Return bytes of a file that must still be the one it was.

    Args:
        file: The file, as it was when its header was read.
        start: Offset from its beginning.
        nbytes: How many bytes.
        what: What lies there, for the error.

    Raises:
        ModelFileError: The file changed, ended early, or cannot be read.
        ModelNotFoundError: It is gone.
    """
    path = Path(file.path)
    with opened(path) as (stream, identity):
        if identity != file:
            raise ModelFileError(f"{path} changed after it was opened.", "Load it again.")
        stream.seek(start)
        data = np.empty(nbytes, np.uint8)
        if stream.readinto(data.data) != nbytes:
            raise ModelFileError(f"{path} ends within {what}.", DAMAGED)
    return data


def read_text(path: Path, limit: int) -> str:
    """Return a text file of at most `limit` bytes.

    Raises:
        ModelNotFoundError: There is no such file.
        ModelFileError: It is longer, no UTF-8, or cannot be read.
    """
    with opened(path) as (stream, identity):
        if identity.size > limit:
            what = f"{path} has {identity.size} bytes; {limit} is the limit."
            raise ModelFileError(what, DAMAGED)
        data = stream.read(identity.size)  # not the limit: so much would be set aside
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        what = f"{path} is not UTF-8 at byte {error.start}."
        raise ModelFileError(what, DAMAGED) from None


def read_json(path: Path, limit: int) -> dict[str, object]:
    """Return the JSON object in a file of at most `limit` bytes.

    Raises:
        ModelNotFoundError: There is no such file.
        ModelFileError: It holds something else.
    """
    try:
        return parse_json(read_text(path, limit))
    except ValueError as error:
        raise ModelFileError(f"{path} {error}.", DAMAGED) from None


def parse_json(text: str | bytes) -> dict[str, object]:
    """Return a JSON object.

    Raises:
        ValueError: The text is something else; the message ends a sentence.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("holds JSON that is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"is not valid JSON: {str(error)[:200]}") from None
    if not isinstance(value, dict):
        raise ValueError("does not hold a JSON object")
    return value
