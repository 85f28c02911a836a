"""Rule match over quantised noise."""

from __future__ import annotations

import pytest

from forerun.audit.paths import MatchCase, QuantisedNoise, match_cases
from forerun.audit.worlds import make_world


@pytest.mark.parametrize("case", list(match_cases()), ids=lambda case: case.name)
def test_drafts_change_no_path(case: MatchCase) -> None:
    """Over all noise of a small table, every draft leads along plain decoding's path."""
    paths, problems = case.check()
    assert problems == []
    assert paths >= 64


def test_noise_matters_in_the_tables() -> None:
    """The tables reach more than one path; else equality would show nothing."""
    case = MatchCase(make_world("unrelated", 2, 5), "plain", 3, 3)
    own = {case._own_path(case.options, noise) for noise in case._tables()}
    assert len(own) == 8


def test_a_table_has_ends() -> None:
    """Noise beyond the table is an error, so that no rule can look elsewhere unnoticed."""
    noise = QuantisedNoise([[0.0, 1.0]], first=2)
    assert noise.gumbel(2, 2).tolist() == [0.0, 1.0]
    for position, vocab_size in ((1, 2), (3, 2), (2, 3)):
        with pytest.raises(IndexError):
            noise.gumbel(position, vocab_size)
