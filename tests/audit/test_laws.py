"""The laws of the rules by enumeration, and the enumeration by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from forerun.audit.closed_forms import expected_length
from forerun.audit.coins import enumerate_outcomes
from forerun.audit.grid import law_cases, short_law_cases
from forerun.audit.laws import TOLERANCE, LawCase, RoundCase, TextCase
from forerun.audit.plans import PLANS, PlannedDrafter, chain
from forerun.audit.worlds import RELATIONS, World, make_world
from forerun.config import RuleName
from forerun.targets.toy import ToyTarget
from forerun.theory.acceptance import acceptance

CHAIN_RULES: tuple[RuleName, ...] = ("speculative", "block", "tree")


def _thirds() -> World:
    """Return the example of Sun et al. (2025): p = (1/3, 2/3), q = (2/3, 1/3) everywhere."""
    p, q = (np.log(np.array(law, np.float64)) for law in ((1 / 3, 2 / 3), (2 / 3, 1 / 3)))
    return World("thirds", ToyTarget(p.astype(np.float32)), ToyTarget(q.astype(np.float32)))


@pytest.mark.parametrize("case", list(short_law_cases()), ids=lambda case: case.name)
def test_a_rule_keeps_its_law(case: LawCase) -> None:
    """Every outcome walked, no text's probability is off."""
    finding = case.check()
    assert finding.problem == ""
    assert finding.error <= TOLERANCE
    assert finding.outcomes > 1


@pytest.mark.slow
def test_every_case_of_the_grid_keeps_its_law() -> None:
    """The audit's whole grid holds, to rounding."""
    findings = [case.check() for case in law_cases()]
    assert [finding for finding in findings if finding.problem] == []
    assert max(finding.error for finding in findings) <= 1e-14


def test_the_grid_has_what_was_promised() -> None:
    """Chains of 1 to 4, every tree, every relation, several rounds in a row, all rules."""
    cases = list(law_cases())
    rounds = [case for case in cases if isinstance(case, RoundCase)]
    texts = [case for case in cases if isinstance(case, TextCase)]
    for rule in CHAIN_RULES:
        plans = {case.plan.name for case in rounds if case.rule == rule}
        assert plans >= {f"chain of {n}, drawn" for n in (1, 2, 3, 4)}
        assert any(case.max_tokens > case.draft_length + 1 for case in texts if case.rule == rule)
    assert {case.plan.name for case in rounds if case.rule == "tree"} >= set(PLANS)
    for relation in RELATIONS:
        assert any(case.world.name.startswith(relation) for case in rounds)
    assert {case.lenience for case in rounds if case.rule == "lenient"} >= {1.0, 0.5}
    assert len({case.name for case in cases}) > 500


@pytest.mark.parametrize(("rule", "length"), [("speculative", 10 / 9), ("block", 11 / 9)])
def test_the_example_of_block_verification(rule: RuleName, length: float) -> None:
    """Token by token 10/9 of two drafted tokens stay on average, jointly 11/9."""
    case = RoundCase(_thirds(), rule, chain(2))
    kept = math.fsum(n * p for (_, n), p in enumerate_outcomes(case.run))
    assert kept == pytest.approx(length, abs=1e-6)
    assert expected_length(case, (), rule == "block") == pytest.approx(kept, abs=1e-12)


def test_a_single_token_is_accepted_as_theory_says() -> None:
    """The expected length of one draft is alpha = sum min(p, q)."""
    case = RoundCase(_thirds(), "speculative", chain(1))
    alpha = acceptance((1 / 3, 2 / 3), (2 / 3, 1 / 3))
    assert expected_length(case, (), False) == pytest.approx(alpha, abs=1e-7)


@pytest.mark.parametrize("lenience", [0.9, 0.5, 0.1])
def test_lenient_is_another_law_by_the_amount_of_theory(lenience: float) -> None:
    """The closed form is met, and it is not the target's."""
    world = make_world("unrelated", 3, 5)
    assert RoundCase(world, "lenient", chain(1), lenience=lenience).check().problem == ""
    lenient = RoundCase(world, "lenient", chain(1), lenience=lenience)
    assert "theory says" in lenient._lenient_problem(0.0)


def test_lenience_one_is_exact() -> None:
    """At l = 1 lenient is rule speculative; were it not, it would be said."""
    case = RoundCase(make_world("far", 3, 5), "lenient", chain(2), lenience=1.0)
    assert case.check().problem == ""
    assert "moves the law" in case._lenient_problem(0.01)


def test_a_wrong_target_is_noticed() -> None:
    """A world whose target is not the one that was scored fails its case."""
    world, other = make_world("close", 3, 5), make_world("close", 3, 6)

    class Wrong(ToyTarget):
        def logits_after(self, tokens: object) -> object:  # type: ignore[override]
            self.asked = getattr(self, "asked", 0) + 1
            source = other if self.asked % 2 else world
            return source.target.logits_after(tokens)  # type: ignore[arg-type]

    wrong = World("wrong", Wrong(world.target._table), world.drafter)
    finding = RoundCase(wrong, "speculative", chain(1)).check()
    assert finding.problem
    assert finding.error > 1e-3


def test_entropy_stops_some_drafts_and_not_others() -> None:
    """The plan that stops by entropy really drafts at several lengths."""
    cases = [
        case
        for case in law_cases()
        if isinstance(case, RoundCase) and math.isfinite(case.plan.most_entropy)
    ]
    lengths = set()

    class Spy(PlannedDrafter):
        def draft(self, requests: object) -> list[object]:  # type: ignore[override]
            drafts = super().draft(requests)  # type: ignore[arg-type]
            lengths.update(len(draft) for draft in drafts)
            return drafts  # type: ignore[return-value]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("forerun.audit.laws.PlannedDrafter", Spy)
        assert [case.check().problem for case in cases] == [""] * len(cases)
    assert lengths == {0, 1, 2, 3}


def test_the_longer_grid_can_be_built() -> None:
    """Every case of the thorough audit has a world its settings fit."""
    cases = list(law_cases(thorough=True))
    assert len(cases) > 3 * len(list(law_cases()))
    for case in cases:
        if isinstance(case, RoundCase):
            assert case.start
