"""What happens, as data: the records that command line, benchmarks and audit read alike.

Each emitted token carries its provenance: accepted (from which drafter, at which rank), corrected,
or bonus.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple

__all__ = ["Beam", "BeamResult", "BeamStats"]
__all__ += ["Drafted", "Event", "Result", "RoundEvent", "Source", "Stats", "TokenEvent"]

Source = Literal["accepted", "corrected", "bonus"]


class Drafted(NamedTuple):
    """One proposed token of a round.

    Attributes:
        token: The token.
        parent: Index of the one before it in the same round, -1 at the root.
        drafter: Whose guess.
        accepted: Whether it stays in the text.
        expected: How likely that was held to be, from 0 to 1; None if nobody reckoned it.
    """

    token: int
    parent: int
    drafter: str
    accepted: bool
    expected: float | None = None


class RoundEvent(NamedTuple):
    """One round of one request: what was guessed, and how much of the text it brought.

    Attributes:
        request: Which request.
        round: From 0.
        drafted: The whole draft, in its order.
        emitted: Tokens the round added to the text.
    """

    request: int
    round: int
    drafted: tuple[Drafted, ...]
    emitted: int

    def as_json(self) -> dict[str, Any]:
        """Return the record as one JSON object."""
        drafted = tuple(each._asdict() for each in self.drafted)
        return {"event": "round", **self._asdict(), "drafted": drafted}


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One token of the text.

    Attributes:
        request: Which request.
        index: From 0, in the output.
        token: The token's id.
        text: The text this token makes certain; empty while a character or stop string is open.
        source: Who wrote it: an accepted draft, or the target (corrected or bonus).
        drafter: The drafter it was accepted from, else None.
        rank: Which of its siblings it was, from 0; None if not drafted.
        logprob: Its log-probability under the target at temperature 1, before any warp.
        top: The likeliest alternatives there as (token, log-probability), as many as asked for.
        round: The round that brought it.
    """

    request: int
    index: int
    token: int
    text: str
    source: Source
    drafter: str | None
    rank: int | None
    logprob: float
    top: tuple[tuple[int, float], ...]
    round: int

    def as_json(self) -> dict[str, Any]:
        """Return the record as one JSON object."""
        return {"event": "token", **asdict(self)}


class LoadProgress(NamedTuple):
    """How far the fetching or loading of a model is.

    Attributes:
        stage: `waiting` for another process's pull, `downloading`, `checking`, `packing` weights,
            or `reading` a corpus.
        done: Bytes of this stage that are done.
        total: Bytes of this stage, if known.
    """

    stage: Literal["waiting", "downloading", "checking", "packing", "reading"]
    done: int
    total: int | None


@dataclass(slots=True)
class Stats:
    """Counts and times of one request, or the sum of several.

    A batch's requests share passes and rounds, and each counts them in full: a sum over requests
    that ran together counts them several times.

    Attributes:
        tokens: Emitted.
        passes: Target passes that emitted them; the prompt's are not counted.
        drafted: Tokens proposed.
        accepted: Of those, tokens that stay.
        prompt_tokens: Tokens of the prompt.
        prompt_seconds: Time from admission to the first round, in seconds like the others.
        seconds: Time in rounds.
        draft_seconds: Of those, time drafting and learning from drafts, choosing left out.
        choice_seconds: Of those, time asking for guesses and choosing among them.
        pass_seconds: Of those, time in the target's passes.
        expected_seconds: What the rounds were expected to take whose drafts were chosen.
        weight_bytes: Bytes of weights that the passes read.
        by_drafter: For each drafter, [drafted, accepted].
    """

    tokens: int = 0
    passes: int = 0
    drafted: int = 0
    accepted: int = 0
    prompt_tokens: int = 0
    prompt_seconds: float = 0.0
    seconds: float = 0.0
    draft_seconds: float = 0.0
    choice_seconds: float = 0.0
    pass_seconds: float = 0.0
    expected_seconds: float = 0.0
    weight_bytes: int = 0
    by_drafter: dict[str, list[int]] = field(default_factory=dict)

    @property
    def tokens_per_pass(self) -> float:
        """Emitted tokens over target passes, the corrected or bonus token included."""
        return self.tokens / self.passes if self.passes else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Emitted tokens over the time in rounds."""
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def acceptance(self) -> float:
        """Accepted over drafted tokens."""
        return self.accepted / self.drafted if self.drafted else 0.0

    @property
    def weight_bytes_per_token(self) -> float:
        """Bytes of weights read for each emitted token."""
        return self.weight_bytes / self.tokens if self.tokens else 0.0

    def count_pass(self, tokens: int, weight_bytes: int) -> None:
        """Count one pass of the target: how many tokens it brought and bytes of weights it read."""
        self.passes += 1
        self.tokens += tokens
        self.weight_bytes += weight_bytes

    def count_draft(self, drafter: str, accepted: bool) -> None:
        """Count one drafted token."""
        tally = self.by_drafter.get(drafter)
        if tally is None:
            tally = self.by_drafter[drafter] = [0, 0]
        self.drafted += 1
        tally[0] += 1
        if accepted:
            self.accepted += 1
            tally[1] += 1

    def add(self, other: Stats) -> None:
        """Add another's counts and times to these."""
        for each in fields(self):
            if each.name != "by_drafter":
                mine, theirs = getattr(self, each.name), getattr(other, each.name)
                setattr(self, each.name, mine + theirs)
        for drafter, (drafted, accepted) in other.by_drafter.items():
            tally = self.by_drafter.setdefault(drafter, [0, 0])
            tally[0], tally[1] = tally[0] + drafted, tally[1] + accepted

    def copy(self) -> Stats:
        """Return the counts and times as they are now."""
        return replace(self, by_drafter={name: [*n] for name, n in self.by_drafter.items()})

    def as_json(self) -> dict[str, Any]:
        """Return counts, times and what follows from them."""
        derived = {
            "tokens_per_pass": self.tokens_per_pass,
            "tokens_per_second": self.tokens_per_second,
            "acceptance": self.acceptance,
            "weight_bytes_per_token": self.weight_bytes_per_token,
        }
        return {**asdict(self), **derived}


@dataclass(frozen=True, slots=True)
class Result:
    """One finished text, or as far as it came.

    Attributes:
        request: Which request.
        text: The output, without special tokens and without the stop string.
        token_ids: All tokens of the output, the one that ended it included.
        finish_reason: "stop", "length" or "interrupted".
        finish_detail: What ended it: "end of text", the stop string, "max_tokens" or "context";
            "memory", if there was too little for it beside the texts that went on.
        exact: Whether the text has exactly the target's law; False only under rule lenient.
        guarantee: "bitwise" (the tokens that plain decoding writes with this seed), "same law"
            (other tokens, from exactly the target's law) or "lenient" (another law).
        seed: The noise's seed; with it and the same options the same text comes again.
        tokens: Every token's provenance and log-probability.
        stats: Counts and times.
        target: What computed the passes: "native" or "reference".
    """

    request: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    finish_detail: str
    exact: bool
    guarantee: str
    seed: int
    tokens: tuple[TokenEvent, ...]
    stats: Stats
    target: str = ""

    def as_json(self) -> Mapping[str, Any]:
        """Return the record as one JSON object; the tokens have had their own events."""
        names = ("request", "text", "token_ids", "finish_reason", "finish_detail")
        rest = ("exact", "guarantee", "seed", "target")
        values = {name: getattr(self, name) for name in names + rest}
        return {"event": "result", **values, "stats": self.stats.as_json()}


Event = RoundEvent | TokenEvent | Result


@dataclass(frozen=True, slots=True)
class Beam:
    """One text that beam search found.

    Attributes:
        text: The output, without special tokens.
        token_ids: All tokens of the output, the one that ended it included.
        score: By which beams are ranked: the sum of `logprobs` over length ** length_penalty.
        logprobs: Of each token, under the target at temperature 1, masks, bias and penalties
            applied.
        finish_reason: "stop" or "length".
        finish_detail: What ended it: "end of text", "max_tokens" or "context".
    """

    text: str
    token_ids: tuple[int, ...]
    score: float
    logprobs: tuple[float, ...]
    finish_reason: str
    finish_detail: str


@dataclass(slots=True)
class BeamStats:
    """What a beam search cost, in operations and in time; plain beam search takes a pass a step.

    Attributes:
        steps: Tokens that the running beams grew by.
        passes: Of the target; the prompt's are not counted.
        rows: Scored in them.
        rows_again: Of those, rows that had been scored before, in another sequence.
        plain_rows: Rows that plain beam search scores.
        drafted: Texts that were guessed to run, and scored.
        kept: Of those, texts that ran.
        forks: Sequences that were forked.
        prompt_tokens: Tokens of the prompt.
        prompt_seconds: Time reading it, in seconds like the others.
        seconds: Time after that.
        draft_seconds: Of those, time guessing, and learning from what came of it.
        pass_seconds: Of those, time in the target's passes.
        weight_bytes: Bytes of weights that the passes read.
    """

    steps: int = 0
    passes: int = 0
    rows: int = 0
    rows_again: int = 0
    plain_rows: int = 0
    drafted: int = 0
    kept: int = 0
    forks: int = 0
    prompt_tokens: int = 0
    prompt_seconds: float = 0.0
    seconds: float = 0.0
    draft_seconds: float = 0.0
    pass_seconds: float = 0.0
    weight_bytes: int = 0

    @property
    def tokens_per_pass(self) -> float:
        """Steps over passes; plain beam search has 1."""
        return self.steps / self.passes if self.passes else 0.0

    @property
    def rows_over_plain(self) -> float:
        """Rows over those of plain beam search."""
        return self.rows / self.plain_rows if self.plain_rows else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return counts, times and what follows from them."""
        derived = {
            "tokens_per_pass": self.tokens_per_pass,
            "rows_over_plain": self.rows_over_plain,
        }
        return {**asdict(self), **derived}


@dataclass(frozen=True, slots=True)
class BeamResult:
    """What a beam search found.

    Attributes:
        beams: The best texts, best first, as many as were asked for.
        guarantee: "bitwise" (the beams that plain beam search finds, and their scores) or "same
            law" (the same up to near-ties).
        stats: What it cost.
        target: What computed the passes.
    """

    beams: tuple[Beam, ...]
    guarantee: str
    stats: BeamStats
    target: str = ""

    def as_json(self) -> Mapping[str, Any]:
        """Return the record as one JSON object."""
        beams = [asdict(beam) for beam in self.beams]
        rest = {"guarantee": self.guarantee, "target": self.target}
        return {"event": "beams", "beams": beams, **rest, "stats": self.stats.as_json()}
