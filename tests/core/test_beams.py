"""The definition of beam search, step by step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.config import Sampling
from forerun.core.beams import BeamRule, EarlyStopping, Pool, Ranked, Step, only_falls, ranked
from forerun.core.warp import Warp

END = 9


def rule(beams: int, limit: int = 100, **changes: object) -> BeamRule:
    return BeamRule(beams, frozenset({END}), limit, **changes)  # type: ignore[arg-type]


def texts(step: tuple[object, ...]) -> list[tuple[int, int]]:
    return [(each.beam, each.token) for each in step]  # type: ignore[attr-defined]


def test_the_best_go_on_and_of_equals_the_better_beams_then_the_likelier_tokens() -> None:
    """Order: the sum, then the beam's place, then the token's place in its row."""
    rows = [Ranked((7, 3, 5), (-1.0, -1.0, -2.0)), Ranked((2, 1), (-0.5, -1.5))]
    step = rule(4).step([-1.0, -1.5], rows, 1)
    assert texts(step.running) == [(0, 7), (0, 3), (1, 2), (0, 5)]
    assert [each.score for each in step.running] == [-2.0, -2.0, -2.0, -3.0]
    assert step.ended == ()


def test_an_end_counts_only_among_the_best_and_takes_nobodys_place() -> None:
    """Of two ends one is among the best two; two others go on all the same."""
    rows = [Ranked((END, 4), (-0.1, -2.0)), Ranked((3, END), (-0.2, -0.3))]
    step = rule(2).step([-1.0, -1.1], rows, 3)
    assert texts(step.ended) == [(0, END)]
    assert texts(step.running) == [(1, 3), (0, 4)]


def test_at_the_longest_all_of_the_best_end() -> None:
    """Nothing goes on beyond the limit."""
    step = rule(2, limit=5).step([0.0], [Ranked((1, 2, 3), (-1.0, -2.0, -3.0))], 5)
    assert texts(step.ended) == [(0, 1), (0, 2)]
    assert step.running == ()


def test_the_pool_keeps_the_best_and_of_equals_the_older() -> None:
    """Sums are divided by length ** penalty; a new text must be better than those there."""
    pool: Pool[str] = Pool(rule(2, length_penalty=1.0))
    pool.add([(-2.0, "a"), (-4.0, "b")], 2)
    pool.add([(-6.0, "c"), (-3.0, "d")], 3)
    assert [(each.text, each.score, each.log_p) for each in pool.best] == [
        ("a", -1.0, -2.0),
        ("d", -1.0, -3.0),
    ]


@pytest.mark.parametrize(
    ("stopping", "penalty", "running", "over"),
    [
        (True, 1.0, -1.0, True),  # enough are finished
        (False, 1.0, -7.9, False),  # -7.9 / 4 is better than -2
        (False, 1.0, -8.0, True),  # equal is not better
        ("never", 1.0, -19.9, False),  # of a text of 10
        ("never", 1.0, -20.0, True),
        ("never", 0.0, -1.9, False),
        ("never", 0.0, -2.0, True),
        ("never", -1.0, -0.6, True),  # longer can only be worse: as of now
    ],
)
def test_when_a_search_is_over(
    stopping: EarlyStopping, penalty: float, running: float, over: bool
) -> None:
    """By the best running beam's hope, held against the worst finished text."""
    pool: Pool[str] = Pool(rule(2, 10, length_penalty=penalty, early_stopping=stopping))
    pool.add([(-1.0, "a")], 1)
    assert not pool.is_over([-100.0], 4)  # one is not enough
    pool.add([(-2.0, "b")], 1)
    assert pool.is_over([running, -50.0], 4) == over


def test_with_no_text_that_goes_on_it_is_over() -> None:
    """Though too few are finished."""
    assert Pool[str](rule(3)).is_over([], 7)


rows = st.lists(st.integers(-3, 0), min_size=3, max_size=6).map(
    lambda values: Ranked(
        tuple((7, END, 5, 4, 3, 2)[: len(values)]),
        tuple(float(value) for value in sorted(values, reverse=True)),
    )
)


@given(
    known=st.lists(rows, min_size=1, max_size=4),
    unknown=st.lists(st.tuples(st.integers(0, 4), rows), min_size=1, max_size=3),
    scores=st.lists(st.integers(-8, 0).map(float), min_size=8, max_size=8),
    beams=st.integers(1, 4),
    limit=st.sampled_from([5, 100]),
)
def test_a_step_that_can_be_told_is_the_step(
    known: list[Ranked],
    unknown: list[tuple[int, Ranked]],
    scores: list[float],
    beams: int,
    limit: int,
) -> None:
    """Whatever the rows hold that were not known, the step that was told is the real one."""
    filled: list[Ranked] = list(known)
    holed: list[Ranked | None] = list(known)
    for place, row in unknown:
        at = min(place, len(filled))
        filled.insert(at, row)
        holed.insert(at, None)
    scores = sorted(scores[: len(filled)], reverse=True)
    law = rule(beams, limit)
    told = law.step_if_known(scores, holed, 5, falls=True)
    assert told in (None, law.step(scores, filled, 5))
    assert law.step_if_known(scores, holed, 5, falls=False) is None
    assert law.step_if_known(scores, filled, 5, falls=False) == law.step(scores, filled, 5)


def test_a_beam_far_below_needs_no_row() -> None:
    """Two candidates above a beam's own score leave it no chance; one equal to it does."""
    row = Ranked((1, 2), (-1.0, -2.0))
    scores = [0.0, -2.5]
    step = rule(2).step_if_known(scores, [row, None], 4, falls=True)
    assert step == Step(step.running, ()) if step else False
    assert rule(2).step_if_known([0.0, -2.0], [row, None], 4, falls=True) is None


def test_what_may_add_to_a_score() -> None:
    """Biases above 0 and penalties may; masks, and biases below, do not."""
    assert only_falls(Sampling(banned_tokens=(1,), logit_bias={2: -3.0}))
    assert not only_falls(Sampling(logit_bias={2: 0.5}))
    assert not only_falls(Sampling(frequency_penalty=0.1))


def test_a_row_is_ranked_by_log_probabilities_after_penalties() -> None:
    """A penalty on log-probabilities, which are below 0, multiplies: as transformers does."""
    logits = np.array([2.0, 2.0, 1.0, -1.0], np.float32)
    plain = Warp(Sampling(), 4)
    log_p = logits - np.log(np.exp(logits).sum())
    row = ranked(plain, logits, plain.start([1]), 3)
    assert row.tokens == (0, 1, 2)
    assert row.log_p == pytest.approx(log_p[:3], abs=1e-6)
    warp = Warp(Sampling(repetition_penalty=2.0, banned_tokens=(2,)), 4)
    row = ranked(warp, logits, warp.start([0]), 4)
    assert row.tokens == (1, 0, 3)
    assert row.log_p == pytest.approx([log_p[1], 2 * log_p[0], log_p[3]], abs=1e-6)
