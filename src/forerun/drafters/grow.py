"""Drafts of a fixed shape, grown from guesses at one place after the other.

Where the shape is to be the one that pays, `forerun.control.choice` grows it instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from forerun.core.proposal import Point
from forerun.core.tree import ROOT, Draft, Node
from forerun.drafters.protocol import DraftRequest, Guess, Place

__all__ = ["grow", "surest"]

MOST_GUESSES = 1024  # at one place; whoever has no end of them is heard so far


def grow(place: Place, request: DraftRequest) -> Draft:
    """Return a comb below `place`: the surest guess carries the trunk on, the next are leaves.

    Args:
        place: The root's.
        request: Gives length and width.
    """
    nodes: list[Node] = []
    tip = ROOT
    for _ in range(request.length):
        children = surest(islice(place.guesses(request.width), MOST_GUESSES))[: request.width]
        if not children:
            break
        first = len(nodes)
        nodes += [Node(guess.token, tip, Point(guess.token), guess.drafter) for guess in children]
        tip, place = first, place.after(children[0].token)
    return Draft(tuple(nodes))


def surest(guesses: Iterable[Guess]) -> list[Guess]:
    """Return each token's most confident guess, the most confident first; of equals the first."""
    best: dict[int, Guess] = {}
    for guess in guesses:
        if guess.token not in best or guess.confidence > best[guess.token].confidence:
            best[guess.token] = guess
    return sorted(best.values(), key=lambda guess: -guess.confidence)
