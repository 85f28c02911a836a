"""Draft trees: none without a proposal, none out of order, and paths that lead where they say."""

from __future__ import annotations

import dataclasses
import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.core.proposal import Dense, Point, Sparse
from forerun.core.tree import ROOT, Draft, Node
from forerun.errors import EngineError


def node(token: int, parent: int = ROOT) -> Node:
    return Node(token, parent, Point(token), "test")


# A parent for each node: ROOT or any earlier one.
shapes = st.integers(0, 12).flatmap(
    lambda n: st.tuples(*[st.integers(-1, i - 1) for i in range(n)])
)


@given(shapes)
def test_paths_depths_and_children_agree_with_the_parents(parents: tuple[int, ...]) -> None:
    """In every tree: a path climbs by parents, its length is the depth, children lie in order."""
    draft = Draft(tuple(node(0, parent) for parent in parents))
    for index, parent in enumerate(parents):
        path = draft.path(index)
        assert path[-1] == index
        assert [parents[i] for i in path] == [ROOT, *path[:-1]]
        assert draft.depth(index) == len(path)
        assert index in draft.children(parent)
    for index in range(ROOT, len(parents)):
        assert draft.children(index) == tuple(i for i, p in enumerate(parents) if p == index)
        line = draft.first_line(index)
        assert line[0] == index
        assert draft.children(line[-1]) == ()
        assert all(draft.children(a)[0] == b for a, b in pairwise(line))
    assert draft.is_chain == (parents == tuple(range(-1, len(parents) - 1)))


def test_the_empty_draft() -> None:
    """No guess at all is a draft too."""
    draft = Draft()
    assert len(draft) == 0
    assert draft.is_chain
    assert draft.children(ROOT) == draft.path(ROOT) == ()
    assert draft.depth(ROOT) == 0
    assert draft.child(ROOT, 3) is None


@pytest.mark.parametrize("parents", [(0,), (-2,), (-1, 1), (-1, 2, -1), (1, -1)])
def test_a_node_before_its_parent_is_refused(parents: tuple[int, ...]) -> None:
    """Itself, a later one, or none at all."""
    with pytest.raises(EngineError, match=r"Draft node \d has parent"):
        Draft(tuple(node(0, parent) for parent in parents))


@pytest.mark.parametrize(
    ("token", "proposal"),
    [
        (1, Point(2)),
        (1, Dense(np.array([1.0, 0.0]))),
        (2, Dense(np.array([0.5, 0.5]))),
        (-1, Dense(np.array([0.5, 0.5]))),
        (1, Sparse(np.array([0, 2]), np.array([0.5, 0.5]))),
        (1, Sparse(np.array([0, 1]), np.array([1.0, 0.0]))),
    ],
)
def test_a_token_that_its_proposal_cannot_give_is_refused(token: int, proposal: Point) -> None:
    """q(x) = 0, or x outside of q: nobody drew this token from that law."""
    with pytest.raises(EngineError, match="can't have been drawn"):
        Node(token, ROOT, proposal, "test")


def test_a_node_cannot_be_built_without_a_proposal() -> None:
    """The law of the project that the others rest on."""
    with pytest.raises(TypeError):
        Node(1, ROOT, drafter="test")  # type: ignore[call-arg]


def test_nodes_and_drafts_cannot_be_changed() -> None:
    """A verified draft is what was proposed."""
    draft = Draft.chain([1, 2], "test")
    with pytest.raises(dataclasses.FrozenInstanceError):
        draft.nodes = ()  # type: ignore[misc]
    with pytest.raises(AttributeError):
        draft.nodes[0].token = 7  # type: ignore[misc]


def test_numpy_integers_become_plain_ones() -> None:
    """A drafter may compute with numpy; the events it ends in are JSON."""
    made = Node(np.int64(3), np.int64(-1), Point(3), "test")  # type: ignore[arg-type]
    assert json.dumps([made.token, made.parent]) == "[3, -1]"
    with pytest.raises(TypeError):
        Node(3.0, -1, Point(3), "test")  # type: ignore[arg-type]


def test_a_child_is_found_by_its_token_and_the_first_of_equals_counts() -> None:
    """Siblings with one token are allowed (drawn with replacement)."""
    draft = Draft((node(5), node(6), node(5), node(5, 0)))
    assert draft.child(ROOT, 5) == 0
    assert draft.child(ROOT, 6) == 1
    assert draft.child(0, 5) == 3
    assert draft.child(0, 6) is None
    assert draft.child(1, 5) is None


def test_a_chain_hangs_each_token_below_the_last() -> None:
    """With point proposals and the drafter's name."""
    draft = Draft.chain(iter([4, 4, 2]), "who")
    assert [(n.token, n.parent, n.drafter) for n in draft.nodes] == [
        (4, -1, "who"),
        (4, 0, "who"),
        (2, 1, "who"),
    ]
    assert draft.is_chain
    assert all(n.proposal == Point(n.token) for n in draft.nodes)
    assert len(Draft.chain([], "who")) == 0


@given(st.lists(st.lists(st.integers(0, 2), max_size=4), max_size=6))
def test_a_merged_tree_holds_each_continuation_once(continuations: list[list[int]]) -> None:
    """Its nodes are the distinct beginnings, in the order first met, and siblings differ."""
    draft = Draft.merged(continuations, "test")
    beginnings = [tuple(c[:n]) for c in continuations for n in range(1, len(c) + 1)]
    texts = [tuple(draft.nodes[i].token for i in draft.path(n)) for n in range(len(draft))]
    assert texts == list(dict.fromkeys(beginnings))
    for index in range(ROOT, len(draft)):
        siblings = [draft.nodes[i].token for i in draft.children(index)]
        assert len(set(siblings)) == len(siblings)


def test_a_deep_chain_is_no_trouble() -> None:
    """The longest draft that can be asked for, and then some."""
    draft = Draft.chain(range(2000), "test")
    assert draft.depth(1999) == 2000
    assert draft.path(1999) == tuple(range(2000))


def test_height_and_breadth_are_those_of_the_longest_path_and_the_widest_place() -> None:
    """The root's children count, too; nothing drafted has neither."""
    assert (Draft().height, Draft().breadth) == (0, 0)
    chain = Draft.chain([1, 2, 3], "test")
    assert (chain.height, chain.breadth) == (3, 1)
    assert (Draft((node(5), node(6), node(7))).height, Draft((node(5), node(6))).breadth) == (1, 2)
    deep = Draft((node(5), node(6, 0), node(7, 1), node(8, 1), node(9, 1)))
    assert (deep.height, deep.breadth) == (3, 3)
