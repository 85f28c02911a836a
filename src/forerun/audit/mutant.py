"""What a mutant is: one wrong line, and where it goes."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Mutant"]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One wrong line.

    Attributes:
        name: The mistake.
        happened: Where it was found in the world, or how it comes about.
        function: "module:qualified name".
        old: A piece of its source that stands there once.
        new: What the mistake writes instead.
        caught_first: The check that is asked before the others.
        instruction_sets: How many a machine must have for the mistake to show.
    """

    name: str
    happened: str
    function: str
    old: str
    new: str
    caught_first: str = "coins"
    instruction_sets: int = 1
