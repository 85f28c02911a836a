"""A lock that one process holds on a folder, given up by the system when the process dies."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["folder_lock"]

# Without waiting, should a pipe lie there: then it is an error.
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND
_FLAGS |= getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_BUSY = {errno.EACCES, errno.EAGAIN, errno.EDEADLK}


@contextmanager
def folder_lock(folder: Path, waiting: Callable[[], None], pause: float = 0.2) -> Iterator[None]:
    """Hold the folder's lock for the length of a `with` block.

    Args:
        folder: An existing folder; the lock is its file `.lock`, which stays.
        waiting: Called before each pause while somebody else holds the lock.
        pause: Seconds between two attempts.

    Raises:
        OSError: The file cannot be made, or the file system knows no locks.
    """
    # Opened for appending: to truncate or delete it would take the lock from under its holder.
    with open(os.open(folder / ".lock", _FLAGS, 0o666), "ab") as file:
        while not _try_lock(file.fileno()):
            waiting()
            time.sleep(pause)
        yield


if sys.platform == "win32":
    import msvcrt

    def _try_lock(handle: int) -> bool:
        os.lseek(handle, 0, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            if error.errno in _BUSY:
                return False
            raise
        return True

else:
    import fcntl

    def _try_lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _BUSY:
                return False
            raise
        return True
