"""One round of many requests: draft, score, verify, cut, commit."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.control.control import Control, RoundTimes
from forerun.core.rules import Verdict
from forerun.core.scored import ScoredDraft
from forerun.core.tree import Draft
from forerun.core.warp import likeliest
from forerun.drafters.protocol import Drafter, Outcome
from forerun.engine.drafting import Drafts, draft_round, each_once
from forerun.engine.request import Request
from forerun.errors import EngineError
from forerun.events import Drafted, Event, RoundEvent, Source, TokenEvent
from forerun.targets.protocol import Row, Target

__all__ = ["run_round"]


def run_round(
    target: Target,
    requests: Sequence[Request],
    drafters: Sequence[Drafter | None],
    control: Control,
) -> list[Event]:
    """Advance every request by at least one token; return what happened, request by request.

    Args:
        target: Scores all drafts in one pass.
        requests: Running ones, none finished.
        drafters: Each request's drafter, or None.
        control: Chooses what is drafted, where a request leaves it open.
    """
    begun = time.perf_counter()
    made = draft_round(requests, drafters, control)
    drafted = time.perf_counter()
    starts, rows = _rows(requests, made.drafts)
    logits = target.score(rows).logits
    scored = time.perf_counter()
    events: list[Event] = []
    outcomes: list[Outcome] = []
    for index, (request, start) in enumerate(zip(requests, starts, strict=True)):
        draft = made.drafts[index]
        part = logits[start : start + len(draft) + 1]
        position = len(request.tokens)
        on_draft = ScoredDraft(draft, part, request.warp, request.state, position)
        verdict = _verify(request, on_draft)
        happened = _cut(request, on_draft, verdict)
        emitted = len(request.tokens) - position
        kept = verdict.accepted[:emitted]
        request.stats.count_pass(emitted, target.weight_bytes)
        events += [_tell(request, draft, made.reached[index], kept, emitted), *happened]
        path = [start, *(start + 1 + node for node in verdict.accepted[: emitted - 1])]
        assert request.sequence is not None
        target.commit(request.sequence, path)
        outcomes.append(Outcome(request.name, draft, kept, tuple(request.tokens), emitted, part))
        request.round += 1
    told = time.perf_counter()
    _observe(drafters, outcomes, made, control)
    times = RoundTimes(
        drafting=drafted - begun - made.choice_seconds,
        choice=made.choice_seconds,
        passing=scored - drafted,
        rest=told - scored,
        learning=time.perf_counter() - told,
    )
    context = max(len(request.tokens) for request in requests)
    control.clock(len(rows), made.nodes, context, times)
    _clock(requests, made, times)
    return events


def _verify(request: Request, on_draft: ScoredDraft) -> Verdict:
    """Apply the request's rule; logits that it can't be applied to are told by their position."""
    try:
        return request.rule.verify(on_draft, request.chance)
    except EngineError as error:
        broken = np.flatnonzero(~(on_draft.logits.max(axis=1) < np.inf))
        if broken.size == 0:
            raise
        position = on_draft.position + on_draft.draft.depth(int(broken[0]) - 1)
        raise EngineError(f"At position {position}: {error.what}", error.way_out) from error


def _rows(requests: Sequence[Request], drafts: Sequence[Draft]) -> tuple[list[int], list[Row]]:
    """Return where each request's rows start, and the rows: each root, then its draft."""
    starts: list[int] = []
    rows: list[Row] = []
    for request, draft in zip(requests, drafts, strict=True):
        start, position = len(rows), len(request.tokens) - 1
        assert request.sequence is not None
        starts.append(start)
        rows.append(Row(request.sequence, request.tokens[-1], position, -1))
        for index, node in enumerate(draft.nodes):
            place = position + draft.depth(index)
            # Draft node i stands in row start + 1 + i, so ROOT = -1 is the root's row.
            rows.append(Row(request.sequence, node.token, place, start + 1 + node.parent))
    return starts, rows


def _cut(request: Request, scored: ScoredDraft, verdict: Verdict) -> list[Event]:
    """Write the round's tokens one by one, as far as the text goes."""
    happened: list[Event] = []
    nodes = (*verdict.accepted, None)
    rows = [0, *(node + 1 for node in verdict.accepted)]  # each scores the token in question
    tokens = [verdict.token if node is None else scored.draft.nodes[node].token for node in nodes]
    log_p = scored.log_probabilities([row - 1 for row in rows], tokens)
    for node, row, token, logprob in zip(nodes, rows, tokens, log_p, strict=True):
        pushed = request.stop.push(token)
        request.tokens.append(token)
        request.state = request.state.advance(token)
        source, drafter, rank = _origin(scored.draft, verdict, row - 1, node)
        event = TokenEvent(
            request=request.name,
            index=len(request.tokens) - len(request.prompt) - 1,
            token=token,
            text=pushed.text,
            source=source,
            drafter=drafter,
            rank=rank,
            logprob=logprob,
            top=_top(request, scored.logits[row]) if request.options.top_logprobs else (),
            round=request.round,
        )
        request.events.append(event)
        happened.append(event)
        if pushed.finished is not None:
            request.finish = (pushed.finished, pushed.detail)
            break
    return happened


def _origin(
    draft: Draft, verdict: Verdict, before: int, node: int | None
) -> tuple[Source, str | None, int | None]:
    """Return who wrote draft node `node`, or the target's token, and its rank below `before`."""
    if node is None:
        return verdict.kind, None, None
    return "accepted", draft.nodes[node].drafter, draft.children(before).index(node)


def _top(request: Request, logits: NDArray[np.float32]) -> tuple[tuple[int, float], ...]:
    """Return the likeliest tokens of a row, with their log-probabilities."""
    log_p = request.warp.log_probabilities(logits)
    best = likeliest(log_p, request.options.top_logprobs)
    return tuple((token, float(log_p[token])) for token in best)


def _tell(
    request: Request,
    draft: Draft,
    reached: Sequence[float],
    kept: Sequence[int],
    emitted: int,
) -> RoundEvent:
    """Describe the round, and count its draft."""
    held = set(kept)
    expected: Sequence[float | None] = reached or [None] * len(draft)
    for index, node in enumerate(draft.nodes):
        request.stats.count_draft(node.drafter, index in held)
    drafted = (
        Drafted(node.token, node.parent, node.drafter, index in held, expected[index])
        for index, node in enumerate(draft.nodes)
    )
    return RoundEvent(request.name, request.round, tuple(drafted), emitted)


def _observe(
    drafters: Sequence[Drafter | None], outcomes: Sequence[Outcome], made: Drafts, control: Control
) -> None:
    """Let the drafters and the choice learn what became of the drafts."""
    for drafter in each_once(drafters):
        mine = [o for d, o in zip(drafters, outcomes, strict=True) if d is drafter]
        drafter.observe(mine)
    for outcome, whose, seconds in zip(outcomes, drafters, made.own_seconds, strict=True):
        if whose is not None:
            control.learn(outcome, seconds)


def _clock(requests: Sequence[Request], made: Drafts, times: RoundTimes) -> None:
    for request in requests:
        stats = request.stats
        stats.seconds += sum(times)
        stats.draft_seconds += times.drafting + times.learning
        stats.choice_seconds += times.choice
        stats.pass_seconds += times.passing
        stats.expected_seconds += made.expected_seconds
