"""Which texts the next steps will keep: a beam search over what drafters say, and the target said.

Leviathan et al. (2023), appendix A.4: the drafter searches with a beam as wide as the target's or
wider, and the target scores all texts that it kept. Here a text's score is the target's as far as
its rows are known, and from there on the sum of the logarithms of the drafter's confidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

from forerun.beam.tree import TextNode
from forerun.core.tree import ROOT, Draft
from forerun.drafters.grow import MOST_GUESSES, surest
from forerun.drafters.protocol import NOWHERE, Drafter, DraftRequest, Guess, Guesser, Place
from forerun.errors import EngineError

__all__ = ["Extent", "guess_levels"]

_SHARE = 0.5  # of what is left, which each guess of a draft without confidence is held to have


class Extent(NamedTuple):
    """How much is to be guessed.

    Attributes:
        levels: Steps ahead.
        width: Most texts of a level, and guesses at a place.
        vocab_size: Tokens that the target knows.
    """

    levels: int
    width: int
    vocab_size: int


class _Tip(NamedTuple):
    """A text as the search over guesses reaches it; its place is where the drafter stands."""

    node: TextNode
    score: float
    place: Place


class _DraftPlace:
    """A node of a draft, asked as a place: its first child is held to be the likeliest."""

    __slots__ = ("_draft", "_node")

    def __init__(self, draft: Draft, node: int = ROOT) -> None:
        self._draft, self._node = draft, node

    def guesses(self, most: int) -> Sequence[Guess]:
        children = [self._draft.nodes[at] for at in self._draft.children(self._node)[:most]]
        return [
            Guess(child.token, _SHARE ** (rank + 1), child.drafter, rank)
            for rank, child in enumerate(children)
        ]

    def after(self, token: int) -> Place:
        child = self._draft.child(self._node, token)
        return NOWHERE if child is None else _DraftPlace(self._draft, child)


def guess_levels(
    drafter: Drafter,
    requests: Sequence[DraftRequest | None],
    running: Sequence[tuple[TextNode, float]],
    extent: Extent,
    expects: Callable[[int], bool],
) -> list[list[TextNode]]:
    """Return the texts that are expected to run after one step more, after two, and so on.

    Args:
        drafter: Who guesses.
        requests: One for each running beam; None for one that nobody can guess at.
        running: The beams, best first, with their scores.
        extent: How much is wanted.
        expects: Says of a token whether a text goes on behind it.

    Returns:
        The levels, each the likeliest first; a level that nobody has a guess for is the end.
    """
    places = _places(drafter, requests)
    tips = [_Tip(node, score, place) for (node, score), place in zip(running, places, strict=True)]
    levels: list[list[TextNode]] = []
    while len(levels) < extent.levels:
        found = [
            (score, tip, token)
            for tip in tips
            for token, score in _following(tip, extent)
            if expects(token)
        ]
        if not found:
            break
        found.sort(key=lambda each: -each[0])
        tips = [
            _Tip(tip.node.child(token), score, tip.place.after(token))
            for score, tip, token in found[: extent.width]
        ]
        levels.append([tip.node for tip in tips])
    return levels


def _places(drafter: Drafter, requests: Sequence[DraftRequest | None]) -> list[Place]:
    if isinstance(drafter, Guesser):
        return [NOWHERE if request is None else drafter.place(request) for request in requests]
    asked = [request for request in requests if request is not None]
    drafts = drafter.draft(asked) if asked else []
    if len(drafts) != len(asked):
        what = f"Drafter {drafter.name!r} gave {len(drafts)} drafts for {len(asked)} texts."
        raise EngineError(what)
    left = iter(drafts)
    return [NOWHERE if request is None else _DraftPlace(next(left)) for request in requests]


def _following(tip: _Tip, extent: Extent) -> list[tuple[int, float]]:
    """Return what may follow a text, each with the score that the longer one would have."""
    if tip.node.row is not None:
        return [(token, tip.score + log_p) for token, log_p in zip(*tip.node.row, strict=True)]
    guesses = surest(islice(tip.place.guesses(extent.width), MOST_GUESSES))
    for guess in guesses[: extent.width]:
        if not 0 <= guess.token < extent.vocab_size:
            raise EngineError(f"Drafter {guess.drafter!r} proposed token {guess.token}.")
    return [
        (guess.token, tip.score + math.log(guess.confidence))
        for guess in guesses[: extent.width]
        if guess.confidence > 0
    ]
