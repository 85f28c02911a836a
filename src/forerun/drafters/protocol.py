"""What every drafter can do: follow texts as they grow, and guess how they go on.

Nothing a drafter does can change the text under rule `match`, nor its law under the other exact
rules, as long as each node's proposal is the law its token was really drawn from.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from forerun.core.coins import Coins
from forerun.core.noise import Noise
from forerun.core.tree import Draft
from forerun.core.warp import State, Warp

__all__ = [
    "NOWHERE",
    "DraftRequest",
    "Drafter",
    "Guess",
    "Guesser",
    "Outcome",
    "Parted",
    "Place",
    "Priced",
    "Watcher",
    "layers_of",
    "parts_of",
    "price_of",
]

_NONE: Mapping[int, NDArray[np.float32]] = MappingProxyType({})


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
        ends: Tokens that end the text, so that nothing needs to be guessed behind them.
        target_sequence: The target's own name for the text, of which it holds all tokens but the
            last, and nothing is pending; None if it is in no target.
        tenant: Whose text it is; what is learned from it is for that tenant alone.
        prediction: The output that the user expects; empty if nothing is.
        source: What the target's encoder has read; empty for a target without one.
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
    ends: Collection[int] = ()
    target_sequence: int | None = None
    tenant: str = ""
    prediction: Sequence[int] = ()
    source: Sequence[int] = ()


class Outcome(NamedTuple):
    """What became of a draft.

    Attributes:
        sequence: Which text.
        draft: What was proposed.
        accepted: The draft's nodes that stay in the text, a path from below the root.
        tokens: Prompt and output, the round's new tokens included.
        emitted: How many tokens the round added.
        logits: The target's, float32 [1 + nodes, vocabulary]: the root's row, then each node's.
            They are gone after the call.
        hidden: For each layer that the drafter watches, the target's hidden states of the same
            rows, float32 [1 + nodes, width]. They, too, are gone after the call.
    """

    sequence: int
    draft: Draft
    accepted: tuple[int, ...]
    tokens: Sequence[int]
    emitted: int
    logits: NDArray[np.float32]
    hidden: Mapping[int, NDArray[np.float32]] = _NONE


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


@runtime_checkable
class Watcher(Drafter, Protocol):
    """A drafter that wants to see what the target makes of a text: hidden states of some layers.

    Those of the prompt it is shown as the target reads it, those of each round's rows stand in the
    `Outcome`. The last token's are always still to come: nothing has scored it yet.
    """

    @property
    def layers(self) -> tuple[int, ...]:
        """Which layers, as `Scores.hidden` counts them; none, and it is not shown anything."""
        ...

    def see(self, sequence: int, start: int, hidden: Mapping[int, NDArray[np.float32]]) -> None:
        """Take note of hidden states of the prompt's tokens from position `start` on.

        Called after `open`, part by part, first to last.

        Args:
            sequence: Which text.
            start: 0-based.
            hidden: Of each layer, float32 [tokens, width]; gone after the call.
        """
        ...


def layers_of(drafter: Drafter | None) -> tuple[int, ...]:
    """Return the layers whose hidden states a drafter wants to see."""
    return drafter.layers if isinstance(drafter, Watcher) else ()


class Guess(NamedTuple):
    """One token that may follow, and how sure its drafter is.

    Attributes:
        token: The token.
        confidence: The drafter's own probability that it is the target's next one, in [0, 1]. What
            that is worth is found out by counting, not taken on trust.
        drafter: Whose guess.
        rank: Which of that drafter's guesses at this place, from 0.
    """

    token: int
    confidence: float
    drafter: str
    rank: int


class Place(Protocol):
    """Where a text may stand after the root and some guesses: what is expected to follow there."""

    def guesses(self, most: int) -> Sequence[Guess]:
        """Return what may follow, each drafter's best guess first; none is a fine answer.

        Args:
            most: How many of each drafter, at most.
        """
        ...

    def after(self, token: int) -> Place:
        """Return the place one token further."""
        ...


class _Nowhere:
    """The place of a drafter that knows nothing here, nor will know anything further on."""

    __slots__ = ()

    def guesses(self, most: int) -> Sequence[Guess]:
        return ()

    def after(self, token: int) -> _Nowhere:
        return self


NOWHERE = _Nowhere()
"""The place of a drafter that knows nothing here, nor will know anything further on."""


class Parted(Place, Protocol):
    """A place that costs something to ask, all of it or in part."""

    @property
    def parts(self) -> tuple[Place, Place]:
        """What is asked at next to no cost, and what has the drafter's price."""
        ...


def parts_of(place: Place) -> tuple[Place, Place]:
    """Return a place's part that is asked at next to no cost, and the other: NOWHERE is none."""
    parts: tuple[Place, Place] = getattr(place, "parts", None) or (place, NOWHERE)
    return parts


@runtime_checkable
class Guesser(Drafter, Protocol):
    """A drafter that can be asked place by place, at next to no cost if it names no price.

    So somebody else can grow its draft, into the shape that pays; all it proposes are points.
    """

    def place(self, request: DraftRequest) -> Place:
        """Return the root's place. It holds until the text goes on."""
        ...


@runtime_checkable
class Priced(Guesser, Protocol):
    """A guesser that takes its time to be asked, and tells how much; its places are `Parted`."""

    @property
    def price(self) -> float:
        """Seconds that one more place takes, as it was of late; 0 before any was asked."""
        ...


def price_of(drafter: Drafter | None) -> float:
    """Return the seconds that asking a drafter about one more place takes."""
    # Asked every round, where an isinstance of a protocol takes longer than all the rest.
    price: float = getattr(drafter, "price", 0.0)
    return price
