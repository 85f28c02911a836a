"""Identity: any drafter gives the tokens that none gives, and the same log-probabilities, in bits.

All texts of a stage run through the production scheduler, many in one pass. Each is compared with
plain decoding of the same prompt, settings and seed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from forerun.audit.loop import write
from forerun.config import Generation, RuleName
from forerun.core.stop import Decoder
from forerun.drafters.protocol import Drafter
from forerun.engine.request import Ask, Request
from forerun.events import Result
from forerun.targets.protocol import Target

__all__ = [
    "ENDINGS",
    "FILTERS",
    "TEMPERATURES",
    "Cell",
    "IdentityReport",
    "Stage",
    "compare",
    "grid",
]

TEMPERATURES = (0.0, 0.7, 1.0)

FILTERS: dict[str, dict[str, object]] = {
    "no filter": {},
    "top-k": {"top_k": 5},
    "top-p": {"top_p": 0.85},
    "min-p": {"min_p": 0.1},
    "penalties": {
        "repetition_penalty": 1.2,
        "presence_penalty": 0.4,
        "frequency_penalty": 0.3,
    },
    "bias": {"logit_bias": {0: -2.0, 2: 1.5, 5: 1.0}},
}

ENDINGS: dict[str, dict[str, object]] = {
    "full length": {},
    "at least 9": {"min_tokens": 9},
    "6 at most": {"max_tokens": 6, "ignore_eos": True},
    "2 at most": {"max_tokens": 2, "ignore_eos": True},
    "stop strings": {"stop": ("dfd", "ea", "cg", "ab")},
    "stop strings after 5": {"stop": ("fdf", "ec", "aeb"), "min_tokens": 5, "ignore_eos": True},
    "likely end": {"logit_bias": {7: 2.5}, "min_tokens": 3},
}
"""What ends a text, by name; token 7 ends the texts of toys."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One way to write a text speculatively.

    Attributes:
        drafter: As a user names it.
        temperature: Of the target.
        filter: One of FILTERS.
        width: Children of a draft's node: 1 is a chain.
        rule: Match; at temperature 0 the other exact rules must write the same text, too.
        ending: One of ENDINGS.
    """

    drafter: str
    temperature: float
    filter: str
    width: int = 1
    rule: RuleName = "match"
    ending: str = "full length"

    def __str__(self) -> str:
        shape = "chain" if self.width == 1 else f"tree of width {self.width}"
        words = [f"drafter {self.drafter}", f"temperature {self.temperature}", self.filter, shape]
        words += [f"rule {self.rule}"] * (self.rule != "match")
        return ", ".join(words + [self.ending] * (self.ending != "full length"))

    @property
    def plain(self) -> Cell:
        """The cell that decodes the same without a draft."""
        return Cell("none", self.temperature, self.filter, ending=self.ending)


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """Where texts are written.

    Attributes:
        name: For the report.
        target: The model.
        drafter_for: As for the scheduler.
        decoder: Makes a decoder for the text after a prompt.
        prompts: Each cell writes one text after each of them.
        max_tokens: Length of the texts.
        draft_length: Most tokens of a draft.
        eos_ids: Tokens that end a text.
        top_logprobs: Alternatives to be compared, too.
        judge: Says what is wrong with a plain text, for what holds without comparison.
    """

    name: str
    target: Target
    drafter_for: Callable[[str], Drafter | None]
    decoder: Callable[[Sequence[int]], Decoder]
    prompts: Sequence[tuple[int, ...]]
    max_tokens: int
    draft_length: int = 4
    eos_ids: tuple[int, ...] = ()
    top_logprobs: int = 0
    judge: Callable[[Request], str] = lambda _: ""

    def asks(self, cell: Cell) -> list[Ask]:
        """Return the requests of one cell."""
        values: dict[str, object] = {"max_tokens": self.max_tokens, "ignore_eos": not self.eos_ids}
        options = Generation.make(
            **{**values, **FILTERS[cell.filter], **ENDINGS[cell.ending]},
            temperature=cell.temperature,
            drafter=cell.drafter,
            draft_length=self.draft_length,
            draft_width=cell.width,
            rule=cell.rule,
            top_logprobs=self.top_logprobs,
        )
        return [
            Ask(prompt, options, 7 + i, self.eos_ids, self.decoder(prompt))
            for i, prompt in enumerate(self.prompts)
        ]


@dataclass(slots=True)
class IdentityReport:
    """What a comparison, or several of them, showed.

    Attributes:
        tokens: Speculative tokens compared.
        cells: Cells compared.
        drafted: Drafted tokens, by drafter.
        accepted: Of those, tokens that stayed.
        ended_in_draft: Texts whose last token a draft had guessed: the cut fell inside a draft.
        mismatches: In words: cell, position and both tokens.
        idle: Cells in which nothing was drafted, so that nothing was shown.
    """

    tokens: int = 0
    cells: int = 0
    drafted: dict[str, int] = field(default_factory=dict)
    accepted: dict[str, int] = field(default_factory=dict)
    ended_in_draft: int = 0
    mismatches: list[str] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        """All that is wrong."""
        return self.mismatches + [f"nothing was drafted: {cell}" for cell in self.idle]

    def count(self, result: Result) -> None:
        """Count one speculative text."""
        self.tokens += len(result.token_ids)
        self.ended_in_draft += bool(result.tokens) and result.tokens[-1].source == "accepted"
        for drafter, (guessed, kept) in result.stats.by_drafter.items():
            self.drafted[drafter] = self.drafted.get(drafter, 0) + guessed
            self.accepted[drafter] = self.accepted.get(drafter, 0) + kept

    def add(self, other: IdentityReport) -> None:
        """Add another's findings to these."""
        self.tokens += other.tokens
        self.cells += other.cells
        self.ended_in_draft += other.ended_in_draft
        for mine, theirs in ((self.drafted, other.drafted), (self.accepted, other.accepted)):
            for drafter, count in theirs.items():
                mine[drafter] = mine.get(drafter, 0) + count
        self.mismatches += other.mismatches
        self.idle += other.idle


def grid(drafters: Iterable[str], widths: Sequence[int]) -> Iterator[Cell]:
    """Yield every drafter × temperature × filter × width under rule match."""
    for drafter, temperature, name, width in itertools.product(
        drafters, TEMPERATURES, FILTERS, widths
    ):
        yield Cell(drafter, temperature, name, width)


def compare(
    stage: Stage, cells: Sequence[Cell], tick: Callable[[float], None] | None = None
) -> IdentityReport:
    """Write all cells together, and each text plainly; report every difference.

    Args:
        stage: Where.
        cells: How.
        tick: Called with the finished share now and then.
    """
    plains = list(dict.fromkeys(cell.plain for cell in cells))
    plain_share = len(plains) / (len(plains) + len(cells))

    def plain_tick(share: float) -> None:
        if tick is not None:
            tick(plain_share * share)

    def cell_tick(share: float) -> None:
        if tick is not None:
            tick(plain_share + (1 - plain_share) * share)

    own = dict(zip(plains, _write(stage, plains, plain_tick), strict=True))
    report = IdentityReport(cells=len(cells))
    for cell, requests in own.items():
        wrong = [problem for request in requests if (problem := stage.judge(request))]
        report.mismatches += [f"{stage.name}, {cell}: {problem}" for problem in wrong]
    for cell, requests in zip(cells, _write(stage, cells, cell_tick), strict=True):
        drafted = 0
        for i, (request, plain) in enumerate(zip(requests, own[cell.plain], strict=True)):
            result = request.result()
            drafted += result.stats.drafted
            report.count(result)
            difference = _difference(plain.result(), result)
            if difference:
                report.mismatches.append(f"{stage.name}, prompt {i}, {cell}: {difference}")
        if not drafted:
            report.idle.append(f"{stage.name}, {cell}")
    return report


def _write(
    stage: Stage, cells: Sequence[Cell], tick: Callable[[float], None]
) -> list[list[Request]]:
    """Return the finished requests of each cell; all of them ran together."""
    asks = [stage.asks(cell) for cell in cells]
    finished = iter(write(stage.target, list(itertools.chain(*asks)), stage.drafter_for, tick=tick))
    return [list(itertools.islice(finished, len(those))) for those in asks]


def _difference(plain: Result, result: Result) -> str:
    """Return the first difference of a text from plain decoding's, or nothing."""
    pairs = itertools.zip_longest(plain.tokens, result.tokens)
    for position, (own, other) in enumerate(pairs):
        if own is None or other is None:
            longer = "longer" if own is None else "shorter"
            return f"position {position}: the text is {longer} than plain decoding's"
        if own.token != other.token:
            return f"position {position}: token {other.token}, plain decoding writes {own.token}"
        if (own.logprob, own.top) != (other.logprob, other.top):
            return f"position {position}: log-probability {other.logprob!r}, not {own.logprob!r}"
        if own.text != other.text:
            return f"position {position}: text {other.text!r}, not {own.text!r}"
    ends = [(r.text, r.finish_reason, r.finish_detail) for r in (plain, result)]
    return "" if ends[0] == ends[1] else f"the text ends as {ends[1]}, not {ends[0]}"
