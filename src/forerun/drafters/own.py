"""Drafters that users bring: whatever they answer is checked before the engine sees it.

The shipped drafters are tested instead, and pay for no check.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from typing import Any, Never

import numpy as np
from numpy.typing import NDArray

from forerun.core.tree import Draft
from forerun.drafters.protocol import (
    NOWHERE,
    Drafter,
    DraftRequest,
    Guess,
    Guesser,
    Outcome,
    Place,
    Watcher,
    price_of,
)
from forerun.errors import EngineError, ForerunError, OptionError
from forerun.printable import counted

__all__ = ["checked", "checked_name"]

_SOURCES = 16  # drafters that one place may speak for
_CERTAIN = 1.0 + 1e-9  # sums of shares may be rounded up
_WAY_OUT = "See forerun.drafters.protocol for what a drafter has to give."


def checked(drafter: Drafter) -> Drafter:
    """Return a drafter that gives what this one does, or an `EngineError` that names it."""
    return _OwnGuesser(drafter) if isinstance(drafter, Guesser) else _Own(drafter)


def checked_name(drafter: object, taken: Collection[str]) -> str:
    """Return the name of what a user brings, if it is a drafter.

    Args:
        drafter: What was brought.
        taken: Names of other drafters.

    Raises:
        OptionError: It lacks a method, or its name is taken or no name.
    """
    if isinstance(drafter, type) or not isinstance(drafter, Drafter):
        kind = type(drafter).__name__
        raise OptionError(f"A {kind} is no drafter.", "See forerun.drafters.protocol.Drafter.")
    name = drafter.name
    if not isinstance(name, str):
        raise OptionError(f"A drafter can't be called {_cut(repr(name))}.", "Give a text.")
    is_taken = name in {"auto", "none", *taken}
    if is_taken or not name.strip() or name != name.strip() or "," in name:
        raise OptionError(
            f"A drafter can't be called {_cut(repr(name))}.",
            "Choose a name without commas that no other drafter has.",
        )
    return name


class _Own:
    """A drafter that drafts by itself."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self.name = drafter.name
        self.layers = _layers(drafter)

    def open(self, sequence: int, tokens: Sequence[int]) -> None:
        _asked(self.name, self._drafter.open, sequence, tokens)

    def fork(self, sequence: int, new: int) -> None:
        _asked(self.name, self._drafter.fork, sequence, new)

    def rollback(self, sequence: int, length: int) -> None:
        _asked(self.name, self._drafter.rollback, sequence, length)

    def free(self, sequence: int) -> None:
        _asked(self.name, self._drafter.free, sequence)

    def see(self, sequence: int, start: int, hidden: Mapping[int, NDArray[np.float32]]) -> None:
        """Show the drafter hidden states of a prompt; it is asked only if it wants to see some."""
        _asked(self.name, self._drafter.see, sequence, start, hidden)  # type: ignore[attr-defined]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        _asked(self.name, self._drafter.observe, outcomes)

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Return the drafts, each known to be one."""
        answers = _asked(self.name, self._drafter.draft, requests)
        if not isinstance(answers, Sequence):
            _refuse(self.name, f"gave {_shown(answers)} instead of a list of drafts")
        if len(answers) != len(requests):
            _refuse(
                self.name,
                f"gave {counted(len(answers), 'draft')} for {counted(len(requests), 'text')}",
            )
        for answer, request in zip(answers, requests, strict=True):
            if not isinstance(answer, Draft):
                _refuse(self.name, f"gave {_shown(answer)} instead of a draft")
            for node in answer.nodes:
                if not isinstance(node.drafter, str):
                    _refuse(self.name, f"calls the drafter of a token {_shown(node.drafter)}")
                if not 0 <= node.token < request.warp.vocab_size:
                    _refuse(self.name, f"proposed token {_shown(node.token)}")
        return list(answers)


class _OwnGuesser(_Own):
    """A drafter that can be asked place by place."""

    @property
    def price(self) -> float:
        """Seconds that one more place takes, by the drafter's own word."""
        price: object = _asked(self.name, price_of, self._drafter)
        if not isinstance(price, int | float) or not 0.0 <= price < math.inf:
            _refuse(self.name, f"names {_shown(price)} as its price")
        return float(price)

    def place(self, request: DraftRequest) -> Place:
        """Return the root's place, under watch."""
        ask = self._drafter.place  # type: ignore[attr-defined]
        place = _asked(self.name, ask, request)
        size = request.warp.vocab_size
        return NOWHERE if place is NOWHERE else _OwnPlace(place, self.name, size)


class _OwnPlace:
    """A place of such a drafter."""

    __slots__ = ("_name", "_place", "_size")

    def __init__(self, place: Any, name: str, vocab_size: int) -> None:
        if not (callable(getattr(place, "guesses", 0)) and callable(getattr(place, "after", 0))):
            _refuse(name, f"gave {_shown(place)} instead of a place")
        self._place, self._name, self._size = place, name, vocab_size

    def guesses(self, most: int) -> Sequence[Guess]:
        """Return the guesses, each known to be one, and not without end."""
        bound = most * _SOURCES
        given = _asked(self._name, self._first, most, bound + 1)
        if len(given) > bound:
            _refuse(self._name, f"gave more than {bound} guesses where {most} were asked for")
        return [_sound(guess, self._name, self._size) for guess in given]

    def after(self, token: int) -> _OwnPlace:
        place = _asked(self._name, self._place.after, token)
        return _OwnPlace(place, self._name, self._size)

    def _first(self, most: int, bound: int) -> list[Any]:
        return list(islice(self._place.guesses(most), bound))


def _layers(drafter: Drafter) -> tuple[int, ...]:
    """Return the layers that a drafter watches; which of them there are, the target knows."""
    if not isinstance(drafter, Watcher):
        return ()
    given: object = drafter.layers
    if not isinstance(given, Sequence) or not all(isinstance(at, int) for at in given):
        _refuse(drafter.name, f"watches {_shown(given)} instead of layers")
    return tuple(given)


def _asked(name: str, method: Callable[..., Any], *asked: Any) -> Any:
    """Return what a method gives; what it raises is told with the drafter's name."""
    try:
        return method(*asked)
    except ForerunError:
        raise
    except Exception as error:
        # Users' code may raise anything; where it did stays in the traceback.
        what = f"Drafter {name!r} failed: {type(error).__name__}: {_cut(str(error))}."
        raise EngineError(what, _WAY_OUT) from error


def _sound(guess: Any, name: str, vocab_size: int) -> Guess:
    """Return a guess of plain numbers, whatever numpy kind its drafter computed with."""
    if not isinstance(guess, Guess):
        _refuse(name, f"gave {_shown(guess)} instead of a guess")
    try:
        token, rank = operator.index(guess.token), operator.index(guess.rank)
        confidence = float(guess.confidence)
    except (TypeError, ValueError, OverflowError):
        _refuse(name, f"gave {_shown(guess)}, which is not made of numbers")
    if not 0 <= token < vocab_size:
        _refuse(name, f"proposed token {_shown(token)}")
    # A text would pass as the number that it spells.
    is_word = isinstance(guess.confidence, str | bytes | bytearray)
    if is_word or not 0.0 <= confidence <= _CERTAIN:  # nor is NaN
        _refuse(name, f"guesses with confidence {_shown(guess.confidence)}")
    if rank < 0 or not isinstance(guess.drafter, str):
        _refuse(name, f"gave {_shown(guess)}, whose drafter or rank is none")
    return Guess(token, confidence, guess.drafter, rank)


def _refuse(name: str, what: str) -> Never:
    raise EngineError(f"Drafter {name!r} {what}.", _WAY_OUT)


def _shown(value: object) -> str:
    """Return a wrong answer as an error shows it: of any length, or refusing to be shown."""
    try:
        text = repr(value)
    except Exception:
        return f"a {type(value).__name__}"
    return _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."
