"""What a beam search is asked for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from forerun.core.beams import BeamRule
from forerun.core.warp import Warp

__all__ = ["BeamAsk", "stays_ahead"]


@dataclass(frozen=True, slots=True)
class BeamAsk:
    """What is asked for.

    Attributes:
        prompt: At least one token, and fewer than the context.
        rule: What is searched for; its limit leaves room in the context.
        warp: Masks, bias and penalties.
        depth: Levels that are guessed; None is what pays.
        width: Texts of a level, over beams; None is what pays.
        tenant: Whose text it is, for drafters.
        prediction: The output that is expected, for drafters.
    """

    prompt: tuple[int, ...]
    rule: BeamRule
    warp: Warp
    depth: int | None = None
    width: int | None = None
    tenant: str = ""
    prediction: tuple[int, ...] = ()


def stays_ahead(drafters: Collection[str]) -> bool:
    """Return whether, with drafters of these names, drafts may stay in the target's sequences.

    Not with those that run the target itself: they must find all of a text but its last token.
    """
    return not {"early_exit", "exit"}.intersection(drafters)
