"""The first part of a round: who drafts what."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from forerun.control.control import Control
from forerun.core.tree import Draft
from forerun.drafters.protocol import Drafter, DraftRequest, Guesser
from forerun.engine.request import AUTO_DRAFT_LENGTH, Request
from forerun.engine.text import Text
from forerun.errors import EngineError

__all__ = ["Drafts", "draft_round", "each_once", "guesser_of"]

_WIDEST = 64
_NOTHING = Draft()


@dataclass(slots=True)
class Drafts:
    """What a round scores.

    Attributes:
        drafts: One for each request.
        reached: Of each draft's nodes, the probability to stay in the text; empty where nobody
            reckoned it.
        own_seconds: What each request's drafter took to draft by itself; texts that were drafted
            for together share it.
        choice_seconds: What asking for guesses and choosing among them took.
        expected_seconds: What the round is expected to take; 0 if nothing was to be chosen.
    """

    drafts: list[Draft]
    reached: list[tuple[float, ...]]
    own_seconds: list[float]
    choice_seconds: float = 0.0
    expected_seconds: float = 0.0

    @property
    def nodes(self) -> int:
        """Nodes of all drafts together."""
        return sum(len(draft) for draft in self.drafts)

    def rows(self, pads: bool) -> int:
        """Return the rows of the pass; where texts are padded, those that fill them up, too."""
        texts = len(self.drafts)
        return texts + (texts * max(map(len, self.drafts)) if pads else self.nodes)

    @classmethod
    def nothing(cls, count: int) -> Drafts:
        """Return what so many requests score that drafted nothing."""
        return cls([_NOTHING] * count, [()] * count, [0.0] * count)

    def without_drafts(self) -> Drafts:
        """Return what is left if nothing was drafted; the time it took stays taken."""
        nothing = Drafts.nothing(len(self.drafts))
        nothing.own_seconds, nothing.choice_seconds = self.own_seconds, self.choice_seconds
        return nothing


def guesser_of(request: Request, drafter: Drafter | None) -> Guesser | None:
    """Return the drafter if each round is to choose which of its guesses are scored."""
    return drafter if request.is_free and isinstance(drafter, Guesser) else None


def draft_round(
    requests: Sequence[Request], drafters: Sequence[Drafter | None], control: Control
) -> Drafts:
    """Return what each request's draft is: those that drafters make by themselves, then the others.

    Args:
        requests: Running ones.
        drafters: Each request's, or None.
        control: Chooses lengths and trees.

    Raises:
        EngineError: A drafter drafted too much, or what can't be scored.
    """
    count = len(requests)
    made = Drafts.nothing(count)
    chosen: list[tuple[int, Guesser]] = []
    alone: dict[int, tuple[Drafter, list[int]]] = {}  # by the drafter's identity
    for i, (request, drafter) in enumerate(zip(requests, drafters, strict=True)):
        if drafter is None:
            continue
        if request.guesser is None:
            alone.setdefault(id(drafter), (drafter, []))[1].append(i)
        elif request.room > 0:
            chosen.append((i, request.guesser))
    for drafter, mine in alone.values():
        _by_itself(made, requests, mine, drafter, control)
    if chosen:
        begun = time.perf_counter()
        _chosen(made, requests, chosen, control)
        made.choice_seconds = time.perf_counter() - begun
    return made


def each_once(drafters: Iterable[Drafter | None]) -> list[Drafter]:
    """Return the drafters, each once, in order."""
    return list({id(d): d for d in drafters if d is not None}.values())


def _chosen(
    made: Drafts,
    requests: Sequence[Request],
    chosen: Sequence[tuple[int, Guesser]],
    control: Control,
) -> None:
    """Choose among the guesses for some requests, together."""
    chosen = [
        (place, guesser) for place, guesser in chosen if not control.rests(requests[place].name)
    ]
    asked = []
    for place, guesser in chosen:
        request = requests[place]
        asked.append((_ask(request, request.room, _width(request, free=True)), guesser))
    context = _context(requests)
    rows, others = len(requests) + made.nodes, len(requests) - len(asked)
    choice = control.choose(asked, rows, others, context)
    made.expected_seconds = choice.seconds
    for i, (place, guesser) in enumerate(chosen):
        _check_tokens(choice.drafts[i], asked[i][0], guesser)
        made.drafts[place], made.reached[place] = choice.drafts[i], choice.reached[i]


def _by_itself(
    made: Drafts,
    requests: Sequence[Request],
    mine: Sequence[int],
    drafter: Drafter,
    control: Control,
) -> None:
    """Have one drafter draft for all of its requests that have room for a draft."""
    context = _context(requests)
    lengths = {i: _length(requests[i], len(requests), context, control) for i in mine}
    places = [i for i in mine if lengths[i] > 0]
    if not places:
        return
    asked = [_ask(requests[i], lengths[i], _width(requests[i], free=False)) for i in places]
    begun = time.perf_counter()
    answers = drafter.draft(asked)
    seconds = time.perf_counter() - begun
    if len(answers) != len(asked):
        raise EngineError(
            f"Drafter {drafter.name!r} gave {len(answers)} drafts for {len(asked)} texts."
        )
    for place, request, draft in zip(places, asked, answers, strict=True):
        _check(draft, request, drafter)
        made.drafts[place], made.own_seconds[place] = draft, seconds / len(places)


def _context(requests: Sequence[Request]) -> int:
    """Return how many tokens the longest text holds."""
    return max(len(request.tokens) for request in requests)


def _length(request: Request, rows: int, context: int, control: Control) -> int:
    asked = request.options.draft_length
    if request.is_free:
        return control.length(request.name, request.room, rows, context)
    return min(AUTO_DRAFT_LENGTH if asked == "auto" else asked, request.room)


def _width(request: Request, *, free: bool) -> int:
    asked = request.options.draft_width
    if asked != "auto":
        return asked
    return _WIDEST if free and request.has_trees else 1


def _ask(request: Request, length: int, width: int) -> DraftRequest:
    shares_noise = request.rule.draws_from == "noise"
    return DraftRequest(
        sequence=request.name,
        tokens=Text(request.tokens),
        prompt_length=len(request.prompt),
        length=length,
        width=width,
        warp=request.warp,
        state=request.state,
        round=request.round,
        noise=request.noise if shares_noise else None,
        coins=None if shares_noise else request.coins,
        ends=request.ends,
        target_sequence=request.sequence,
        tenant=request.options.tenant,
        prediction=request.prediction,
        source=request.source or (),
    )


def _check(draft: Draft, request: DraftRequest, drafter: Drafter) -> None:
    """Refuse a draft that would cost more than was asked for, or that can't be scored."""
    _check_tokens(draft, request, drafter)
    if draft.height > request.length or draft.breadth > request.width:
        raise EngineError(f"Drafter {drafter.name!r} drafted more than it was asked for.")


def _check_tokens(draft: Draft, request: DraftRequest, drafter: Drafter) -> None:
    most = request.warp.vocab_size
    for node in draft.nodes:
        if not 0 <= node.token < most:
            raise EngineError(f"Drafter {drafter.name!r} proposed token {node.token}.")
