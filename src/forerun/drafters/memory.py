"""What drafters share in following texts: one memory a text, kept in step; or no memory at all."""

# ruff: noqa: B027 (having nothing to do is all that Memoryless does)

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, Never, Protocol, Self, TypeVar

from forerun.core.tree import Draft
from forerun.drafters.protocol import DraftRequest, Outcome
from forerun.errors import EngineError

__all__ = ["BORDER", "Followed", "Follower", "Leaving", "Memory", "Memoryless"]


BORDER = -1
"""Stands between what an encoder has read and the text; no token, and never guessed."""


class Memory(Protocol):
    """What is kept of one text."""

    def __len__(self) -> int:
        """Return how many of the text's tokens it knows."""
        ...

    def push(self, token: int) -> None:
        """Learn the text's next token."""
        ...

    def cut(self, length: int) -> None:
        """Forget all but the first `length` tokens; `length` is less than it knows."""
        ...

    def copy(self) -> Self:
        """Return one that knows the same, and shares nothing that changes."""
        ...


Kept = TypeVar("Kept")


class Followed(dict[int, Kept]):
    """What a drafter keeps of each text that it follows.

    Args:
        drafter: Whose it is, for errors: another text than those is an `EngineError`.
    """

    def __init__(self, drafter: str) -> None:
        super().__init__()
        self._drafter = drafter

    def add(self, sequence: int, make: Callable[[], Kept]) -> None:
        """Follow one more text, if it is another; what is kept of it is made then."""
        if sequence in self:
            raise EngineError(f"Drafter {self._drafter} already follows text {sequence}.")
        self[sequence] = make()

    def leave(self, sequence: int) -> Kept:
        """Follow a text no longer, and return what was kept of it."""
        kept = self[sequence]
        del self[sequence]
        return kept

    def __missing__(self, sequence: int) -> Never:
        raise EngineError(f"Drafter {self._drafter} does not follow text {sequence}.")


M = TypeVar("M", bound=Memory)


class Follower(ABC, Generic[M]):
    """A drafter that remembers each text by itself.

    Between two calls a text only grows, unless `rollback` says otherwise.

    Args:
        remember: Makes the memory of an empty text.
    """

    name: str

    def __init__(self, remember: Callable[[], M]) -> None:
        self._remember = remember
        self._memories = Followed[M](self.name)

    @abstractmethod
    def guess(self, memory: M, request: DraftRequest) -> Draft:
        """Return a draft for one text that `memory` is in step with."""

    def open(self, sequence: int, tokens: Sequence[int]) -> None:
        """Follow a new text that begins with `tokens`."""
        self._memories.add(sequence, self._remember)
        self._in_step(sequence, tokens)

    def fork(self, sequence: int, new: int) -> None:
        """Follow text `new`, which has been `sequence` until now."""
        self._memories.add(new, self._memories[sequence].copy)

    def rollback(self, sequence: int, length: int) -> None:
        """Forget all but the first `length` tokens of the text."""
        memory = self._memories[sequence]
        if length < len(memory):
            memory.cut(length)

    def free(self, sequence: int) -> None:
        """Stop following the text."""
        self._memories.leave(sequence)

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Guess for each text by itself."""
        return [self.guess(self._in_step(r.sequence, r.tokens), r) for r in requests]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Learn the texts' new tokens."""
        for outcome in outcomes:
            self._in_step(outcome.sequence, outcome.tokens)

    def _in_step(self, sequence: int, tokens: Sequence[int]) -> M:
        memory = self._memories[sequence]
        for token in tokens[len(memory) :]:
            memory.push(token)
        return memory


class Leaving(Follower[M]):
    """A drafter whose texts, when they are freed, are left to later texts of the same tenant.

    A text belongs to the tenant of its requests; one that no draft was asked for is nobody's.
    """

    def __init__(self, remember: Callable[[], M]) -> None:
        super().__init__(remember)
        self._tenants: dict[int, str] = {}

    @abstractmethod
    def leave(self, tenant: str, memory: M) -> None:
        """Keep what a text has taught, for the tenant's later texts."""

    def owned(self, request: DraftRequest) -> None:
        """Note whose text a request is about."""
        self._tenants[request.sequence] = request.tenant

    def fork(self, sequence: int, new: int) -> None:
        """Follow text `new`, which has been `sequence` until now."""
        super().fork(sequence, new)
        if sequence in self._tenants:
            self._tenants[new] = self._tenants[sequence]

    def free(self, sequence: int) -> None:
        """Stop following the text; its tenant's later texts may guess from it."""
        memory = self._memories[sequence]
        super().free(sequence)
        tenant = self._tenants.pop(sequence, None)
        if tenant is not None:
            self.leave(tenant, memory)


class Memoryless(ABC):
    """A drafter whose guess follows from the request alone."""

    name: str

    @abstractmethod
    def guess(self, request: DraftRequest) -> Draft:
        """Return a draft for one text."""

    def open(self, sequence: int, tokens: Sequence[int]) -> None:
        """Nothing to remember."""

    def fork(self, sequence: int, new: int) -> None:
        """Nothing to copy."""

    def rollback(self, sequence: int, length: int) -> None:
        """Nothing to forget."""

    def free(self, sequence: int) -> None:
        """Nothing to forget."""

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Guess for each text by itself."""
        return [self.guess(request) for request in requests]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Nothing to learn."""
