"""A draft model with another tokenizer guesses: what is told between the two is text.

The draft model reads the text so far in its own tokens, writes on, and what it wrote is read in the
target's. Where the two cut words differently a guess is lost, nothing else: each proposal is a
point, and the target decides. (The idea: transformers' universal assisted generation.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from forerun.core.proposal import Point
from forerun.core.tree import ROOT, Draft, Node
from forerun.drafters.memory import Followed
from forerun.drafters.protocol import DraftRequest, Outcome
from forerun.models.tokenizer import Tokenizer
from forerun.targets.protocol import Row, Target

__all__ = ["Border", "Retold"]

_TAIL = 8  # tokens before the root by which a guess is read: enough for a word to be cut alike


class Border(NamedTuple):
    """Two tokenizers.

    Attributes:
        tell: The text of the target's tokens, special ones among them.
        read: The draft model's tokens of a text.
        retell: The text of the draft model's tokens.
        write: The target's tokens of a text that goes on.
        ends: Tokens with which the draft model ends a text.
    """

    tell: Callable[[Sequence[int]], str]
    read: Callable[[str], list[int]]
    retell: Callable[[Sequence[int]], str]
    write: Callable[[str], list[int]]
    ends: frozenset[int] = frozenset()

    @classmethod
    def between(cls, own: Tokenizer, other: Tokenizer) -> Border:
        """Return the border between the target's tokenizer and the draft model's."""
        return cls(
            tell=lambda tokens: own.decode(tokens, special=True),
            read=lambda text: other.encode(text, special=True),
            retell=lambda tokens: other.decode(tokens, special=True),
            write=lambda text: own.encode(text, special=True, bos=False),
            ends=frozenset(other.eos_ids),
        )


class _Twin:
    """The draft model's own copy of a text: a beginning of it, and guesses behind."""

    def __init__(self) -> None:
        self.sequence: int | None = None
        self.tokens: list[int] = []


class Retold:
    """Drafts chains with a target of its own and a tokenizer of its own.

    A draft of n tokens takes about n passes of the draft model, all texts in one pass a level.

    Args:
        model: The draft model.
        border: Its tokenizer and the target's.
    """

    name = "model"

    def __init__(self, model: Target, border: Border) -> None:
        self._model, self._border = model, border
        self._twins = Followed[_Twin](self.name)

    def open(self, sequence: int, tokens: Sequence[int]) -> None:
        """Follow a new text; the first draft will read it."""
        self._twins.add(sequence, _Twin)

    def fork(self, sequence: int, new: int) -> None:
        """Follow text `new`, which has been `sequence` until now; it will be read anew."""
        self._twins[sequence]  # which must be there
        self.open(new, ())

    def rollback(self, sequence: int, length: int) -> None:
        """Nothing yet: the next draft finds out what still stands."""
        self._twins[sequence]  # which must be there

    def free(self, sequence: int) -> None:
        """Stop following the text."""
        twin = self._twins.leave(sequence)
        if twin.sequence is not None:
            self._model.free(twin.sequence)

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Nothing yet: the next draft finds out what came true."""

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Write on after each text, together, and read it in the target's tokens."""
        read = [self._border.read(self._border.tell(request.tokens)) for request in requests]
        written: list[list[int]] = [[] for _ in requests]
        for level in range(max((request.length for request in requests), default=0)):
            growing = [
                place
                for place, request in enumerate(requests)
                if len(written[place]) == level < request.length
                and 0 < len(read[place]) + level <= self._model.context_length
            ]
            if not growing:
                break
            texts = [(requests[at].sequence, [*read[at], *written[at]]) for at in growing]
            for at, token in zip(growing, self._next(texts), strict=True):
                if token not in self._border.ends:
                    written[at].append(token)
        triples = zip(requests, read, written, strict=True)
        return [self._chain(request, *each) for request, *each in triples]

    def _next(self, texts: Sequence[tuple[int, list[int]]]) -> list[int]:
        """Return the likeliest token after each text, whose unseen end is scored and kept."""
        rows: list[Row] = []
        paths: list[tuple[_Twin, int, list[int]]] = []
        for name, tokens in texts:
            twin = self._twins[name]
            sequence = self._agree(twin, tokens)
            start, seen = len(rows), len(twin.tokens)
            for place, token in enumerate(tokens[seen:]):
                rows.append(Row(sequence, token, seen + place, len(rows) - 1 if place else -1))
            paths.append((twin, sequence, list(range(start, len(rows)))))
        scores = self._model.score(rows, logits=[path[-1] for _, _, path in paths])
        for (twin, sequence, path), (_, tokens) in zip(paths, texts, strict=True):
            self._model.commit(sequence, path)
            twin.tokens = tokens
        return [int(token) for token in np.argmax(scores.logits, axis=1)]

    def _agree(self, twin: _Twin, tokens: Sequence[int]) -> int:
        """Make the twin a beginning of these tokens, short of the last at least."""
        if twin.sequence is None:
            twin.tokens = list(tokens[:-1])
            twin.sequence = self._model.open(twin.tokens)
        most = min(len(twin.tokens), len(tokens) - 1)
        agreed = next((i for i in range(most) if twin.tokens[i] != tokens[i]), most)
        if agreed < len(twin.tokens):
            self._model.rollback(twin.sequence, agreed)
            del twin.tokens[agreed:]
        return twin.sequence

    def _chain(self, request: DraftRequest, read: Sequence[int], written: Sequence[int]) -> Draft:
        """Return what was written in the target's tokens."""
        border = self._border
        before = border.retell(read[-_TAIL:])
        whole = border.retell([*read[-_TAIL:], *written])
        # A character may be whole only with what follows.
        more = whole.removeprefix(before).rstrip("\ufffd") if whole.startswith(before) else ""
        tail = border.tell(request.tokens[-_TAIL:])
        known, tokens = border.write(tail), border.write(tail + more)
        # Where the text's end would be cut otherwise with more behind it, more is read by itself.
        is_cut_alike = tokens[: len(known)] == known
        new = tokens[len(known) :] if is_cut_alike else border.write(more)
        nodes = [
            Node(token, place - 1 if place else ROOT, Point(token), self.name)
            for place, token in enumerate(new[: request.length])
        ]
        return Draft(tuple(nodes))
