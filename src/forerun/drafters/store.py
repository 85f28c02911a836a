"""What texts leave behind for later texts of the same tenant, in bounded memory.

A tenant's texts are searched for that tenant alone: no other tenant's guesses, nor the counts and
confidences they come with, depend on them. What the user gave as a corpus is searched for all.

When there is no more room, the tenant that holds the most loses its oldest texts. So who holds
less than an equal share of the store loses nothing, whatever others write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from forerun.drafters.shelf import Copy, Shelf

__all__ = ["Store"]

_PARTS = 8  # the largest batch, and so what is forgotten at once, is this part of the store
_LARGEST = 1 << 19  # sorting more at a time would hold up texts for longer than half a second
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
        self._largest = max(1, min(most // _PARTS, _LARGEST))
        self._shelves: dict[str, Shelf] = {}

    def __len__(self) -> int:
        """Return how many tokens tenants' texts count as."""
        return sum(map(len, self._shelves.values()))

    @property
    def tenants(self) -> list[str]:
        """Those that have texts here, in the order they came."""
        return list(self._shelves)

    def learn(self, tenant: str, texts: Iterable[Sequence[int]]) -> None:
        """Keep some texts of one tenant, the newest last; a very long one is kept in parts."""
        room = max(self._largest - 2, 1)
        parts = [
            text[start : start + room] for text in texts for start in range(0, len(text), room)
        ]
        parts = [part for part in parts if len(part) >= _SHORTEST]
        if not parts:
            return
        shelf = self._shelves.setdefault(tenant, Shelf(self._largest))
        for batch in _batches(parts, room):
            shelf.add(batch)
        while len(self) > self.most:
            name, largest = max(self._shelves.items(), key=lambda pair: len(pair[1]))
            largest.drop_oldest()
            if not largest.batches:
                del self._shelves[name]

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
