"""Several drafters at once: at each place all are asked, and all learn from every text."""

from __future__ import annotations

from collections.abc import Sequence

from forerun.core.tree import Draft
from forerun.drafters.first import First
from forerun.drafters.grow import grow
from forerun.drafters.protocol import (
    NOWHERE,
    DraftRequest,
    Guess,
    Guesser,
    Place,
    parts_of,
    price_of,
)

__all__ = ["Mix"]


class Mix(First):
    """Guessers whose trees are one: a token that several guess is one node, and the likelier.

    What each one's word is worth is for the choice to find out. In a draft of fixed length, where
    nobody counts, the most confident guess leads; under a rule that draws coins, the first drafter
    that has a guess drafts, with its own coins.

    Args:
        drafters: Each stands for itself in every token's provenance.
    """

    def __init__(self, drafters: Sequence[Guesser]) -> None:
        super().__init__(drafters)
        self._guessers = tuple(drafters)

    @property
    def price(self) -> float:
        """Seconds that asking all of them about one more place takes."""
        return sum(map(price_of, self._guessers))

    def place(self, request: DraftRequest) -> Place:
        """Return where all of them stand that may have a guess."""
        parts = [parts_of(guesser.place(request)) for guesser in self._guessers]
        free = [place for place, _ in parts if place is not NOWHERE]
        priced = [place for _, place in parts if place is not NOWHERE]
        if not priced:
            return free[0] if len(free) == 1 else _Places(free)
        return _PartedPlaces(_Places(free), _Places(priced))

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Merge the guesses of texts that share their noise; draw coins for the others."""
        drafts = [Draft()] * len(requests)
        drawing = [i for i, request in enumerate(requests) if request.coins is not None]
        for i, draft in zip(drawing, super().draft([requests[i] for i in drawing]), strict=True):
            drafts[i] = draft
        for i, request in enumerate(requests):
            if request.coins is None:
                drafts[i] = grow(self.place(request), request)
        return drafts


class _Places:
    """One place, seen by several drafters."""

    __slots__ = ("_places",)

    def __init__(self, places: list[Place]) -> None:
        self._places = places

    def guesses(self, most: int) -> Sequence[Guess]:
        return [guess for place in self._places for guess in place.guesses(most)]

    def after(self, token: int) -> _Places:
        return _Places([place.after(token) for place in self._places])


class _PartedPlaces:
    """One place, seen by drafters that cost nothing to ask and by some that do."""

    __slots__ = ("parts",)

    def __init__(self, free: _Places, priced: _Places) -> None:
        self.parts = free, priced

    def guesses(self, most: int) -> Sequence[Guess]:
        free, priced = self.parts
        return [*free.guesses(most), *priced.guesses(most)]

    def after(self, token: int) -> _PartedPlaces:
        free, priced = self.parts
        return _PartedPlaces(free.after(token), priced.after(token))
