"""Beam search: with drafts as without, and what its definition says, found in another way."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from forerun.audit.wavering import WaveringCosts
from forerun.beam.ask import BeamAsk, stays_ahead
from forerun.beam.plain import Found, plain_beams
from forerun.beam.search import BeamSearch
from forerun.config import Sampling
from forerun.core.beams import BeamRule, EarlyStopping, Finished, Ranked
from forerun.core.noise import Noise
from forerun.drafters.protocol import Drafter
from forerun.drafters.table import DRAFTERS, DrafterKit, make_drafter
from forerun.native import fast_warp
from forerun.targets.toy import ToyTarget
from forerun.targets.toy_head import ToyHead
from forerun.targets.toy_readout import ToyReadout

__all__ = ["BeamsReport", "beam_cases", "beam_problems", "check_beams"]

_VOCAB, _END = 10, 0
_PROMPT = (1, 2, 3, 1, 2)
_STOPPING: tuple[EarlyStopping, ...] = (False, True, "never")
_SAMPLINGS = (
    Sampling(),
    Sampling(banned_tokens=(3,), logit_bias={2: -1.0}),
    Sampling(repetition_penalty=1.3, frequency_penalty=-0.2),
)


@dataclass(slots=True)
class BeamsReport:
    """What was searched for with drafts.

    Attributes:
        searches: How many searches were compared with plain ones.
        steps: Tokens that their beams grew by.
        passes: Of the target, in them.
        problems: What differs.
    """

    searches: int = 0
    steps: int = 0
    passes: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class BeamCase:
    """One search of a toy's beams."""

    drafter: str
    beams: int
    seed: int
    depth: int | None
    width: int | None

    def __str__(self) -> str:
        shape = "chosen" if self.depth is None else f"{self.depth} levels of {self.width}"
        return f"{self.beams} beams of toy {self.seed}, drafter {self.drafter}, {shape}"


def beam_cases(seeds: Sequence[int] = (0, 1)) -> list[BeamCase]:
    """Return searches with every drafter, few and many beams, and every shape of drafts."""
    shapes = ((1, 1), (3, 2), (None, None))
    cases = itertools.product(DRAFTERS, (2, 5), seeds)
    return [
        BeamCase(drafter, beams, seed, *shapes[i % len(shapes)])
        for i, (drafter, beams, seed) in enumerate(cases)
    ]


def check_beams(case: BeamCase, report: BeamsReport) -> None:
    """Search plainly and with drafts, and compare tokens and scores, bit for bit."""
    target = ToyTarget.random(_VOCAB, 2, case.seed)
    if case.seed % 2:  # ties, which a fixed rule breaks
        target = ToyTarget(np.round(target._table))
    kind = case.seed + case.beams
    rule = BeamRule(case.beams, frozenset({_END}), 9, 0.7, _STOPPING[kind % len(_STOPPING)])
    warp = fast_warp(_SAMPLINGS[kind % len(_SAMPLINGS)], _VOCAB, rule.ends, kind % 3)
    ask = BeamAsk(_PROMPT, rule, warp, case.depth, case.width, prediction=(4, 5, 6))
    plain = plain_beams(target, ask.prompt, rule, warp)
    search = _search(target, ask, case.drafter)
    report.searches += 1
    report.steps += search.stats.steps
    report.passes += search.stats.passes
    for place, (ours, truth) in enumerate(zip(search.best, plain, strict=False)):
        if ours != truth:
            report.problems.append(f"{case}: beam {place} is {ours}, plain search's {truth}")
            return
    if len(search.best) != len(plain):
        report.problems.append(f"{case}: {len(search.best)} beams, and {len(plain)} plainly")
    if target._sequences:
        report.problems.append(f"{case}: sequences are left open")


def beam_problems() -> Iterator[str]:
    """Try the definition, and a few searches."""
    yield from _order_problems()
    yield from _enumeration_problems()
    report = BeamsReport()
    for case in beam_cases((1,)):
        check_beams(case, report)
        yield from report.problems


def _search(target: ToyTarget, ask: BeamAsk, spec: str) -> BeamSearch:
    costs = WaveringCosts()
    search = BeamSearch(
        target,
        ask,
        _drafter(spec, target),
        names=itertools.count(1).__next__,
        seconds=costs.seconds,
        ahead=stays_ahead([spec]),
    )
    try:
        for _ in range(ask.rule.limit):  # each pass brings a step: a broken one may not run on
            if not search.is_over:
                search.advance()
    finally:
        search.close()
    return search


def _drafter(spec: str, target: ToyTarget) -> Drafter | None:
    head = ToyHead(target, range(1, _VOCAB), blur=0.5)
    readout = ToyReadout(target, range(1, _VOCAB))
    guesser = ToyTarget.random(_VOCAB, 1, 99)
    kit = DrafterKit(
        _VOCAB,
        lambda: guesser,
        target=target,
        open_head=lambda: head,
        open_readout=lambda _: readout,
    )
    return make_drafter(spec, kit)


def _order_problems() -> Iterator[str]:
    """Compare steps over rows full of ties with a sort that says all it sorts by."""
    for seed in range(20):
        drawn = np.round(Noise(seed).gumbel(0, 24)).reshape(3, 8)
        rows = []
        for row in -np.abs(drawn):
            tokens = np.lexsort((np.arange(8)[::-1] * (seed % 2), -row)).tolist()
            rows.append(Ranked(tuple(tokens), tuple(float(row[token]) for token in tokens)))
        scores = [-0.0, -1.0, -1.0]
        sorted_by = sorted(
            (-(scores[beam] + log_p), beam, place, token)
            for beam, row in enumerate(rows)
            for place, (token, log_p) in enumerate(zip(*row, strict=True))
        )
        step = BeamRule(3, frozenset({_END, 5}), 9).step(scores, rows, 2)
        best = [(beam, token) for _, beam, _, token in sorted_by[:3] if token in (_END, 5)]
        going = [(beam, token) for _, beam, _, token in sorted_by if token not in (_END, 5)][:3]
        if [(c.beam, c.token) for c in step.ended] != best:
            yield f"step {seed}: other texts end than the best ones"
        if [(c.beam, c.token) for c in step.running] != going:
            yield f"step {seed}: other texts go on than the best ones"


def _enumeration_problems() -> Iterator[str]:
    """Compare a search that drops no text with the list of all texts."""
    target = ToyTarget.random(4, 3, 5)
    rule = BeamRule(64, frozenset({_END}), 3, 0.6, "never")
    warp = fast_warp(Sampling(), 4, rule.ends)
    every: list[tuple[float, tuple[int, ...]]] = []
    texts: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    while texts:
        text, log_p = texts.pop()
        if text and (text[-1] == _END or len(text) == rule.limit):
            every.append((-log_p / len(text) ** 0.6, text))
            continue
        logits = target.logits_after([*_PROMPT, *text]).astype(float)
        laws = logits - np.log(np.exp(logits).sum())
        texts += [((*text, token), log_p + float(laws[token])) for token in range(4)]
    found: list[Finished[Found]] = plain_beams(target, _PROMPT, rule, warp)
    if [each.text.tokens for each in found] != [text for _, text in sorted(every)]:
        yield "a search that drops nothing finds other texts than enumeration"
