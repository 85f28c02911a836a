"""What a side of the race is asked, what it gives back, and what it has to be able to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from forerun.events import Stats

__all__ = ["Acceptance", "Job", "Side", "Written"]

Tally = list[int]
"""[drafted, accepted]."""


@dataclass(frozen=True, slots=True)
class Job:
    """One text to write; the same for all sides.

    Attributes:
        tokens: The prompt, in the model's chat template.
        max_tokens: At most so many are written; the model's end of text ends it before.
        temperature: 0 takes the likeliest token.
        seed: Of the noise.
        prediction: Text that is likely to stand in the answer, or None.
    """

    tokens: tuple[int, ...]
    max_tokens: int
    temperature: float
    seed: int
    prediction: str | None = None


@dataclass(slots=True)
class Acceptance:
    """What became of drafted tokens.

    Attributes:
        by_position: For each distance from the draft's root, from 1: [drafted, accepted].
        by_rank: For each place among the guesses for the same position, from 0, likewise.
    """

    by_position: dict[int, Tally] = field(default_factory=dict)
    by_rank: dict[int, Tally] = field(default_factory=dict)

    def count(self, position: int, rank: int, accepted: bool) -> None:
        """Count one drafted token."""
        for tallies, key in ((self.by_position, position), (self.by_rank, rank)):
            tally = tallies.setdefault(key, [0, 0])
            tally[0] += 1
            tally[1] += accepted

    def add(self, other: Acceptance) -> None:
        """Add another's counts to these."""
        mine = (self.by_position, self.by_rank)
        for tallies, theirs in zip(mine, (other.by_position, other.by_rank), strict=True):
            for key, (drafted, accepted) in theirs.items():
                tally = tallies.setdefault(key, [0, 0])
                tally[0] += drafted
                tally[1] += accepted

    def as_json(self) -> dict[str, list[Tally]]:
        """Return both as lists, in their order; what was never drafted has [0, 0]."""
        return {
            "by_position": _in_order(self.by_position, 1),
            "by_rank": _in_order(self.by_rank, 0),
        }


@dataclass(frozen=True, slots=True)
class Written:
    """A text that a side wrote.

    Attributes:
        token_ids: Its tokens, the one that ended it included.
        first_seconds: From the request to the first token.
        seconds: From then to the last.
        later: Tokens that came after the first did. What a draft brought together with the first
            is not among them: it came in no time that `seconds` knows of.
        passes: Of the model, the one that gave the first token included; None is not known.
        stats: Forerun's own counts and times; None from a peer.
        acceptance: What became of drafts; None is not known.
        drafted_in_rounds: By the number of drafted tokens, the rounds that had so many; empty is
            not known.
    """

    token_ids: tuple[int, ...]
    first_seconds: float
    seconds: float
    later: int
    passes: int | None = None
    stats: Stats | None = None
    acceptance: Acceptance | None = None
    drafted_in_rounds: Mapping[int, int] = field(default_factory=dict)

    @property
    def is_timed(self) -> bool:
        """Whether anything came after the first token did; else it has no speed."""
        return self.later > 0

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        return {
            "token_ids": list(self.token_ids),
            "first_seconds": self.first_seconds,
            "seconds": self.seconds,
            "later": self.later,
            "passes": self.passes,
            "stats": None if self.stats is None else self.stats.as_json(),
            "acceptance": None if self.acceptance is None else self.acceptance.as_json(),
            "drafted_in_rounds": dict(sorted(self.drafted_in_rounds.items())),
        }


@runtime_checkable
class Side(Protocol):
    """Somebody who writes texts."""

    @property
    def name(self) -> str:
        """What a report calls it."""
        ...

    @property
    def is_ours(self) -> bool:
        """Whether it must write the same tokens as our other sides, and may not fail."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return what a reader must know of it: weights, settings, version; plain data."""
        ...

    def write(self, job: Job) -> Written:
        """Write one text, with empty stores unless the side is a warm one."""
        ...

    def cpu_seconds(self) -> float:
        """Return what it has used of the processor in processes of its own that still run."""
        ...

    def close(self) -> None:
        """Give back all that it holds."""
        ...


def _in_order(tallies: dict[int, Tally], first: int) -> list[Tally]:
    last = max(tallies, default=first - 1)
    return [tallies.get(key, [0, 0]) for key in range(first, last + 1)]
