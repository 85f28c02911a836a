"""The choice: the best tree of the best size, against every tree there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drafters.loop import Text
from forerun.control.choice import Choice, Growth, choose
from forerun.control.estimates import Estimates
from forerun.core.tree import ROOT, Draft
from forerun.drafters.protocol import Guess
from forerun.targets.toy import ToyTarget
from forerun.theory import optimal_size


class Told:
    """A place that guesses what a table says of the path to it."""

    def __init__(self, table: dict[tuple[int, ...], list[tuple[int, float]]], path=()) -> None:  # type: ignore[no-untyped-def]
        self.table, self.path = table, path

    def guesses(self, most: int) -> Sequence[Guess]:
        """Return the table's guesses."""
        found = self.table.get(self.path, [])
        return [Guess(token, p, "told", rank) for rank, (token, p) in enumerate(found)]

    def after(self, token: int) -> Told:
        """Return the next place."""
        return Told(self.table, (*self.path, token))


def growth(
    table: dict[tuple[int, ...], list[tuple[int, float]]] | Told,
    length: int = 9,
    width: int = 9,
    ends: tuple[int, ...] = (),
) -> Growth:
    """Return a tree that takes the table's word for it."""
    place = table if isinstance(table, Told) else Told(table)
    text = Text(0, [0], ToyTarget.random(9, 2, 1), budget=(length, width))
    return Growth(place, Estimates(), replace(text.request(), ends=ends))


PATHS = [path for depth in range(3) for path in product((0, 1), repeat=depth)]
tables = st.fixed_dictionaries(
    {path: st.tuples(st.floats(0.25, 0.6), st.floats(0.22, 0.38)) for path in PATHS}
).map(lambda t: {path: [(0, a), (1, b)] for path, (a, b) in t.items()})
curves = st.lists(st.floats(0, 0.6), min_size=14, max_size=14).map(
    lambda steps: [1.0 + sum(steps[:n]) for n in range(15)]
)


@given(tables, curves)
@settings(max_examples=150)
def test_no_tree_brings_more_tokens_a_second(table: dict, seconds: list[float]) -> None:  # type: ignore[type-arg]
    """Its size is theory's for all nodes by probability, and so is its rate."""
    choice = choose([growth(table)], seconds, seconds[0])
    nodes = []
    for path in PATHS:
        before = 1.0
        for depth, token in enumerate(path):
            before *= dict(table[path[:depth]])[token]
        nodes += [before * p for _, p in table[path]]
    nodes.sort(reverse=True)
    size = optimal_size(nodes, 0.0, lambda rows: seconds[rows - 1])
    best = (1 + sum(nodes[:size])) / seconds[size]
    (draft,), (reached,) = choice.drafts, choice.reached
    assert (1 + sum(reached)) / seconds[len(draft)] == pytest.approx(best, rel=1e-9)
    assert choice.seconds == seconds[len(draft)]


@given(tables)
def test_a_node_counts_with_the_product_of_its_path(table: dict) -> None:  # type: ignore[type-arg]
    """Every node's probability is its guess's times its parent's."""
    (draft,), (reached,) = (
        (choice := choose([growth(table)], [1.0] * 15, 1.0)).drafts,
        choice.reached,
    )
    assert len(draft) == 14
    for node, p in enumerate(reached):
        path = draft.path(node)
        tokens = tuple(draft.nodes[n].token for n in path)
        own = dict(table[tokens[:-1]])[tokens[-1]]
        parent = draft.nodes[node].parent
        assert p == pytest.approx(own * (1.0 if parent == ROOT else reached[parent]))


def test_where_nothing_pays_nothing_is_drafted() -> None:
    """Size 0 is a choice, and what was guessed is judged all the same."""
    bare = growth({(): [(3, 0.4)]})
    choice = choose([bare], [1.0, 1.5, 2.0], 1.0)
    assert not len(choice.drafts[0])
    assert [g.token for g in bare.judged[ROOT][0]] == [3]


def test_texts_share_a_pass_by_what_their_guesses_are_worth() -> None:
    """The likelier text's nodes come first, whichever text that is."""
    sure = {(): [(1, 0.9)], (1,): [(2, 0.9)], (1, 2): [(3, 0.9)]}
    unsure = {(): [(1, 0.2)], (1,): [(2, 0.2)]}
    seconds = [2.0, 2.1, 2.2, 2.3, 3.5, 5.0, 7.0]
    choice = choose([growth(unsure), growth(sure)], seconds, seconds[0])
    assert [len(draft) for draft in choice.drafts] == [0, 3]


def test_where_texts_are_padded_what_one_has_is_paid_for_all() -> None:
    """Another text's nodes cost nothing up to the largest tree; a larger one must pay for all."""
    sure = {(): [(1, 0.9)], (1,): [(2, 0.9)], (1, 2): [(3, 0.3)]}
    unsure = {(): [(1, 0.2)], (1,): [(2, 0.2)], (1, 2): [(3, 0.2)]}
    seconds = [2.0, 2.5, 3.0, 3.5]  # by the nodes of the largest
    apart = choose([growth(unsure), growth(sure)], seconds, seconds[0])
    assert [len(draft) for draft in apart.drafts] == [0, 2]
    filled = choose([growth(unsure), growth(sure)], seconds, seconds[0], pads=True)
    assert [len(draft) for draft in filled.drafts] == [2, 2]
    assert filled.seconds == 3.0
    dear = [2.0, 4.0, 6.0, 8.0]
    assert not any(choose([growth(unsure), growth(sure)], dear, dear[0], pads=True).drafts)
    alone = [choose([growth(sure)], seconds, 2.0, pads=pads) for pads in (False, True)]
    assert alone[0].reached == alone[1].reached == [(0.9, 0.81)]


def test_length_and_width_are_bounds() -> None:
    """However cheap rows are."""
    table = {path: [(0, 0.5), (1, 0.3)] for path in PATHS}
    (draft,) = choose([growth(table, length=2, width=1)], [1.0] * 20, 1.0).drafts
    assert [node.token for node in draft.nodes] == [0, 0]
    assert draft.is_chain


def test_two_sources_that_agree_are_worth_more_than_each() -> None:
    """A token that two drafters guess is one node, and likelier than either says."""

    class Both(Told):
        def guesses(self, most: int) -> Sequence[Guess]:
            if self.path:
                return []
            return [Guess(5, 0.5, "a", 0), Guess(5, 0.4, "b", 0), Guess(6, 0.1, "b", 1)]

    choice = choose([growth(Both({}))], [1.0, 1.0, 1.0], 1.0)
    (draft,), (reached,) = choice.drafts, choice.reached
    assert [(node.token, node.drafter) for node in draft.nodes] == [(5, "a"), (6, "b")]
    assert 0.5 < reached[0] < 0.7


def test_no_more_nodes_than_there_is_room_for() -> None:
    """A table of seconds for up to two nodes allows two."""
    table = {path: [(0, 0.5), (1, 0.3)] for path in PATHS}
    assert sum(map(len, choose([growth(table)], [1.0] * 3, 1.0).drafts)) == 2
    assert sum(map(len, choose([growth(table)], [1.0], 1.0).drafts)) == 0


def test_nothing_is_guessed_behind_the_end() -> None:
    """The token that ends the text may be drafted; what would follow it can't be written."""
    table = {(): [(3, 0.9)], (3,): [(4, 0.9)], (3, 4): [(5, 0.9)]}
    (draft,) = choose([growth(table, ends=(4,))], [1.0] * 9, 1.0).drafts
    assert [node.token for node in draft.nodes] == [3, 4]


# ---- what has a price


class Dear:
    """A place of which a free drafter tells one table, and one with a price another."""

    def __init__(self, free: Told, priced: Told) -> None:
        self.parts = free, priced
        self.path = free.path

    def guesses(self, most: int) -> Sequence[Guess]:
        """Never asked as a whole."""
        raise NotImplementedError

    def after(self, token: int) -> Dear:
        """Return the next place."""
        return Dear(*[part.after(token) for part in self.parts])


class Counted(Told):
    """Remembers the paths where it was asked."""

    asked: list[tuple[int, ...]]

    def guesses(self, most: int) -> Sequence[Guess]:
        """Return the table's guesses."""
        self.asked.append(self.path)
        return [guess._replace(drafter="dear") for guess in super().guesses(most)]

    def after(self, token: int) -> Counted:
        """Return the next place; they count together."""
        place = Counted(self.table, (*self.path, token))
        place.asked = self.asked
        return place


Table = dict[tuple[int, ...], list[tuple[int, float]]]


def priced(free: Table, dear: Table, price: float, hope: float = 0.6) -> tuple[Growth, list]:  # type: ignore[type-arg]
    """Return a tree of two drafters, and where the one with a price was asked."""
    place = Counted(dear)
    place.asked = []
    request = Text(0, [0], ToyTarget.random(9, 2, 1), budget=(9, 9)).request()
    both = Dear(Told(free), place)
    return Growth(both, Estimates(), request, price, hope), place.asked


CHAIN: Table = {(1,) * n: [(1, 0.7)] for n in range(9)}


def test_what_has_a_price_is_asked_as_far_as_it_may_pay() -> None:
    """P(node stays) x hope against tokens a second x price; what is spent is in the time."""
    grown, asked = priced({}, CHAIN, 0.2)
    choice = choose([grown], [1.0] * 20, 1.0)
    # One token a second at first: 0.6 > 0.2 at the root. Then 1.7 / 1.2, 2.19 / 1.4, ...
    rate, tokens, reached, depth = 1.0, 1.0, 1.0, 0
    while reached * 0.6 > rate * 0.2:
        depth, reached = depth + 1, reached * 0.7
        tokens += reached
        rate = max(rate, tokens / (1.0 + 0.2 * depth))
    assert len(asked) == depth > 1
    assert choice.spent == pytest.approx(0.2 * depth)
    assert choice.seconds == pytest.approx(1.0 + choice.spent)
    assert len(choice.drafts[0]) == depth


def test_what_is_too_dear_or_hopeless_is_not_asked() -> None:
    """Not even at the root; and what is free is asked all the same."""
    for price, hope in ((0.7, 0.6), (0.2, 0.1)):
        grown, asked = priced({(): [(2, 0.4)]}, CHAIN, price, hope)
        choice = choose([grown], [1.0] * 20, 1.0)
        assert asked == []
        assert choice.spent == 0.0
        assert [node.token for node in choice.drafts[0].nodes] == [2]


def test_what_is_asked_must_pay_for_its_row_as_well() -> None:
    """Where a row takes as long as what it may bring, not even a cheap question is asked."""
    for step, times in ((0.1, 1), (0.6, 0)):
        grown, asked = priced({}, {(): [(1, 0.6)]}, 0.05)
        choose([grown], [1.0, 1.0 + step, 1.0 + 2 * step], 1.0)
        assert asked[:1] == [()] * times


def test_where_free_guesses_are_sure_nothing_is_paid() -> None:
    """A price is for what they miss: behind a sure guess nobody else is asked."""
    sure: Table = {(1,) * n: [(1, 0.95)] for n in range(9)}
    grown, asked = priced(sure, CHAIN, 0.2)
    choice = choose([grown], [1.0] * 20, 1.0)
    assert asked == []
    assert len(choice.drafts[0]) == 9


def test_what_was_spent_is_spent_at_every_size() -> None:
    """A tree is not made smaller to save what asking took already."""
    grown, asked = priced({}, {(): [(1, 0.3)], (1,): [(1, 0.01)]}, 0.25)
    choice = choose([grown], [1.0, 1.05, 1.1, 1.2], 1.0)
    assert asked[0] == ()
    assert len(choice.drafts[0]) == 1
    assert choice.seconds == pytest.approx(1.05 + choice.spent)


@given(st.lists(st.lists(st.floats(0.01, 0.99), max_size=4), min_size=1, max_size=4), st.data())
def test_gains_of_texts_add_up_to_the_rounds(
    reached: list[list[float]], data: st.DataObject
) -> None:
    """Tokens more than plain rounds bring in the time; a bare text still pays for asking."""
    asked = 1.0 + data.draw(st.floats(0, 0.2))
    extra = data.draw(st.floats(0, 1)) if any(reached) else 0.0
    texts = len(reached) + 2
    drafts = [Draft.chain(range(len(chances)), "told") for chances in reached]
    choice = Choice(drafts, [tuple(chances) for chances in reached], asked + extra)
    gains = choice.gains(asked, 1.0, texts)
    round_ = texts + sum(map(sum, reached)) - texts * choice.seconds
    assert sum(gains) == pytest.approx(round_, abs=1e-9)
    for draft, gain in zip(drafts, gains, strict=True):
        assert len(draft) or gain == pytest.approx(-texts * (asked - 1.0) / len(reached))
