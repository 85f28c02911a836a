"""One round of many requests: draft, score, verify, cut, commit."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.control.control import Control, RoundTimes
from forerun.core.rules import Verdict
from forerun.core.scored import ScoredDraft
from forerun.core.tree import ROOT, Draft
from forerun.core.warp import likeliest
from forerun.drafters.protocol import Drafter, Outcome
from forerun.engine.drafting import Drafts, draft_round, each_once
from forerun.engine.reading import Part, keep
from forerun.engine.request import Request
from forerun.engine.text import Text
from forerun.errors import EngineError, NotEnoughMemoryError
from forerun.events import Drafted, Event, RoundEvent, Source, TokenEvent
from forerun.targets.protocol import Row, Scores, Target

__all__ = ["run_round"]


def run_round(
    target: Target,
    requests: Sequence[Request],
    drafters: Sequence[Drafter | None],
    control: Control,
    parts: Sequence[Part] = (),
    *,
    drafts: bool = True,
) -> list[Event]:
    """Advance every request by at least one token; return what happened, request by request.

    Args:
        target: Scores all drafts in one pass.
        requests: Running ones, none finished.
        drafters: Each request's drafter, or None.
        control: Chooses what is drafted, where a request leaves it open.
        parts: Of prompts, read by the same pass; where memory is too short for that, left unread.
        drafts: Whether anything is drafted.

    Raises:
        NotEnoughMemoryError: Not even the roots can be scored.
    """
    begun = time.perf_counter()
    made = draft_round(requests, drafters, control) if drafts else Drafts.nothing(len(requests))
    drafted = time.perf_counter()
    starts, made, scores = _scored(target, requests, made, parts)
    scored = time.perf_counter()
    events: list[Event] = []
    outcomes: dict[int, Outcome] = {}  # by place; a text without a drafter has none
    for place, (request, start) in enumerate(zip(requests, starts, strict=True)):
        draft = made.drafts[place]
        mine = slice(start, start + len(draft) + 1)
        part = scores.logits[mine]
        on_draft = ScoredDraft(draft, part, request.warp, request.state, len(request.tokens))
        verdict = _verify(request, on_draft)
        happened = _cut(request, on_draft, verdict)
        emitted = len(happened)
        kept = verdict.accepted[:emitted]
        request.stats.count_pass(emitted, target.weight_bytes)
        events.append(_tell(request, draft, made.reached[place], kept, emitted))
        events += happened
        _commit(target, request, start, kept[: emitted - 1])
        if drafters[place] is not None:
            text, seen = Text(request.tokens), {n: scores.hidden[n][mine] for n in request.layers}
            outcomes[place] = Outcome(request.name, draft, kept, text, emitted, part, seen)
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
    if not parts:  # whose rows would pass for those of drafts
        context = max(len(request.tokens) for request in requests)
        control.clock(made.rows(control.pads), made.nodes, context, times)
    _clock(requests, made, times)
    return events


def _scored(
    target: Target, requests: Sequence[Request], made: Drafts, parts: Sequence[Part]
) -> tuple[list[int], Drafts, Scores]:
    """Score all drafts, and read parts of prompts; where memory is too short, the roots alone.

    Returns:
        Where each request's rows start, the drafts that were scored, and the scores.
    """
    starts, rows = _rows(requests, made.drafts)
    own = len(rows)
    for part in parts:
        rows += part.rows(len(rows))
    layers = _watched([*requests, *(part.request for part in parts)])
    try:
        scores = target.score(rows, logits=range(own) if parts else None, layers=layers)
    except NotEnoughMemoryError:
        if made.nodes == 0 and not parts:
            raise
    else:
        keep(target, parts, own, scores.hidden)
        return starts, made, scores
    made = made.without_drafts()
    starts, rows = _rows(requests, made.drafts)
    return starts, made, target.score(rows, layers=_watched(requests))


def _watched(requests: Iterable[Request]) -> list[int]:
    """Return the layers whose hidden states anyone is to be shown."""
    return sorted({layer for request in requests for layer in request.layers})


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


def _cut(request: Request, scored: ScoredDraft, verdict: Verdict) -> list[TokenEvent]:
    """Write the round's tokens one by one, as far as the text goes."""
    happened: list[TokenEvent] = []
    name, round_, top = request.name, request.round, request.options.top_logprobs
    nodes = (*verdict.accepted, None)
    before = (ROOT, *verdict.accepted)  # each one's logits score the token in question
    tokens = [*[scored.draft.nodes[node].token for node in verdict.accepted], verdict.token]
    log_p = scored.log_probabilities(before, tokens)
    index = len(request.tokens) - len(request.prompt)
    for node, parent, token, logprob in zip(nodes, before, tokens, log_p, strict=True):
        text, finished, detail = request.stop.push(token)
        source, drafter, rank = _origin(scored.draft, verdict, parent, node)
        best = _top(request, scored.logits[parent + 1]) if top else ()
        event = TokenEvent(name, index, token, text, source, drafter, rank, logprob, best, round_)
        request.tokens.append(token)
        request.events.append(event)
        happened.append(event)
        index += 1
        if finished is not None:
            request.finish = finished, detail
            break
    request.state = request.state.after(tokens[: len(happened)])
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


def _commit(target: Target, request: Request, start: int, kept: Sequence[int]) -> None:
    """Keep the root, and the nodes whose tokens and one behind were written."""
    assert request.sequence is not None
    target.commit(request.sequence, [start, *[start + 1 + node for node in kept]])


def _tell(
    request: Request,
    draft: Draft,
    reached: Sequence[float],
    kept: Sequence[int],
    emitted: int,
) -> RoundEvent:
    """Describe the round, and count its draft."""
    if not draft.nodes:
        return RoundEvent(request.name, request.round, (), emitted)
    drafted: list[Drafted] = []
    chances: Sequence[float | None] = reached or [None] * len(draft)
    for index, (node, expected) in enumerate(zip(draft.nodes, chances, strict=True)):
        is_kept = index in kept
        request.stats.count_draft(node.drafter, is_kept)
        drafted.append(Drafted(node.token, node.parent, node.drafter, is_kept, expected))
    return RoundEvent(request.name, request.round, tuple(drafted), emitted)


def _observe(
    drafters: Sequence[Drafter | None],
    outcomes: Mapping[int, Outcome],
    made: Drafts,
    control: Control,
) -> None:
    """Let the drafters and the choice learn what became of the drafts."""
    for drafter in each_once(drafters):
        drafter.observe([one for place, one in outcomes.items() if drafters[place] is drafter])
    for place, outcome in outcomes.items():
        control.learn(outcome, made.own_seconds[place])


def _clock(requests: Sequence[Request], made: Drafts, times: RoundTimes) -> None:
    seconds = sum(times)
    for request in requests:
        stats = request.stats
        stats.seconds += seconds
        stats.draft_seconds += times.drafting + times.learning
        stats.choice_seconds += times.choice
        stats.pass_seconds += times.passing
        stats.expected_seconds += made.expected_seconds
