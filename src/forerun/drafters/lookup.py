"""Prompt lookup: where the text's last tokens stood before, what followed may follow again.

Saxena (2023), "Prompt lookup decoding"; here the longest n-gram goes first, and of equals the
most recent one. What an encoder has read counts as standing before the text: there is what
summaries, corrections and translations copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from forerun.core.tree import Draft
from forerun.drafters.memory import BORDER, Follower
from forerun.drafters.protocol import DraftRequest, Guess
from forerun.drafters.table import DrafterKit

__all__ = ["LONGEST", "RECENT", "SHORTEST", "Lookup", "NGrams"]

SHORTEST, LONGEST = 1, 4  # n-grams looked for, in tokens
RECENT = 32  # occurrences of one n-gram looked at, from the text's end
_COPIES = 8  # of them that a place follows
_WORTH = (0.0, 0.25, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85)  # a copy's, by tokens that match
_NEXT = 0.5  # what each further copy is worth, over the one before


class NGrams:
    """Where each n-gram of one text ends.

    Attributes:
        tokens: The text's; before them what an encoder has read, and a border.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self._before = 0
        self._ends: dict[tuple[int, ...], list[int]] = {}

    def __len__(self) -> int:
        return len(self.tokens) - self._before

    def read(self, source: Sequence[int]) -> None:
        """Know what an encoder has read, too."""
        if source and not self._before:
            text, self.tokens, self._ends = self.tokens, [], {}
            for token in (*source, BORDER, *text):
                self.push(token)
            self._before = len(source) + 1

    def push(self, token: int) -> None:
        """Note the n-grams that end with the new token."""
        self.tokens.append(token)
        for ngram in self._last():
            self._ends.setdefault(ngram, []).append(len(self.tokens))

    def cut(self, length: int) -> None:
        """Strike out the n-grams that end beyond `length`."""
        while len(self) > length:
            for ngram in self._last():
                self._ends[ngram].pop()
                if not self._ends[ngram]:
                    del self._ends[ngram]
            self.tokens.pop()

    def copy(self) -> NGrams:
        """Return one that knows the same."""
        twin = NGrams()
        twin.tokens, twin._before = self.tokens.copy(), self._before
        twin._ends = {ngram: ends.copy() for ngram, ends in self._ends.items()}
        return twin

    def earlier(self) -> Iterator[int]:
        """Yield how many tokens stood before each continuation: longest n-gram, latest first."""
        for end, _ in self.matches():
            yield end

    def matches(self) -> Iterator[tuple[int, int]]:
        """Yield the same, each with the length of its n-gram."""
        for ngram in self._last():
            for end in reversed(self._ends[ngram][-RECENT - 1 : -1]):
                yield end, len(ngram)

    def _last(self) -> list[tuple[int, ...]]:
        """Return the n-grams at the text's end, the longest first."""
        longest = min(LONGEST, len(self.tokens))
        return [tuple(self.tokens[-n:]) for n in range(longest, SHORTEST - 1, -1)]


class _Copies:
    """What followed earlier occurrences of the text's end, and of the guesses since.

    A copy is where it goes on, after how many tokens it began, and how many tokens match.
    """

    __slots__ = ("_copies", "_tokens")

    def __init__(self, tokens: Sequence[int], copies: Sequence[tuple[int, int, int]]) -> None:
        self._tokens, self._copies = tokens, copies

    def guesses(self, most: int) -> Sequence[Guess]:
        guesses: list[Guess] = []
        seen: set[int] = set()
        share = 1.0
        for at, _, matched in self._copies:
            token = self._tokens[at]
            if token not in seen and token != BORDER:
                seen.add(token)
                confidence = share * _WORTH[min(matched, len(_WORTH) - 1)]
                guesses.append(Guess(token, confidence, Lookup.name, len(guesses)))
                share *= _NEXT
                if len(guesses) == most:
                    break
        return guesses

    def after(self, token: int) -> _Copies:
        tokens = self._tokens
        end = len(tokens)
        return _Copies(
            tokens,
            [
                (at + 1 if at + 1 < end else start, start, matched + 1)
                for at, start, matched in self._copies
                if tokens[at] == token
            ],
        )


class Lookup(Follower[NGrams]):
    """Copies what followed the text's last n-gram; at width w, w different continuations.

    A copy that reaches the text's end goes on with itself, so a loop is copied at any length.
    """

    name = "lookup"

    def __init__(self, kit: DrafterKit) -> None:
        super().__init__(NGrams)

    def guess(self, memory: NGrams, request: DraftRequest) -> Draft:
        """Return the continuations as one tree, common beginnings shared."""
        memory.read(request.source)
        found: list[tuple[int, ...]] = []
        for end in memory.earlier():
            if len(found) == request.width or not request.length:
                break
            copy = _copy(memory.tokens, end, request.length)
            if copy and copy not in found:
                found.append(copy)
        return Draft.merged(found, self.name)

    def place(self, request: DraftRequest) -> _Copies:
        """Return the earlier occurrences of the text's end."""
        memory = self._in_step(request.sequence, request.tokens)
        memory.read(request.source)
        found: dict[int, int] = {}
        for end, matched in islice(memory.matches(), 4 * _COPIES):
            found.setdefault(end, matched)
            if len(found) == _COPIES:
                break
        return _Copies(memory.tokens, [(end, end, matched) for end, matched in found.items()])


def _copy(tokens: Sequence[int], start: int, length: int) -> tuple[int, ...]:
    """Return `length` tokens from `start` < len(tokens) on, repeating what runs over the end.

    Fewer where a border comes before.
    """
    period = len(tokens) - start
    copy = tuple(tokens[start + i % period] for i in range(length))
    return copy[: copy.index(BORDER)] if BORDER in copy else copy
