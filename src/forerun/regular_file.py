"""Files that others wrote, opened without waiting and read with an end: the one way to do it.

A pipe would wait for its writer, a device may never end, and opening one may do something: only
regular files are opened, and nothing is read that is larger than its reader allows. What is to be
read again is written here, too: whole, or not at all.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader

__all__ = ["UnfitFileError", "opened_file", "read_file", "reason_of", "replace_file"]

# Should it become a pipe between the question and the opening, that doesn't wait either.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_FLAGS |= getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)


class UnfitFileError(OSError):
    """What lies there isn't what can be read; `reason` says why, as in "is a folder"."""

    def __init__(self, reason: str, path: str) -> None:
        super().__init__(errno.EINVAL, reason, path)
        self.reason = reason


@contextmanager
def opened_file(path: str | os.PathLike[str]) -> Iterator[tuple[BufferedReader, os.stat_result]]:
    """Open a regular file; yields it and what the system knows of it.

    Raises:
        UnfitFileError: It is a folder, a pipe, a device, or has a name that no file can have.
        OSError: There is none, or the system refuses it.
    """
    name = os.fspath(path)
    try:
        _check(os.stat(name), name)
    except ValueError as error:
        raise UnfitFileError(f"can't be a file's name: {error}", name) from None
    with open(os.open(name, _FLAGS), "rb") as file:
        there = os.fstat(file.fileno())
        _check(there, name)
        yield file, there


def read_file(path: str | os.PathLike[str], most: int) -> bytes:
    """Return a regular file's bytes.

    Args:
        path: Of the file.
        most: Bytes; a larger file is not read at all.

    Raises:
        UnfitFileError: As `opened_file`; or it is larger, or changed while it was read.
        OSError: As `opened_file`.
    """
    with opened_file(path) as (file, before):
        if before.st_size > most:
            size = f"{most >> 20} MiB" if most >= 1 << 20 else f"{most >> 10} KiB"
            raise UnfitFileError(f"has more than {size}", os.fspath(path))
        data = file.read(before.st_size + 1)
        after = os.fstat(file.fileno())
    if len(data) != before.st_size or before.st_mtime_ns != after.st_mtime_ns:
        raise UnfitFileError("changed while it was read", os.fspath(path))
    return data


def replace_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file that only its owner may read; it is either the old or the new one, always.

    A link stays one: the file that it leads to is written.

    Raises:
        OSError: It can't be written.
    """
    path = os.path.realpath(path)
    descriptor, other = tempfile.mkstemp(prefix=".forerun-", dir=os.path.dirname(path))
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.replace(other, path)
    except BaseException:  # Ctrl-C too leaves nothing behind
        with suppress(OSError):
            os.unlink(other)
        raise


def reason_of(error: OSError) -> str:
    """Return why a file was not read, as the end of a sentence that begins with its name."""
    if isinstance(error, UnfitFileError):
        return error.reason
    return f"can't be read ({error.strerror or error})"


def _check(there: os.stat_result, name: str) -> None:
    if stat.S_ISDIR(there.st_mode):
        raise UnfitFileError("is a folder", name)
    if not stat.S_ISREG(there.st_mode):
        raise UnfitFileError("is no regular file", name)
