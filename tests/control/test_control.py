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
from forerun.drafters.protocol import NOWHERE, DraftRequest, Guess, Outcome, Place
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
    control.open(0, chooses=True)
    return Loop()


def test_costs_are_found_out_before_the_first_text_that_needs_them() -> None:
    """Once, and not in a round; a text that leaves nothing open never waits for them."""
    costs = Costs()
    control = Control(TARGET, costs)
    control.open(0, chooses=False)
    control.clock(1, 0, 10, RoundTimes(0, 0, 1.0, 0, 0))
    assert costs.asked == []
    control.open(1, chooses=True)
    assert costs.asked == [False]
    control.open(2, chooses=True)
    chosen(control, Loop(), 2)
    assert costs.asked == [False]


def test_a_drafters_own_time_is_counted_once() -> None:
    """What drafting takes is the drafter's cost per token, and not the rest of the round too."""
    control = Control(TARGET, Costs())
    control.open(0, chooses=True)
    before = control.length(0, 8, 1, 16)
    for _ in range(100):
        control.clock(
            9, 8, 16, RoundTimes(drafting=80.0, choice=0, passing=1.0, rest=0, learning=0)
        )
    assert control.length(0, 8, 1, 16) == before > 0


def test_where_passes_cost_something_else_they_are_measured_again() -> None:
    """Before the next text that runs alone, not in the middle of one."""
    costs, now = Costs(), [0.0]
    control = Control(TARGET, costs, lambda: now[0])
    drafter = opened(control)
    chosen(control, drafter)
    for _ in range(200):
        control.clock(1, 0, 200, RoundTimes(0, 0, 1.0, 0, 0))
        control.clock(32, 31, 200, RoundTimes(0, 0, 9.0, 0, 0))
    chosen(control, drafter)
    assert costs.asked == [False]
    control.open(1, chooses=True)
    assert costs.asked == [False]
    control.free(0)
    control.free(1)
    control.open(2, chooses=True)
    assert costs.asked == [False]  # so soon they would show the same
    control.free(2)
    now[0] = 1000.0
    control.open(3, chooses=True)
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
        control.clock(1, 0, 16, RoundTimes(0, 0, 1.0, 0.1, 0))
        control.clock(9, 8, 16, RoundTimes(0, 0, 1.0, 8.1, 0))
    assert len(chosen(control, drafter)) < before / 2


def test_guesses_are_judged_though_nothing_was_drafted() -> None:
    """A drafter that proves right while it is off is switched on."""
    control = Control(TARGET, Costs(0.75))
    drafter = opened(control)
    tokens = list(LOOP)
    sizes = []
    for _ in range(200):
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
    control.open(0, chooses=True)
    assert len(chosen(control, drafter)) < before
    control.free(0)
    control.forget()
    control.open(0, chooses=True)
    assert len(chosen(control, drafter)) == before
    assert costs.asked == [False]


def test_a_text_in_which_nothing_pays_is_asked_about_less_and_less() -> None:
    """Down to one round in seventeen; when a guess pays again, every round."""
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
    assert (gaps[0], gaps[-1]) == (1, 17)
    control._curve = CostCurve({1: 1.0, 32: 1.0})
    while len(rounds) < 430:
        rounds.append(len(chosen(control, Counting())))
    assert places[-10:] == list(range(420, 430))


def test_rounds_that_pay_must_pay_for_those_asked_in_vain() -> None:
    """A good guess in ten rounds is not worth ten questions, unless these cost next to nothing."""

    class Seldom(Loop):
        asked = 0

        def place(self, request):  # type: ignore[no-untyped-def]
            self.asked += 1
            return NOWHERE if self.asked % 10 else super().place(request)

    def asked(price: float) -> int:
        control = Control(TARGET, Costs(0.45))
        opened(control)
        for _ in range(300):
            control.clock(1, 0, 16, RoundTimes(0, price, 1.0, 0, 0))
        drafter = Seldom()
        sizes = [len(chosen(control, drafter)) for _ in range(200)]
        assert any(sizes)
        return drafter.asked

    assert asked(0.03) < 60
    assert asked(1e-9) > 150


def test_a_node_must_pay_for_all_that_wait_for_it() -> None:
    """What is worth a row when a text is alone delays fifty others; beside 300 rows, nothing is."""
    control = Control(TARGET, Costs(0.04))
    drafter = opened(control)

    def size(rows: int, others: int) -> int:
        request = replace(Text(0, LOOP, TARGET, budget=(20, 8)).request(), sequence=0)
        return len(control.choose([(request, drafter)], rows, others, 16).drafts[0])

    assert size(1, 0) > 0
    assert size(51, 0) > 0
    assert size(51, 50) < size(51, 0)
    assert size(300, 0) == 0


def test_where_texts_are_padded_a_draft_costs_rows_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same draft beside more texts is shorter, whoever makes it; alone nothing changes."""
    unpadded = Control(TARGET, Costs(0.04))
    padded = Control(TARGET, Costs(0.04))
    monkeypatch.setattr(padded, "pads", True)

    def sizes(control: Control, texts: int) -> tuple[int, int]:
        drafter = opened(control)
        request = replace(Text(0, LOOP, TARGET, budget=(20, 8)).request(), sequence=0)
        choice = control.choose([(request, drafter)], texts, texts - 1, 16)
        return len(choice.drafts[0]), control.length(0, 8, texts, 16)

    assert sizes(padded, 1) == sizes(unpadded, 1)
    for found, before in zip(sizes(padded, 9), sizes(unpadded, 9), strict=True):
        assert found < before


def test_no_tenant_learns_from_anothers_texts() -> None:
    """What made one tenant's guesses dear leaves the next one's as they were; its own does not."""
    control = Control(TARGET, Costs(0.3))
    drafter = Loop()
    control.open(0, "alice", chooses=True)
    before = len(chosen(control, drafter))
    for _ in range(80):
        draft = chosen(control, drafter)
        control.learn(Outcome(0, draft, (), (*LOOP, 7), 1, np.zeros((1, 9), np.float32)), 0.0)
    control.open(1, "bob", chooses=True)
    control.open(2, "alice", chooses=True)
    assert len(chosen(control, drafter, 1)) == before > len(chosen(control, drafter, 2))
    for tenant in range(70):
        control.open(3 + tenant, str(tenant), chooses=True)
    assert len(control._experience) == 64


class Dear(Loop):
    """A drafter with a price, whose best guess is held to be as likely as it says."""

    def __init__(self, price: float, confidence: float) -> None:
        super().__init__()
        self.price, self.confidence, self.asked = price, confidence, 0

    @property
    def parts(self) -> tuple[Place, Place]:
        """All of it has the price."""
        return NOWHERE, self

    def place(self, request: DraftRequest) -> Dear:  # type: ignore[override]
        """It stands at every place itself."""
        return self

    def after(self, token: int) -> Dear:
        """And at the next."""
        return self

    def guesses(self, most: int) -> list[Guess]:
        """Count, and guess."""
        self.asked += 1
        return [Guess(1, self.confidence, self.name, 0)]


def test_who_has_a_price_is_given_up_where_it_guesses_badly_and_tried_again() -> None:
    """A hundred rounds ask it a few times; one that guesses well is asked in each."""
    control = Control(TARGET, Costs())
    control.open(0, chooses=True)
    bad, good = Dear(0.1, 0.02), Dear(0.1, 0.9)
    for drafter in (bad, good):
        control.open(0, chooses=True)
        for _ in range(100):
            chosen(control, drafter)
    assert 2 <= bad.asked <= 50
    assert good.asked >= 100


def test_a_price_is_counted_once() -> None:
    """What asking took is not held to be what each round's choice takes anyhow."""
    control = Control(TARGET, Costs())
    control.open(0, chooses=True)
    drafter = Dear(0.2, 0.9)
    for _ in range(200):
        request = replace(Text(0, LOOP, TARGET, budget=(3, 1)).request(), sequence=0)
        choice = control.choose([(request, drafter)], 1, 0, 16)
        assert choice.spent == pytest.approx(0.2 * 3)
        nodes = len(choice.drafts[0])
        control.clock(1 + nodes, nodes, 16, RoundTimes(0, choice.spent, 1.0, 0, 0))
    assert choice.seconds == pytest.approx(1.0 + choice.spent, rel=0.02)
