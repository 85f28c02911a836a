"""Cells of samples, and texts that repeat themselves."""

from __future__ import annotations

import pytest

from bench.race.fakes import sample
from forerun.bench.race.samples import LOOP_SHARE, cells_of, looping, repeated_share


def test_turns_of_a_prompt_are_one_cell() -> None:
    """Their tokens and seconds are summed; tasks are apart."""
    samples = [sample("a", turn=turn, seconds=1 + turn) for turn in (0, 1)]
    samples += [sample("a", "other", task="u")]
    cells = cells_of(samples, ["a"])
    assert list(cells) == ["t", "u"]
    assert cells["t"].tokens.tolist() == [[[20]]]
    assert cells["t"].seconds.tolist() == [[[3]]]
    assert cells["t"].known.tolist() == [[[True]]]


def test_a_cell_that_lacks_a_turn_is_not_known() -> None:
    """A side that was given up in mid-conversation, and a repeat that was interrupted."""
    samples = [sample("a", turn=turn, repeat=repeat) for turn in (0, 1) for repeat in (0, 1)]
    samples += [sample("b", repeat=0), sample("a", repeat=2)]
    known = cells_of(samples, ["a", "b"])["t"].known
    assert known.tolist() == [[[True, True, False]], [[False] * 3]]


def test_a_text_that_was_whole_with_the_first_pass_has_no_speed() -> None:
    """Its cell is left out, for both sides of a ratio; one that nobody took longer for as well."""
    samples = [sample("a", turn=turn, later=10 * turn) for turn in (0, 1)]
    samples += [sample("b", turn=turn) for turn in (0, 1)]
    samples += [sample(side, "2", later=0) for side in "ab"]
    cells = cells_of(samples, ["a", "b"])["t"]
    assert cells.known.tolist() == [[[False], [False]], [[True], [False]]]
    assert cells.tokens[:, 0, 0].tolist() == [10, 20]


@pytest.mark.parametrize(
    ("tokens", "share"),
    [
        ([], 0),
        (range(7), 0),
        (range(100), 0),
        ([1] * 8, 0),
        ([1] * 108, 100 / 101),
        ([*range(50), *range(50)], 43 / 93),
    ],
)
def test_repeated_8_grams(tokens: list[int], share: float) -> None:
    """The share of those that have stood in the text before."""
    assert repeated_share(list(tokens)) == pytest.approx(share)


def test_a_text_loops_if_ours_does() -> None:
    """All sides are spared the same texts, whatever peers made of them."""
    fine, loop = range(100), [*range(20)] * 5
    assert repeated_share(loop) > LOOP_SHARE
    samples = [sample("a", "x", tokens=fine), sample("b", "x", tokens=loop)]
    samples += [sample("a", "y", tokens=loop, turn=1), sample("b", "y", tokens=fine, turn=1)]
    assert looping(samples, "a") == {("y", 1)}
