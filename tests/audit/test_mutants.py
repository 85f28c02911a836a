"""Every mutant is caught by an ordinary check; nothing is caught without one."""

from __future__ import annotations

from collections import Counter

import pytest

from forerun.audit.checks import CHECKS, first_problem
from forerun.audit.mutant import Mutant
from forerun.audit.mutant_table import MUTANTS
from forerun.audit.mutants import can_show, living, try_mutant
from forerun.core.coins import AddressedCoins
from forerun.errors import EngineError

COIN = MUTANTS[0]


def test_the_control_passes() -> None:
    """Unmutated, no check finds anything."""
    assert first_problem() is None


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught(mutant: Mutant) -> None:
    """A check notices the wrong line, by name."""
    if not can_show(mutant):
        pytest.skip("this machine does not run the line, or has one instruction set only")
    finding = try_mutant(mutant)
    assert finding.caught_by in CHECKS, finding.problem
    assert finding.problem
    assert finding.as_json()["name"] == mutant.name


def test_there_are_enough_and_each_once() -> None:
    """At least 16 mutants, of distinct names and distinct lines."""
    assert len(MUTANTS) >= 16
    assert Counter(m.name for m in MUTANTS).most_common(1)[0][1] == 1
    assert len({(m.function, m.new) for m in MUTANTS}) == len(MUTANTS)


def test_only_rows_depend_on_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the compiled module, the native target's mutants are left out, and no others."""
    monkeypatch.setattr("forerun.audit.mutants.is_there", lambda: False)
    left = [mutant for mutant in MUTANTS if not can_show(mutant)]
    assert left == [m for m in MUTANTS if m.function.startswith("forerun.targets.native:")]
    assert len(left) >= 15


def test_a_mutant_lives_only_inside_its_context() -> None:
    """Whatever happens inside, the function is itself again afterwards."""
    own = AddressedCoins.accept.__code__
    with living(COIN):
        assert AddressedCoins.accept.__code__ is not own
    assert AddressedCoins.accept.__code__ is own
    with pytest.raises(ZeroDivisionError), living(COIN):
        raise ZeroDivisionError
    assert AddressedCoins.accept.__code__ is own


@pytest.mark.parametrize("old", ["no such line", "s"])
def test_a_line_must_stand_exactly_once(old: str) -> None:
    """A mutant that no longer fits its function is not counted as caught."""
    stale = Mutant("stale", "", COIN.function, old, "")
    with pytest.raises(EngineError, match="not once"), living(stale):
        pass
    assert try_mutant(stale).caught_by is None


def test_only_plain_functions_can_be_mutated() -> None:
    """A class or a value is refused."""
    with (
        pytest.raises(EngineError, match="no plain function"),
        living(Mutant("", "", "forerun.core.coins:AddressedCoins", "a", "b")),
    ):
        pass
