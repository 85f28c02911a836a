"""Several drafters at once: what each of them sees, and whose guess a token is."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from drafters.loop import Text
from forerun.core.tree import Draft
from forerun.drafters.grow import grow, surest
from forerun.drafters.memory import Memoryless
from forerun.drafters.mix import Mix
from forerun.drafters.protocol import NOWHERE, DraftRequest, Guess, Guesser, Place, parts_of
from forerun.targets.toy import ToyTarget

V = 9


class After:
    """The place after a token: the next ones in order, as sure as told."""

    def __init__(self, last: int, steps: dict[int, float], name: str) -> None:
        self.last, self.steps, self.name = last, steps, name

    def guesses(self, most: int) -> Sequence[Guess]:
        """Guess last + step, for each step."""
        found = [((self.last + step) % V, sure) for step, sure in self.steps.items()]
        return [Guess(token, p, self.name, i) for i, (token, p) in enumerate(found[:most])]

    def after(self, token: int) -> After:
        """Go on from there."""
        return After(token, self.steps, self.name)


class Stepper(Memoryless):
    """Expects the last token plus some steps."""

    def __init__(self, name: str, **steps: float) -> None:
        self.name = name
        self.steps = {int(step.removeprefix("by")): sure for step, sure in steps.items()}

    def guess(self, request: DraftRequest) -> Draft:
        """Return a draft of fixed shape."""
        return grow(self.place(request), request)

    def place(self, request: DraftRequest) -> Place:
        """Return the place after the text."""
        return After(request.tokens[-1], self.steps, self.name)


def asked(rule: str = "match", budget: tuple[int, int] = (3, 1)) -> DraftRequest:
    """Return a request for the text 0."""
    return Text(0, [0], ToyTarget.random(V, 2, 1), rule=rule, budget=budget).request()  # type: ignore[arg-type]


ONES, TWOS = Stepper("ones", by1=0.4, by2=0.3), Stepper("twos", by2=0.6, by3=0.2)


def test_all_guess_at_each_place() -> None:
    """A token that two guess is named by both, and after it both go on."""
    mix = Mix([ONES, TWOS])
    assert isinstance(mix, Guesser)
    assert mix.name == "ones,twos"
    place = mix.place(asked()).after(4)
    assert [(g.token, g.drafter, g.rank) for g in place.guesses(2)] == [
        (5, "ones", 0),
        (6, "ones", 1),
        (6, "twos", 0),
        (7, "twos", 1),
    ]


def test_in_a_fixed_shape_the_surest_leads() -> None:
    """Each node carries the name of the drafter that was surest of it."""
    (chain,) = Mix([ONES, TWOS]).draft([asked()])
    assert [(n.token, n.drafter) for n in chain.nodes] == [(2, "twos"), (4, "twos"), (6, "twos")]
    (comb,) = Mix([ONES, TWOS]).draft([asked(budget=(1, 3))])
    assert [(n.token, n.drafter) for n in comb.nodes] == [(2, "twos"), (1, "ones"), (3, "twos")]


@pytest.mark.parametrize("rule", ["speculative", "block", "tree"])
def test_where_coins_are_drawn_the_first_that_guesses_drafts(rule: str) -> None:
    """Two drafters' coins must not meet at one address."""
    (draft,) = Mix([ONES, TWOS]).draft([asked(rule)])
    assert [n.drafter for n in draft.nodes] == ["ones"] * 3


def test_of_a_tokens_guesses_the_most_confident_stands() -> None:
    """Of equals the first."""
    guesses = [Guess(1, 0.2, "a", 0), Guess(2, 0.5, "a", 1), Guess(1, 0.5, "b", 0)]
    assert surest(guesses) == [guesses[2], guesses[1]]
    assert surest([*guesses, Guess(1, 0.5, "c", 0)]) == [guesses[2], guesses[1]]


class Silent(Stepper):
    """Knows nothing of any text."""

    def place(self, request: DraftRequest) -> Place:
        """Say so."""
        return NOWHERE


def test_who_knows_nothing_of_a_text_is_not_asked_about_it() -> None:
    """Of several, one that knows something answers by itself; where none does, nobody guesses."""
    request, silent = asked(), Silent("silent")
    place = Mix([silent, ONES]).place(request)
    assert isinstance(place, After)
    assert place.guesses(2) == ONES.place(request).guesses(2)
    nowhere = Mix([silent, silent]).place(request)
    assert [*nowhere.guesses(2), *nowhere.after(3).guesses(2)] == []
    assert [*NOWHERE.guesses(4), *NOWHERE.after(1).after(2).guesses(4)] == []


class DearAfter(After):
    """Such a place that costs something to ask."""

    @property
    def parts(self) -> tuple[Place, Place]:
        """All of it has a price."""
        return NOWHERE, self

    def after(self, token: int) -> DearAfter:
        """Go on from there, at the same price."""
        return DearAfter(token, self.steps, self.name)


class Dear(Stepper):
    """A stepper that has a price."""

    price = 0.1

    def place(self, request: DraftRequest) -> DearAfter:
        """Return the root's place."""
        return DearAfter(request.tokens[-1], self.steps, self.name)


def test_what_is_free_and_what_has_a_price_are_asked_apart() -> None:
    """At the root and behind every token; a mix of free ones has no part with a price."""
    request = Text(0, [3], ToyTarget.random(V, 2, 1), budget=(4, 4)).request()
    cheap, dear = Stepper("cheap", by1=0.5), Dear("dear", by2=0.5)
    place = Mix([cheap, dear]).place(request)
    for last, here in ((3, place), (7, place.after(7))):
        free, priced = parts_of(here)
        assert [(g.token, g.drafter) for g in free.guesses(4)] == [((last + 1) % V, "cheap")]
        assert [(g.token, g.drafter) for g in priced.guesses(4)] == [((last + 2) % V, "dear")]
        assert [g.drafter for g in here.guesses(4)] == ["cheap", "dear"]
    free, priced = parts_of(Mix([cheap, Stepper("other", by3=0.5)]).place(request))
    assert priced is NOWHERE
    assert [g.drafter for g in free.guesses(4)] == ["cheap", "other"]
