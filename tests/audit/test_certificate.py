"""The certificate says what was found; the whole audit finds nothing wrong."""

from __future__ import annotations

import json

import pytest

from forerun.audit import Certificate, run_audit
from forerun.audit.beams import BeamsReport
from forerun.audit.identity import FILTERS, TEMPERATURES, IdentityReport
from forerun.audit.laws import Finding
from forerun.audit.mutant_table import MUTANTS
from forerun.audit.mutants import MutantFinding
from forerun.audit.row_models import SHAPES
from forerun.audit.rows import Mismatch, RowsReport
from forerun.audit.sampler import Power, SamplerFinding
from forerun.drafters.table import DRAFTERS
from forerun.models.model import load_model


def _good() -> Certificate:
    return Certificate(
        model="m",
        laws=[Finding("a law", 1e-16, 10)],
        sampler=[SamplerFinding("seeds", 100, Power(0.1), 0.01, 0.05)],
        toys=IdentityReport(30, {"toy": 30}, 2, drafted={"random": 9}),
        random=IdentityReport(5, {"native": 5}, 3),
        real=IdentityReport(12, {"native": 12}, 1),
        rows=RowsReport(2_500, ("portable", "avx2"), ["random", "m"], 9_000, 40_000),
        mutants=[MutantFinding(MUTANTS[0], "coins", "noticed")],
    )


def test_a_clean_certificate_is_ok() -> None:
    """Without a problem it is ok, in JSON and in words."""
    record = json.loads(json.dumps(_good().as_json()))
    assert record["ok"] is True
    assert record["laws"]["max_error"] == 1e-16
    assert record["identity"]["tokens"] == 47
    assert record["identity"]["tokens_by_target"] == {"toy": 30, "native": 17}
    assert record["identity"]["model_target"] == "native"
    assert record["identity"]["cells"] == 6
    assert record["identity"]["model_tokens"] == 12
    assert record["identity"]["mismatches"] == 0
    assert record["rows"]["cases"] == 2_500
    assert record["rows"]["mismatches"] == 0
    assert record["rows"]["instruction_sets"] == ["portable", "avx2"]
    assert record["mutants"]["caught"] == record["mutants"]["total"] == 1
    text = _good().text()
    assert text.startswith("All promises that were tested are kept.")
    assert "Not tested:" in text
    assert "random 0 of 9" in text
    assert "Rows. 2,500 random cases" in text
    assert "portable and avx2" in text


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("basics", ["a coin of 0"]),
        ("laws", [Finding("a law", 0.1, 10, "off by 0.1")]),
        ("match_problems", ["another path"]),
        ("sampler", [SamplerFinding("seeds", 9, Power(0.1), 0.2, 0.05, "too often")]),
        ("toys", IdentityReport(mismatches=["position 3"])),
        ("random", IdentityReport(mismatches=["position 2"])),
        ("beams", BeamsReport(problems=["beam 1 is another"])),
        ("real", IdentityReport(idle=["drafter lookup"])),
        ("control", "laws: off"),
        ("rows", RowsReport(mismatches=[Mismatch("a model", 7, "avx2", 2, 16, "logits differ")])),
        ("mutants", [MutantFinding(MUTANTS[0], None, "no check noticed")]),
    ],
)
def test_any_problem_breaks_it(part: str, value: object) -> None:
    """One finding of any kind is enough, and it is named."""
    certificate = _good()
    setattr(certificate, part, value)
    assert not certificate.ok
    assert certificate.as_json()["ok"] is False
    assert len(certificate.problems) == 1
    assert certificate.problems[0] in certificate.text()
    assert certificate.text().startswith("A promise is broken.")


def test_many_problems_are_counted_not_poured_out() -> None:
    """The text shows the first few and says how many more there are."""
    certificate = Certificate(basics=[f"problem {i}" for i in range(12)])
    assert "and 7 more" in certificate.text()


def test_without_a_model_it_says_so() -> None:
    """What was not tested is part of the certificate."""
    assert "none was given" in Certificate().text()
    assert "the compiled module is not there" in Certificate().text()


@pytest.mark.model
@pytest.mark.slow
def test_the_whole_audit_passes() -> None:
    """On the default model every promise holds, in the numbers that are promised."""
    shares: list[float] = []
    model = load_model("smollm2")
    certificate = run_audit(model=model, progress=lambda name, share: shares.append(share))
    assert certificate.problems == []
    record = certificate.as_json()
    assert certificate.max_error <= 1e-12
    assert record["identity"]["tokens"] >= 20_000  # type: ignore[index]
    assert certificate.real.tokens >= 3_000
    assert certificate.identity.by_target["native"] >= 20_000
    assert certificate.real.cells >= len(DRAFTERS) * len(TEMPERATURES) * len(FILTERS)
    assert set(certificate.real.drafted) == set(DRAFTERS)
    assert certificate.caught == len(certificate.mutants) >= 14
    assert certificate.rows.cases >= 2_000
    assert len(certificate.rows.subjects) == len(SHAPES) + 1
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert len(shares) > 1000


def test_an_audit_that_is_over_early_says_what_is_left() -> None:
    """What was finished is told as ever, and nothing of what was not."""
    told: list[str] = []
    certificate = run_audit(
        progress=lambda part, share: told.append(part), is_over=lambda: "laws of the rules" in told
    )
    assert set(told) == {"coins and warp", "laws of the rules"}
    assert certificate.left[:2] == ["laws of the rules", "match over all noise"]
    assert certificate.left[-1] == "mutants"
    assert not certificate.problems
    assert not certificate.ok
    assert "Laws." not in certificate.text()
