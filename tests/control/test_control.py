"""The choice in a running engine: when costs are measured, and what is learned from a round."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest

from drafters.loop import Text
from forerun.control.control import Control, RoundTimes
from forerun.control.cost import CostCurve
from forerun.core.tree import Draft
from forerun.drafters.memory import Memoryless
from forerun.drafters.protocol import DraftRequest, Guess, Outcome
from forerun.targets.toy import ToyTarget

TARGET = ToyTarget.random(9, 2, 1)
LOOP = [1, 2, 3, 4] * 4


class Next(NamedTuple):
    """The place after a token of the loop: the next one, at even odds."""

    token: int

    def guesses(self, most: int) -> list[Guess]:
        """Guess it."""
        return [Guess(self.token % 4 + 1, 0.5, "loop", 0)]

    def after(self, token: int) -> Next:
        """Go round."""
        return Next(token)


class Loop(Memoryless):
    """Guesses the loop's next tokens, and is not too sure."""

    name = "loop"

    def guess(self, request: DraftRequest) -> Draft:
        """Never asked."""
        raise NotImplementedError

    def place(self, request: DraftRequest) -> Next:
        """Return the place after the text."""
        return Next(request.tokens[-1])


class Costs:
    """Gives curves, and remembers how it was asked."""

    def __init__(self, slope: float = 0.0) -> None:
        self.slope, self.asked = slope, []  # type: ignore[var-annotated]

    def __call__(self, again: bool) -> CostCurve:
        """Return a curve of that slope."""
        self.asked.append(again)
        return CostCurve({1: 1.0, 32: 1.0 + 31 * self.slope})


def chosen(control: Control, drafter: Loop, sequence: int = 0) -> Draft:
    """Return what is drafted behind a loop of four tokens."""
    request = replace(Text(sequence, LOOP, TARGET, budget=(20, 8)).request(), sequence=sequence)
    return control.choose([(request, drafter)], 1, 0, 16).drafts[0]


def opened(control: Control) -> Loop:
    """Return a drafter that follows text 0."""
    control.open(0)
    return Loop()


def test_costs_are_asked_for_when_something_is_to_be_chosen() -> None:
    """Once; plain decoding never waits for them."""
    costs = Costs()
    control = Control(TARGET, costs)
    control.open(0)
    control.clock(1, 0, 10, RoundTimes(0, 0, 1.0, 0))
    assert costs.asked == []
    drafter = Loop()
    chosen(control, drafter)
    chosen(control, drafter)
    assert costs.asked == [False]


def test_where_passes_cost_something_else_they_are_measured_again() -> None:
    """Before the next text that runs alone, not in the middle of one."""
    costs, now = Costs(), [0.0]
    control = Control(TARGET, costs, lambda: now[0])
    drafter = opened(control)
    chosen(control, drafter)
    for _ in range(200):
        control.clock(1, 0, 200, RoundTimes(0, 0, 1.0, 0))
        control.clock(32, 31, 200, RoundTimes(0, 0, 9.0, 0))
    chosen(control, drafter)
    assert costs.asked == [False]
    control.open(1)
    assert costs.asked == [False]
    control.free(0)
    control.free(1)
    control.open(2)
    assert costs.asked == [False]  # so soon they would show the same
    control.free(2)
    now[0] = 1000.0
    control.open(3)
    assert costs.asked == [False, True]


@pytest.mark.parametrize(("slope", "least", "most"), [(0.0, 6, 31), (0.2, 1, 2), (2.0, 0, 0)])
def test_the_dearer_a_row_the_less_is_drafted(slope: float, least: int, most: int) -> None:
    """Down to nothing."""
    control = Control(TARGET, Costs(slope))
    assert least <= len(chosen(control, opened(control))) <= most


def test_what_is_around_the_pass_counts_too() -> None:
    """Rounds in which every node takes as long as a pass are no bargain, though rows are."""
    control = Control(TARGET, Costs())
    drafter = opened(control)
    before = len(chosen(control, drafter))
    for _ in range(300):
        control.clock(1, 0, 16, RoundTimes(0, 0, 1.0, 0.1))
        control.clock(9, 8, 16, RoundTimes(0, 0, 1.0, 8.1))
    assert len(chosen(control, drafter)) < before / 2


def test_guesses_are_judged_though_nothing_was_drafted() -> None:
    """A drafter that proves right while it is off is switched on."""
    control = Control(TARGET, Costs(0.85))
    drafter = opened(control)
    tokens = list(LOOP)
    sizes = []
    for _ in range(60):
        request = replace(Text(0, tokens, TARGET, budget=(20, 8)).request(), sequence=0)
        (draft,) = control.choose([(request, drafter)], 1, 0, 16).drafts
        sizes.append(len(draft))
        token = tokens[-4]
        kept = (0,) if len(draft) and draft.nodes[0].token == token else ()
        tokens.append(token)
        logits = np.zeros((len(draft) + 1, 9), np.float32)
        outcome = Outcome(0, draft, kept, tuple(tokens), 1, logits)
        drafter.observe([outcome])
        control.learn(outcome, 0.0)
    assert sizes[0] == 0 < sizes[-1]


def test_what_texts_taught_is_forgotten_on_demand() -> None:
    """But not what passes cost."""
    costs = Costs(0.3)
    control = Control(TARGET, costs)
    drafter = opened(control)
    before = len(chosen(control, drafter))
    for _ in range(80):
        draft = chosen(control, drafter)
        wrong = (*LOOP, 7)
        control.learn(Outcome(0, draft, (), wrong, 1, np.zeros((1, 9), np.float32)), 0.0)
    control.free(0)
    control.open(0)
    assert len(chosen(control, drafter)) < before
    control.free(0)
    control.forget()
    control.open(0)
    assert len(chosen(control, drafter)) == before
    assert costs.asked == [False]


def test_a_text_in_which_nothing_pays_is_asked_about_less_and_less() -> None:
    """Down to one round in nine; when a guess pays again, every round."""
    costs = Costs(5.0)
    control = Control(TARGET, costs)
    drafter = opened(control)
    places: list[int] = []
    rounds: list[int] = []

    class Counting(Loop):
        def place(self, request):  # type: ignore[no-untyped-def]
            places.append(len(rounds))
            return drafter.place(request)

    while len(rounds) < 400:
        rounds.append(len(chosen(control, Counting())))
    assert not any(rounds)
    gaps = [after - before for before, after in pairwise(places)]
    assert gaps == sorted(gaps)
    assert (gaps[0], gaps[-1]) == (1, 9)
    control._curve = CostCurve({1: 1.0, 32: 1.0})
    while len(rounds) < 430:
        rounds.append(len(chosen(control, Counting())))
    assert places[-10:] == list(range(420, 430))
