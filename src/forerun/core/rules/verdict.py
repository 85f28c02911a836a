"""What a rule decides, and what every rule looks like."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

from forerun.core.coins import Coins
from forerun.core.noise import Noise
from forerun.core.scored import ScoredDraft

__all__ = ["Chance", "Rule", "Verdict"]


class Chance(NamedTuple):
    """All that a rule may take its numbers from in one round."""

    noise: Noise
    coins: Coins
    round: int = 0


class Verdict(NamedTuple):
    """What stays of a draft.

    Attributes:
        accepted: The draft's nodes that stay, a path from below the root.
        token: The target's own token after them.
        kind: "corrected" where the draft failed, "bonus" where all of it held, be it empty.
    """

    accepted: tuple[int, ...]
    token: int
    kind: Literal["corrected", "bonus"]


class Rule(Protocol):
    """Decides how much of a draft stays, and which token follows."""

    @property
    def draws_from(self) -> Literal["noise", "coins"]:
        """What the drafter may look at: the shared noise, or coins of its own."""
        ...

    @property
    def keeps_trees(self) -> bool:
        """Whether drafts may branch."""
        ...

    @property
    def exact(self) -> bool:
        """Whether the text has exactly the target's law."""
        ...

    def verify(self, scored: ScoredDraft, chance: Chance) -> Verdict:
        """Decide."""
        ...
