"""What every drafter can do: follow texts as they grow, and guess how they go on.

Nothing a drafter does can change the text under rule `match`, nor its law under the other exact
rules, as long as each node's proposal is the law its token was really drawn from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from forerun.core.coins import Coins
from forerun.core.noise import Noise
from forerun.core.tree import Draft
from forerun.core.warp import State, Warp

__all__ = ["DraftRequest", "Drafter", "Outcome"]


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """One text that wants a draft.

    Attributes:
        sequence: Which text, as the engine named it in `Drafter.open`.
        tokens: Prompt and output so far; the last is the draft's root.
        prompt_length: How many of them are the prompt.
        length: Most tokens from the root to a leaf.
        width: Most children of a node.
        warp: The request's warp.
        state: The warp's state at the root.
        round: Of this request, from 0; part of a coin's address.
        noise: The text's noise, under rule match: a drafter with a law ranks by log q + g.
        coins: The drafter's coins, under the other rules: a drafter with a law draws from q.
            Exactly one of noise and coins is there.
    """

    sequence: int
    tokens: Sequence[int]
    prompt_length: int
    length: int
    width: int
    warp: Warp
    state: State
    round: int
    noise: Noise | None = None
    coins: Coins | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a draft.

    Attributes:
        sequence: Which text.
        draft: What was proposed.
        accepted: The draft's nodes that stay in the text, a path from below the root.
        tokens: Prompt and output, the round's new tokens included.
        emitted: How many tokens the round added.
    """

    sequence: int
    draft: Draft
    accepted: tuple[int, ...]
    tokens: Sequence[int]
    emitted: int


@runtime_checkable
class Drafter(Protocol):
    """Proposes tokens for many sequences at once, and learns from what became of them."""

    @property
    def name(self) -> str:
        """The name in the table of drafters, and in every token's provenance."""
        ...

    def open(self, sequence: int, tokens: Sequence[int]) -> None:
        """Follow a new text that begins with `tokens`."""
        ...

    def fork(self, sequence: int, new: int) -> None:
        """Follow text `new`, which has been `sequence` until now."""
        ...

    def rollback(self, sequence: int, length: int) -> None:
        """Forget all but the first `length` tokens of the text."""
        ...

    def free(self, sequence: int) -> None:
        """Stop following the text."""
        ...

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Propose a draft for each request, in order; an empty draft is a fine answer.

        A draft is at most `length` deep and `width` wide. Only what the request gives may be used
        for chance: its noise, or its coins at addresses with purpose DRAFT.
        """
        ...

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Learn what became of drafts, and follow the texts' new tokens."""
        ...
