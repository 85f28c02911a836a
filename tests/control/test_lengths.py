"""How far a drafter that drafts by itself runs ahead."""

from __future__ import annotations

from itertools import pairwise

from forerun.control.lengths import LONGEST, Lengths
from forerun.core.tree import Draft

FLAT = [1.0] * (LONGEST + 1)


def chain(length: int) -> Draft:
    """Return a chain."""
    return Draft.chain(range(length), "a")


def test_a_drafter_that_is_always_right_runs_as_far_as_rows_are_cheap() -> None:
    """To the longest where they cost nothing, and as far as there is room."""
    lengths = Lengths()
    for _ in range(60):
        lengths.learn(chain(LONGEST), LONGEST, 0.0)
    assert lengths.choose(FLAT, 99) == LONGEST
    assert lengths.choose(FLAT, 3) == 3
    assert lengths.choose([1.0, 1.01, 1.02, 9.0], 99) == 2


def test_a_drafter_that_costs_more_than_it_brings_is_switched_off_and_tried_again() -> None:
    """Ever less often while it fails, and at once when it helps."""
    lengths = Lengths()
    for _ in range(60):
        lengths.learn(chain(4), 0, 0.4)
    tried = [n for n in range(600) if lengths.choose(FLAT, 9)]
    assert 2 <= len(tried) <= 8
    pauses = [b - a for a, b in pairwise(tried)]
    assert pauses == sorted(pauses)
    for _ in range(80):
        lengths.learn(chain(1), 1, 0.0)
    assert lengths.choose(FLAT, 9) > 0


def test_the_length_follows_the_acceptance_by_depth() -> None:
    """Right for two tokens and never for a third: two are drafted, if rows cost anything."""
    lengths = Lengths()
    for _ in range(200):
        lengths.learn(chain(6), 2, 0.0)
    assert lengths.choose([1.0 + 0.05 * n for n in range(LONGEST + 1)], 99) == 2


def test_no_room_no_draft() -> None:
    """Neither as a probe."""
    assert {Lengths().choose(FLAT, 0) for _ in range(100)} == {0}
