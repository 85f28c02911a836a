"""Texts in which the longest left contexts that match a text's end are found at once.

A batch of texts is kept as one string, a character a token, backwards: behind every position
stands, in reading order, what came *before* the token there. Positions are sorted by that, so a
binary search for the text's end, backwards, lands between the contexts that share most of it: the
longest match, the next longest beside it, with no step for each length (a suffix array of the
reversed text: Manber, Myers, 1993, "Suffix arrays: a new method for on-line string searches").

Memory: 8 bytes a token, 6 where no token reaches 65,535.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.config import LEAST_STORE

__all__ = ["DEPTH", "LARGEST_TOKEN", "Batch", "Copy", "Shelf", "backwards"]

DEPTH = 16  # tokens of context that are told apart
LARGEST_TOKEN = 0x10FFFF - 1  # a token is the character after it
_END = "\0"  # between texts; no token's character
_LEAST = 2  # tokens that must match
_GROWTH = 4  # a batch this many times as large as the one behind it is left alone

Copy = tuple[str, int, int]
"""A text's continuation: a batch's string, where the next token stands, how many tokens match."""


def backwards(tokens: Sequence[int]) -> str:
    """Return the last DEPTH tokens as a batch would hold them."""
    return "".join([chr(token + 1) for token in reversed(tokens[-DEPTH:])])


class Batch:
    """Some texts, sealed.

    Args:
        text: The texts backwards, the last one first, `_END` around each.
    """

    __slots__ = ("_order", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._order = array("i", _sorted_positions(text).tobytes())

    def __len__(self) -> int:
        """Return how many tokens it counts as: the ends of texts included, and a least number."""
        return max(len(self.text), LEAST_STORE)

    @classmethod
    def of(cls, texts: Iterable[Sequence[int]]) -> Batch:
        """Return a batch of token ids, in the order they were written."""
        parts = [np.array(text, np.uint32)[::-1] + 1 for text in texts]
        ended = [part for text in reversed(parts) for part in (np.zeros(1, np.uint32), text)]
        codes = np.concatenate([*ended, np.zeros(1, np.uint32)])
        return cls(codes.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass"))

    def joined(self, newer: Batch) -> Batch:
        """Return a batch with the texts of both."""
        return Batch(newer.text[:-1] + self.text)

    def texts(self) -> Iterator[list[int]]:
        """Yield the token ids of each text, in the order they were written."""
        for text in reversed(self.text[1:-1].split(_END)):
            yield [ord(character) - 1 for character in reversed(text)]

    def find(self, tail: str, most: int) -> list[Copy]:
        """Return the places whose contexts share most with a text's end, the longest first.

        Args:
            tail: The text's end, from `backwards`.
            most: How many at most.
        """
        text, order = self.text, self._order
        above = bisect_left(order, tail, key=lambda position: text[position : position + DEPTH])
        below, last = above - 1, len(order)
        upper = _shared(text, order[above], tail, len(tail)) if above < last else 0
        lower = _shared(text, order[below], tail, len(tail)) if below >= 0 else 0
        found: list[Copy] = []
        while len(found) < most and (upper >= _LEAST or lower >= _LEAST):
            if upper >= lower:
                found.append((text, order[above] - 1, upper))
                above += 1
                upper = _shared(text, order[above], tail, upper) if above < last else 0
            else:
                found.append((text, order[below] - 1, lower))
                below -= 1
                lower = _shared(text, order[below], tail, lower) if below >= 0 else 0
        return found


def _shared(text: str, position: int, tail: str, most: int) -> int:
    """Return how many characters of `tail` stand in the text from `position` on, up to `most`."""
    while most and not text.startswith(tail[:most], position):
        most -= 1
    return most


def _sorted_positions(text: str) -> NDArray[np.int32]:
    """Return where a token has a context and one to follow, sorted by DEPTH characters from there.

    By doubling what is sorted by, four times; of equals the first one, which is the newest.
    """
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4").astype(np.int64)
    rank, size = codes, 1
    while True:
        following = np.zeros_like(rank)
        following[:-size] = rank[size:]
        pair = rank * (int(rank.max()) + 1) + following
        size *= 2
        if size == DEPTH:
            break
        rank = np.unique(pair, return_inverse=True)[1].reshape(-1) + 1
    order = np.argsort(pair, kind="stable")
    usable = np.zeros(len(codes), bool)
    usable[1:] = (codes[1:] != 0) & (codes[:-1] != 0)
    return order[usable[order]].astype(np.int32)


class Shelf:
    """Texts that are searched together, in batches of growing size: few to search, cheap to add to.

    Args:
        largest: Tokens of the largest batch that two are joined to.
    """

    def __init__(self, largest: int) -> None:
        self._largest, self._size = largest, 0
        self.batches: list[Batch] = []

    def __len__(self) -> int:
        """Return how many tokens it counts as."""
        return self._size

    def add(self, texts: Sequence[Sequence[int]]) -> None:
        """Add texts, the newest last."""
        kept = [text for text in texts if len(text)]
        if not kept:
            return
        self.batches.append(Batch.of(kept))
        self._size += len(self.batches[-1])
        while len(self.batches) > 1:
            older, newer = self.batches[-2:]
            if len(newer) * _GROWTH < len(older) or len(older) + len(newer) > self._largest:
                break
            self.batches[-2:] = [older.joined(newer)]
            self._size += len(self.batches[-1]) - len(older) - len(newer)

    def drop_oldest(self) -> None:
        """Forget the oldest batch."""
        self._size -= len(self.batches.pop(0))

    def find(self, tail: str, most: int) -> list[Copy]:
        """Return the places whose contexts share most with a text's end, the longest first."""
        if len(self.batches) == 1:
            return self.batches[0].find(tail, most)
        found = [copy for batch in reversed(self.batches) for copy in batch.find(tail, most)]
        found.sort(key=_matched, reverse=True)
        return found[:most]

    def texts(self) -> Iterator[list[int]]:
        """Yield all texts, the oldest first."""
        for batch in self.batches:
            yield from batch.texts()


def _matched(copy: Copy) -> int:
    return copy[2]
