"""Plain beam search: one pass a step, a sequence of the target for each running beam.

The slow, clear twin of `beam.search`, and what its passes and rows are compared with.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import NamedTuple

from forerun.core.beams import BeamRule, Candidate, Finished, Pool, ranked
from forerun.core.warp import State, Warp
from forerun.targets.protocol import Row, Target

__all__ = ["Found", "plain_beams"]


class Found(NamedTuple):
    """One text.

    Attributes:
        tokens: Its output.
        log_p: Of each token, what it added to the score.
    """

    tokens: tuple[int, ...]
    log_p: tuple[float, ...]


class _Beam(NamedTuple):
    """A running beam; the target's sequence holds all of its text but the last token."""

    text: Found
    score: float
    state: State
    sequence: int


def plain_beams(
    target: Target,
    prompt: tuple[int, ...],
    rule: BeamRule,
    warp: Warp,
    source: tuple[int, ...] | None = None,
) -> list[Finished[Found]]:
    """Return the best finished texts, best first.

    Args:
        target: Scores rows.
        prompt: At least one token.
        rule: What is searched for.
        warp: Masks, bias and penalties.
        source: What the target's encoder reads, if it has one.
    """
    pool: Pool[Found] = Pool(rule)
    first = target.open(prompt[:-1], source)
    running = [_Beam(Found((), ()), 0.0, warp.start(prompt), first)]
    position, length = len(prompt) - 1, 0
    try:
        while True:
            rows = [
                Row(beam.sequence, (*prompt, *beam.text.tokens)[-1], position, -1)
                for beam in running
            ]
            logits = target.score(rows).logits
            for index, beam in enumerate(running):
                target.commit(beam.sequence, [index])
            states = [beam.state for beam in running]
            seen = [
                ranked(warp, row, state, rule.reach)
                for row, state in zip(logits, states, strict=True)
            ]
            length, position = length + 1, position + 1
            step = rule.step([beam.score for beam in running], seen, length)
            ended = [(each.score, _longer(running[each.beam].text, each)) for each in step.ended]
            pool.add(ended, length)
            running = _next(target, running, step.running)
            if pool.is_over([beam.score for beam in running], length):
                return pool.best
    finally:
        with ExitStack() as all_of_them:
            for beam in running:
                all_of_them.callback(target.free, beam.sequence)


def _next(target: Target, running: list[_Beam], kept: tuple[Candidate, ...]) -> list[_Beam]:
    """Return the beams that go on, each with a sequence of its own."""
    after = [
        _Beam(
            _longer(running[each.beam].text, each),
            each.score,
            running[each.beam].state.advance(each.token),
            target.fork(running[each.beam].sequence),
        )
        for each in kept
    ]
    for beam in running:
        target.free(beam.sequence)
    return after


def _longer(text: Found, candidate: Candidate) -> Found:
    return Found((*text.tokens, candidate.token), (*text.log_p, candidate.log_p))
