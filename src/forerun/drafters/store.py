"""What texts leave behind for later texts of the same tenant, in bounded memory.

A tenant's texts are searched for that tenant alone: no other tenant's guesses, nor the counts and
confidences they come with, depend on them. What the user gave as a corpus is searched for all.

When there is no more room, the tenant that holds the most loses its oldest texts. So who holds
less than an equal share of the store loses nothing, whatever others write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush

from forerun.config import LEAST_STORE
from forerun.drafters.shelf import Copy, Shelf

__all__ = ["Store"]

_PARTS = 8  # the largest batch, and so what is forgotten at once, is this part of the store
_LARGEST = 1 << 19  # sorting more at a time would hold up texts for longer than half a second
_SLACK = 64  # entries of the heap that may be out of date, besides one a tenant
_SHORTEST = 3  # a text of fewer tokens has nothing to find


class Store:
    """Texts by tenant.

    Args:
        most: Tokens that it holds at most, of all tenants; the corpus comes on top.

    Attributes:
        most: The same.
        corpus: Texts that every tenant may see.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.corpus = Shelf(most)
        self._largest = max(LEAST_STORE, min(most // _PARTS, _LARGEST))
        self._shelves: dict[str, Shelf] = {}
        self._size = 0
        # Who holds the most comes first: minus the tokens, when the tenant came, its name. What
        # isn't true any more is passed over when it comes up.
        self._heap: list[tuple[int, int, str]] = []
        self._came: dict[str, int] = {}

    def __len__(self) -> int:
        """Return how many tokens tenants' texts count as."""
        return self._size

    @property
    def tenants(self) -> list[str]:
        """Those that have texts here, in the order they came."""
        return list(self._shelves)

    def learn(self, tenant: str, texts: Iterable[Sequence[int]]) -> None:
        """Keep some texts of one tenant, the newest last; a very long one is kept in parts."""
        if self.most < LEAST_STORE:
            return
        room = self._largest - 2
        parts = [
            text[start : start + room] for text in texts for start in range(0, len(text), room)
        ]
        parts = _newest([part for part in parts if len(part) >= _SHORTEST], self.most)
        if not parts:
            return
        if tenant not in self._shelves:
            self._shelves[tenant] = Shelf(self._largest)
            self._came[tenant] = next(reversed(self._came.values()), 0) + 1
        shelf = self._shelves[tenant]
        before = len(shelf)
        for batch in _batches(parts, room):
            shelf.add(batch)
        self._resized(tenant, before)
        while self._size > self.most:
            self._drop_oldest()

    def has(self, tenant: str) -> bool:
        """Whether there is anything that a text of this tenant may be searched in."""
        return tenant in self._shelves or bool(self.corpus.batches)

    def find(self, tenant: str, tail: str, most: int) -> list[Copy]:
        """Return where a text of this tenant may go on, the longest match first.

        Args:
            tenant: Whose text it is.
            tail: Its end, from `forerun.drafters.shelf.backwards`.
            most: How many places of the tenant's texts, and how many of the corpus, at most.
        """
        shelf = self._shelves.get(tenant)
        found = [] if shelf is None else shelf.find(tail, most)
        return found + self.corpus.find(tail, most) if self.corpus.batches else found

    def texts(self, tenant: str) -> Iterator[list[int]]:
        """Yield a tenant's texts, the oldest first."""
        shelf = self._shelves.get(tenant)
        return iter(()) if shelf is None else shelf.texts()

    def forget(self) -> None:
        """Drop all tenants' texts; the corpus stays."""
        self._shelves.clear()
        self._came.clear()
        self._heap.clear()
        self._size = 0

    def _drop_oldest(self) -> None:
        """Forget the oldest texts of the tenant that holds the most; of equals, the first."""
        while True:
            size, came, name = heappop(self._heap)
            if self._came.get(name) == came and len(self._shelves[name]) == -size:
                break
        self._shelves[name].drop_oldest()
        self._resized(name, -size)

    def _resized(self, tenant: str, before: int) -> None:
        """Take note of what a tenant holds now."""
        size = len(self._shelves[tenant])
        self._size += size - before
        if not size:
            del self._shelves[tenant], self._came[tenant]
            return
        heappush(self._heap, (-size, self._came[tenant], tenant))
        if len(self._heap) > 2 * len(self._shelves) + _SLACK:
            self._heap = [(-len(s), self._came[name], name) for name, s in self._shelves.items()]
            heapify(self._heap)


def _newest(parts: Sequence[Sequence[int]], room: int) -> list[Sequence[int]]:
    """Return the last ones, as many as there could be room for."""
    first = len(parts)
    while first and room > len(parts[first - 1]):
        first -= 1
        room -= len(parts[first]) + 1
    return list(parts[first:])


def _batches(parts: Sequence[Sequence[int]], room: int) -> Iterator[list[Sequence[int]]]:
    """Yield them in order, as many together as a batch has room for."""
    batch: list[Sequence[int]] = []
    size = 0
    for part in parts:
        if batch and size + len(part) + 1 > room:
            yield batch
            batch, size = [], 0
        batch.append(part)
        size += len(part) + 1
    yield batch
