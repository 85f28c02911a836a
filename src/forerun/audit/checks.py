"""The ordinary checks in small: seconds together, and every known mistake must show in one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from forerun.audit.beams import beam_problems
from forerun.audit.coins import coin_problems
from forerun.audit.grid import short_law_cases
from forerun.audit.identity import Cell, compare
from forerun.audit.paths import MatchCase
from forerun.audit.row_models import SHAPES
from forerun.audit.rows import check_rows_of, random_subjects
from forerun.audit.sampler import sampler_tests
from forerun.audit.stages import ending_cells, ending_stage, toy_stage
from forerun.audit.warps import warp_problems
from forerun.audit.worlds import make_world
from forerun.native import is_there

__all__ = ["CHECKS", "first_problem"]


def law_problems() -> Iterator[str]:
    """Enumerate a few laws of each rule."""
    for case in short_law_cases():
        finding = case.check()
        if finding.problem:
            yield f"{finding.name}: {finding.problem}"


def match_problems() -> Iterator[str]:
    """Walk small noise tables."""
    world = make_world("unrelated", 2, 5)
    yield from MatchCase(world, "plain", 2, 3).check()[1]
    yield from MatchCase(world, "penalties", 2, 2, whole=True).check()[1]


def sampler_problems() -> Iterator[str]:
    """Count what the plain sampler draws."""
    for test in sampler_tests(0.2):
        finding = test(lambda share: None)
        if finding.problem:
            yield f"{finding.name}: {finding.problem}"


def identity_problems() -> Iterator[str]:
    """Compare a few texts with plain decoding's."""
    cells = [
        Cell(drafter, temperature, name, width)
        for drafter in ("model", "lookup")
        for temperature, name in ((0.0, "penalties"), (1.0, "no filter"), (0.7, "top-p"))
        for width in (1, 3)
    ]
    yield from compare(toy_stage(max_tokens=15), cells).problems


def ending_problems() -> Iterator[str]:
    """Compare the ends of a few texts."""
    stage = ending_stage(max_tokens=14)
    yield from compare(stage, list(ending_cells(("model",)))).problems


def row_problems() -> Iterator[str]:
    """Read a few texts on the native target in several ways, where it is compiled."""
    if is_there():
        for subject in random_subjects(SHAPES[1::2]):
            yield from check_rows_of(subject, range(8)).problems


CHECKS: dict[str, Callable[[], Iterator[str]]] = {
    "coins": lambda: iter(coin_problems()),
    "warp": lambda: iter(warp_problems()),
    "match": match_problems,
    "laws": law_problems,
    "identity": identity_problems,
    "endings": ending_problems,
    "sampler": sampler_problems,
    "rows": row_problems,
    "beams": beam_problems,
}
"""Each yields what is wrong, in words."""


def first_problem(first: str = "coins") -> tuple[str, str] | None:
    """Run the checks until one of them finds something: its name and what it found, else None.

    A check that breaks down has found something too: a mistake that stops the loop is noticed.

    Args:
        first: The check to begin with, because it is the likeliest to notice.
    """
    for name, check in sorted(CHECKS.items(), key=lambda item: item[0] != first):
        try:
            problem = next(check(), None)
        except Exception as error:  # whatever a wrong line makes production raise
            problem = f"{type(error).__name__}: {error}"
        if problem is not None:
            return name, problem
    return None
