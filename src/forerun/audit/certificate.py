"""What an audit ends with: what was tested, how strongly, and what was not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from forerun.audit.beams import BeamsReport
from forerun.audit.identity import IdentityReport
from forerun.audit.laws import TOLERANCE, Finding
from forerun.audit.mutants import MutantFinding
from forerun.audit.rows import RowsReport
from forerun.audit.sampler import SamplerFinding
from forerun.printable import counted

__all__ = ["Certificate"]

_SHOWN = 5  # problems of one kind

NOT_TESTED = (
    "That the model's numbers are those its authors meant: the file is taken as it is.",
    "Laws over large vocabularies and long drafts: they are enumerated over 2 to 4 tokens, and "
    "follow for all others from the proofs in docs/explain/exactness.md.",
    "Whether the noise is random in every statistical sense: it is Philox-4x32-10, and only its "
    "distribution and its addresses are tested here.",
    "Speed. That is what a benchmark is for.",
)


@dataclass(slots=True)
class Certificate:
    """The findings of one audit.

    Attributes:
        model: The audited model's name, or None if no model was given.
        thorough: Whether the longer grid ran.
        basics: Problems of coins and warp; their checks are all or nothing.
        laws: One finding for each enumerated case.
        match_paths: Paths compared over quantised noise.
        match_cases: Tables they come from.
        match_problems: Paths that differ.
        sampler: The statistical tests.
        toys: Identity on toys.
        beams: Beam search on toys.
        random: Identity on random models of the native target.
        real: Identity on the model.
        rows: Row-exactness on the native target.
        control: What the ordinary checks find without a mutant; must be nothing.
        mutants: What became of each mutant.
        seconds: Time the audit took.
        left: Parts that it had not finished; none unless it was interrupted.
    """

    model: str | None = None
    thorough: bool = False
    basics: list[str] = field(default_factory=list)
    laws: list[Finding] = field(default_factory=list)
    match_paths: int = 0
    match_cases: int = 0
    match_problems: list[str] = field(default_factory=list)
    sampler: list[SamplerFinding] = field(default_factory=list)
    toys: IdentityReport = field(default_factory=IdentityReport)
    beams: BeamsReport = field(default_factory=BeamsReport)
    random: IdentityReport = field(default_factory=IdentityReport)
    real: IdentityReport = field(default_factory=IdentityReport)
    rows: RowsReport = field(default_factory=RowsReport)
    control: str = ""
    mutants: list[MutantFinding] = field(default_factory=list)
    seconds: float = 0.0
    left: list[str] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        """Every broken promise, in words."""
        laws = [f"{f.name}: {f.problem}" for f in self.laws if f.problem]
        sampler = [f"{f.name}: {f.problem}" for f in self.sampler if f.problem]
        escaped = [f"nothing catches: {m.mutant.name}" for m in self.mutants if not m.caught_by]
        control = [f"without any mutant: {self.control}"] if self.control else []
        texts = self.identity.problems + self.beams.problems + self.rows.problems
        return self.basics + laws + self.match_problems + sampler + texts + control + escaped

    @property
    def identity(self) -> IdentityReport:
        """Identity on toys, random models and the model together."""
        together = IdentityReport()
        for report in (self.toys, self.random, self.real):
            together.add(report)
        return together

    @property
    def ok(self) -> bool:
        """Whether every promise was tested that could be, and is kept."""
        return not self.problems and not self.left

    @property
    def max_error(self) -> float:
        """The largest error of any enumerated probability."""
        return max((finding.error for finding in self.laws), default=0.0)

    @property
    def caught(self) -> int:
        """Mutants that an ordinary check noticed."""
        return sum(mutant.caught_by is not None for mutant in self.mutants)

    def as_json(self) -> dict[str, object]:
        """Return the certificate as one JSON object."""
        return {
            "event": "audit",
            "ok": self.ok,
            "model": self.model,
            "thorough": self.thorough,
            "problems": self.problems,
            "interrupted": bool(self.left),
            "left": self.left,
            "laws": {
                "max_error": self.max_error,
                "tolerance": TOLERANCE,
                "cases": len(self.laws),
                "outcomes": sum(finding.outcomes for finding in self.laws),
            },
            "match": {
                "paths": self.match_paths,
                "cases": self.match_cases,
                "mismatches": len(self.match_problems),
            },
            "sampler": {"tests": [finding.as_json() for finding in self.sampler]},
            "identity": self._identity_as_json(),
            "beams": {
                "searches": self.beams.searches,
                "steps": self.beams.steps,
                "passes": self.beams.passes,
                "mismatches": len(self.beams.problems),
            },
            "rows": self.rows.as_json(),
            "mutants": {
                "caught": self.caught,
                "total": len(self.mutants),
                "control": not self.control,
                "each": [mutant.as_json() for mutant in self.mutants],
            },
            "not_tested": list(self._not_tested()),
            "seconds": self.seconds,
        }

    def _identity_as_json(self) -> dict[str, object]:
        all_ = self.identity
        return {
            "tokens": all_.tokens,
            "tokens_by_target": all_.by_target,
            "model_tokens": self.real.tokens,
            "model_target": next(iter(self.real.by_target), None),
            "mismatches": len(all_.mismatches),
            "near_ties": len(all_.near),
            "widest_near_tie": max(all_.near, default=0.0),
            "near_tie_allowed": all_.tolerance,
            "idle_cells": len(all_.idle),
            "cells": all_.cells,
            "model_cells": self.real.cells,
            "ended_in_draft": all_.ended_in_draft,
            "drafted": all_.drafted,
            "accepted": all_.accepted,
            "model_drafted": self.real.drafted,
        }

    def text(self) -> str:
        """Return the certificate in plain language."""
        problems = self.problems
        verdict = "A promise is broken." if problems else "All promises that were tested are kept."
        if self.left:
            verdict = f"INTERRUPTED before the end. {verdict}"
        shown = [f"- {problem}" for problem in problems[:_SHOWN]]
        if len(problems) > _SHOWN:
            shown.append(f"- and {len(problems) - _SHOWN} more")
        tested = "\n".join(f"- {line}" for line in self._tested())
        untested = "\n".join(f"- {line}" for line in self._not_tested())
        return (
            "\n".join([verdict, *shown, "", "Tested:", tested, "", "Not tested:", untested, ""])
            + f"\nTook {counted(round(self.seconds), 'second')}."
        )

    def _tested(self) -> Iterator[str]:
        yield from self._tested_laws()
        for where, report in (("toys", self.toys), ("random models", self.random)):
            if report.cells:
                yield self._identity(where, report)
        if self.model is not None and self.real.cells:
            yield self._identity(self.model, self.real)
        if self.beams.searches:
            beams = self.beams
            yield (
                f"Beams. {beams.searches} searches on toys with every drafter, {beams.steps:,} "
                f"steps in {beams.passes:,} passes: {len(beams.problems)} find other beams than "
                "plain beam search, or other bits of a score."
            )
        if self.rows.cases:
            yield self._rows()
        if self.mutants or not self.left:
            yield (
                f"Mutants. Of {len(self.mutants)} wrong versions of our own functions, one line "
                f"each, the same checks catch {self.caught}; unchanged, they "
                + ("find nothing." if not self.control else "find something, too.")
            )

    def _tested_laws(self) -> Iterator[str]:
        if self.left and not self.laws:
            return
        outcomes = sum(finding.outcomes for finding in self.laws)
        yield (
            f"Laws. {len(self.laws)} cases of the rules speculative, block, tree and lenient, all "
            f"{outcomes:,} outcomes walked: no text's probability is off by more than "
            f"{self.max_error:.1e} (allowed: {TOLERANCE:.0e}). Lenient moves the law by what "
            "theory says."
        )
        if self.match_cases or not self.left:
            yield (
                f"Match. {self.match_paths:,} paths over every noise that {self.match_cases} "
                f"small tables can hold: {len(self.match_problems)} differ from plain decoding."
            )
        for finding in self.sampler:
            power = finding.power
            yield (
                f"Sampler, {finding.name}: {finding.sample:,} draws, off by at most "
                f"{finding.largest_error:.4f} (allowed: {finding.allowed:.4f}). An error of "
                f"{power.smallest_error:g} would escape with a probability under "
                f"{power.false_pass:g}; a right sampler fails with one under "
                f"{power.false_fail:g}."
            )

    def _identity(self, where: str, report: IdentityReport) -> str:
        drafters = ", ".join(
            f"{name} {report.accepted.get(name, 0)} of {count}"
            for name, count in sorted(report.drafted.items())
        )
        target = " and ".join(report.by_target)
        return (
            f"Identity on {where} (target {target}). {report.tokens:,} tokens in {report.cells} "
            "combinations of drafter, rule, temperature, filter and shape of the draft: "
            f"{len(report.mismatches)} differ from plain decoding, {_how_compared(report)}. "
            f"{report.ended_in_draft} texts ended inside a draft. Accepted: {drafters}."
        )

    def _rows(self) -> str:
        rows = self.rows
        return (
            f"Rows. {rows.cases:,} random cases on the native target, {len(rows.subjects)} models, "
            f"each on {' and '.join(rows.instruction_sets)}, on 1 to 3 threads, keys and values in "
            "16 or 32 bits: prompts split, texts mixed in a pass, trees, rollbacks, forks, page "
            "borders. "
            f"{rows.rows:,} rows in {rows.passes:,} passes compared with texts read alone, logits "
            f"and hidden states bit for bit: {len(rows.mismatches)} cases differ."
        )

    def _not_tested(self) -> Iterator[str]:
        if self.left:
            yield f"What was interrupted, or still to come: {', '.join(self.left)}."
        if self.model is None:
            yield "Any real model: none was given."
        if not self.rows.cases and not self.left:
            yield "Rows of the native target: the compiled module is not there."
        yield from NOT_TESTED


def _how_compared(report: IdentityReport) -> str:
    """Say what was compared: bits, or tokens up to near-ties, with how many there were."""
    if not report.tolerance:
        return "log-probabilities compared bit for bit"
    widest = f", the widest {max(report.near):.1e}" if report.near else ""
    return (
        f"but for {counted(len(report.near), 'near-tie')}{widest} (allowed: "
        f"{report.tolerance:g} between two logits), for this target promises the same law, not the "
        "same bits"
    )
