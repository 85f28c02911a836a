"""A scored draft: at each node what plain decoding would have seen there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.config import Sampling
from forerun.core.proposal import Dense, Point
from forerun.core.scored import ScoredDraft
from forerun.core.tree import ROOT, Draft, Node
from forerun.core.warp import Warp, law
from forerun.errors import EngineError

VOCAB = 4
PENALISED = Sampling.make(
    temperature=1, repetition_penalty=1.5, presence_penalty=0.5, frequency_penalty=0.25, top_k=3
)
continuations = st.lists(
    st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=4), min_size=1, max_size=4
)


def logits_for(draft: Draft) -> np.ndarray:
    """A different row for each node."""
    rows = len(draft) + 1
    return (np.arange(rows * VOCAB).reshape(rows, VOCAB) * 7 % 11).astype(np.float32)


@given(continuations, st.lists(st.integers(0, VOCAB - 1), max_size=3))
def test_every_node_sees_the_text_that_leads_to_it(
    branches: list[list[int]], written: list[int]
) -> None:
    """Penalties count the path and nothing of its siblings, in whatever order nodes are asked."""
    warp = Warp(PENALISED, VOCAB, stop_ids=[0], min_tokens=3)
    state = warp.start([1])
    for token in written:
        state = state.advance(token)
    draft = Draft.merged(branches, "test")
    logits = logits_for(draft)
    scored = ScoredDraft(draft, logits, warp, state, position=1 + len(written))
    for node in reversed(range(ROOT, len(draft))):
        plain = state
        for step in draft.path(node):
            plain = plain.advance(draft.nodes[step].token)
        expected = warp.scores(logits[node + 1], plain)
        assert scored.state(node) == plain
        assert np.array_equal(scored.scores(node), expected)
        assert np.array_equal(scored.law(node), law(expected))


def test_the_state_at_the_root_is_left_as_it_was() -> None:
    """A draft that fails must leave no trace in the counts."""
    warp = Warp(PENALISED, VOCAB)
    state = warp.start([]).advance(2)
    draft = Draft.chain([2, 2], "test")
    scored = ScoredDraft(draft, logits_for(draft), warp, state, position=1)
    scored.scores(1)
    assert state.counts == {2: 1}
    assert scored.state(1).counts == {2: 3}
    assert state.generated == 1


@pytest.mark.parametrize("rows", [0, 1, 2, 4])
def test_rows_and_nodes_must_match(rows: int) -> None:
    """Two nodes need three rows: the root's comes first."""
    warp = Warp(Sampling.make(), VOCAB)
    logits = np.zeros((rows, VOCAB), np.float32)
    with pytest.raises(EngineError, match="need 3 rows"):
        ScoredDraft(Draft.chain([1, 2], "test"), logits, warp, warp.start([]), 0)


def test_the_ungreedy_law_has_penalties_but_no_temperature_and_no_truncation() -> None:
    """What lenience compares at temperature 0."""
    warp = Warp(Sampling.make(temperature=0, top_k=1, presence_penalty=1), VOCAB)
    draft = Draft.chain([3], "test")
    logits = np.array([[0, 0, 0, 0], [0, 0, 0, 1]], np.float32)
    scored = ScoredDraft(draft, logits, warp, warp.start([]), 0)
    assert scored.law(0).tolist() == [1, 0, 0, 0]
    assert scored.ungreedy_law(0) == pytest.approx([0.25] * 4)


def test_q_is_the_proposal_of_the_node() -> None:
    """Dense, over the warp's vocabulary, and refused over another."""
    warp = Warp(Sampling.make(), VOCAB)
    small = Dense(np.array([0.5, 0.5]))
    draft = Draft((Node(2, ROOT, Point(2), "test"), Node(1, 0, small, "test")))
    scored = ScoredDraft(draft, logits_for(draft), warp, warp.start([]), 0)
    assert scored.q(0).tolist() == [0, 0, 1, 0]
    with pytest.raises(EngineError, match="over 2 tokens"):
        scored.q(1)


def test_the_longest_draft_does_not_exhaust_the_stack() -> None:
    """States are asked for at the deepest node first."""
    warp = Warp(Sampling.make(presence_penalty=1), VOCAB)
    draft = Draft.chain([1] * 256, "test")
    scored = ScoredDraft(draft, logits_for(draft), warp, warp.start([]), 0)
    assert scored.state(255).counts == {1: 256}
