"""The rules at the edges of arithmetic; their laws are enumerated in the audit's tests."""

from __future__ import annotations

from contextlib import nullcontext
from typing import get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from forerun.config import Generation, RuleName, Sampling
from forerun.core.coins import Address
from forerun.core.noise import Noise
from forerun.core.proposal import Dense
from forerun.core.rules import RULES, Chance, make_rule
from forerun.core.scored import ScoredDraft
from forerun.core.tree import ROOT, Draft, Node
from forerun.core.warp import Warp
from forerun.errors import OptionError


class Willing:
    """Coins that accept whatever is possible at all."""

    def accept(self, address: Address, probability: float) -> bool:
        """Return True unless it can't be."""
        return probability > 0.0

    def draw(self, address: Address, weights: NDArray[np.float64]) -> int:
        """Return the first index with weight."""
        return int(np.flatnonzero(weights)[0])


@pytest.mark.parametrize("rule", ["speculative", "block", "tree", "lenient"])
@pytest.mark.filterwarnings("error")
def test_what_has_no_probability_is_never_kept(rule: RuleName) -> None:
    """Not even if a later token's p/q is beyond the floats: 0 times infinity is not a number."""
    least = float(np.nextafter(0, 1))
    nodes = (
        Node(0, ROOT, Dense(np.array([1.0, 0.0])), "test"),
        Node(1, 0, Dense(np.array([1.0 - least, least])), "test"),
    )
    warp = Warp(Sampling.make(temperature=1, banned_tokens=[0]), 2)
    scored = ScoredDraft(Draft(nodes), np.zeros((3, 2), np.float32), warp, warp.start([]), 1)
    verdict = make_rule(rule).verify(scored, Chance(Noise(0), Willing()))
    assert (verdict.accepted, verdict.token, verdict.kind) == ((), 1, "corrected")


def test_options_and_table_name_the_same_rules() -> None:
    """Whoever adds a rule to one must add it to the other."""
    assert set(get_args(RuleName)) == set(RULES)


@pytest.mark.parametrize("rule", RULES)
def test_options_refuse_trees_for_just_the_rules_that_keep_none(rule: RuleName) -> None:
    """The options, which know no rule's code, agree with the rules."""
    refused = pytest.raises(OptionError, match="keeps chains only")
    with nullcontext() if RULES[rule]().keeps_trees else refused:
        Generation.make(rule=rule, draft_width=2)
