"""Locks that are safe to fork under: whoever forks waits until nobody else holds one.

What a lock guards is whole whenever nobody holds it. A process that is forked while another
thread works would inherit the lock held for ever, and what it guards half done; so the fork waits,
a round at most, and the child begins with whole things and free locks.
"""

from __future__ import annotations

import os
import threading
from weakref import WeakKeyDictionary

__all__ = ["fork_lock"]

_registering = threading.RLock()
_ranks: WeakKeyDictionary[threading.RLock, int] = WeakKeyDictionary()
_taken: list[list[threading.RLock]] = []  # a fork's, while it is under way


def fork_lock(rank: int) -> threading.RLock:
    """Return a new reentrant lock.

    Args:
        rank: The order in which a fork takes the locks. Whoever takes one while holding another
            takes the one of the higher rank last.
    """
    lock = threading.RLock()
    with _registering:
        _ranks[lock] = rank
    return lock


def _before() -> None:
    """Take all locks, and those that were made meanwhile; then let none be made."""
    taken: list[threading.RLock] = []
    while True:
        _registering.acquire()
        new = sorted(set(_ranks).difference(taken), key=_ranks.__getitem__)
        if not new:
            break
        # Who holds one of them may be about to make another one.
        _registering.release()
        for lock in new:
            lock.acquire()
        taken += new
    _taken.append(taken)


def _after() -> None:
    # The thread that forked is the child's only one, and holds them there as well.
    for lock in reversed(_taken.pop()):
        lock.release()
    _registering.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
