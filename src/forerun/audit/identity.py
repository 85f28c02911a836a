"""Identity: any drafter gives the tokens that none gives, and the same log-probabilities, in bits.

A target that promises the same law alone is held to the same tokens but for near-ties (`near`).

All texts of a stage run through the production scheduler, many in one pass. Each is compared with
plain decoding of the same prompt, settings and seed.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from forerun.audit.loop import write
from forerun.audit.near import near_difference, tolerance_of
from forerun.config import Generation, RuleName
from forerun.core.stop import Decoder
from forerun.drafters.protocol import Drafter
from forerun.engine.request import Ask, Request
from forerun.events import Result
from forerun.targets.protocol import Target

__all__ = [
    "CHOSEN",
    "ENDINGS",
    "FILTERS",
    "TEMPERATURES",
    "Cell",
    "IdentityReport",
    "Stage",
    "compare",
    "exact_cells",
    "grid",
    "half_of",
]

CHOSEN = 0
"""The width of a cell in which each round chooses what is drafted, at costs that waver."""

_LATE = frozenset({"recycle"})
"""Drafters that learn from rounds alone, and may have no guess in some short text. That they draft
is asked of all their cells together, and so it is where the choice may be not to."""

_TEXTS = 128  # that are written together: each keeps some positions' noise, 400 kB at 49,152 tokens

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
        width: Children of a draft's node: 1 is a chain; CHOSEN leaves it all to the choice.
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
        shapes = {1: "chain", CHOSEN: "chosen each round"}
        shape = shapes.get(self.width, f"tree of width {self.width}")
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
            draft_length="auto" if cell.width == CHOSEN else self.draft_length,
            draft_width="auto" if cell.width == CHOSEN else cell.width,
            rule=cell.rule,
            top_logprobs=self.top_logprobs,
        )
        encoder = self.target.capabilities.encoder
        asks = []
        for i, prompt in enumerate(self.prompts):
            begun, source = (prompt, None) if encoder is None else (encoder.start, prompt)
            decoder = self.decoder(() if encoder else prompt)
            ask = Ask(begun, options, 7 + i, self.eos_ids, decoder)
            asks.append(replace(ask, prediction=prompt, source=source))
        return asks


@dataclass(slots=True)
class IdentityReport:
    """What a comparison, or several of them, showed.

    Attributes:
        tokens: Speculative tokens compared.
        by_target: Of those, how many each target wrote.
        cells: Cells compared.
        drafted: Drafted tokens, by drafter.
        accepted: Of those, tokens that stayed.
        ended_in_draft: Texts whose last token a draft had guessed: the cut fell inside a draft.
        mismatches: In words: cell, position and both tokens.
        idle: Cells in which nothing was drafted, so that nothing was shown.
        near: How nearly tied two tokens were where a text parted from plain decoding's, each time.
        tolerance: The widest gap that counts as a near-tie; 0 where bits are compared.
    """

    tokens: int = 0
    by_target: dict[str, int] = field(default_factory=dict)
    cells: int = 0
    drafted: dict[str, int] = field(default_factory=dict)
    accepted: dict[str, int] = field(default_factory=dict)
    ended_in_draft: int = 0
    mismatches: list[str] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)
    near: list[float] = field(default_factory=list)
    tolerance: float = 0.0

    @property
    def problems(self) -> list[str]:
        """All that is wrong."""
        return self.mismatches + [f"nothing was drafted: {cell}" for cell in self.idle]

    def count(self, result: Result) -> None:
        """Count one speculative text."""
        tokens = len(result.token_ids)
        self.tokens += tokens
        self.by_target[result.target] = self.by_target.get(result.target, 0) + tokens
        self.ended_in_draft += bool(result.tokens) and result.tokens[-1].source == "accepted"
        for drafter, (guessed, kept) in result.stats.by_drafter.items():
            self.drafted[drafter] = self.drafted.get(drafter, 0) + guessed
            self.accepted[drafter] = self.accepted.get(drafter, 0) + kept

    def add(self, other: IdentityReport) -> None:
        """Add another's findings to these."""
        self.tokens += other.tokens
        self.cells += other.cells
        self.ended_in_draft += other.ended_in_draft
        for mine, theirs in (
            (self.by_target, other.by_target),
            (self.drafted, other.drafted),
            (self.accepted, other.accepted),
        ):
            for name, count in theirs.items():
                mine[name] = mine.get(name, 0) + count
        self.mismatches += other.mismatches
        self.idle += other.idle
        self.near += other.near
        self.tolerance = max(self.tolerance, other.tolerance)


def grid(drafters: Iterable[str], widths: Sequence[int]) -> Iterator[Cell]:
    """Yield every drafter × temperature × filter × width under rule match."""
    for drafter, temperature, name, width in itertools.product(
        drafters, TEMPERATURES, FILTERS, widths
    ):
        yield Cell(drafter, temperature, name, width)


def exact_cells(drafters: Sequence[str], widths: Sequence[int]) -> list[Cell]:
    """Return the grid under match, and at temperature 0 under the other exact rules, too."""
    cells = list(grid(drafters, widths))
    for drafter, name in itertools.product(drafters, FILTERS):
        cells += [Cell(drafter, 0.0, name, rule=rule) for rule in ("speculative", "block")]
        cells += [Cell(drafter, 0.0, name, widths[-1], "tree")]
    return cells


def half_of(cells: Iterable[Cell]) -> list[Cell]:
    """Return half of a grid's cells, in which every two choices meet that meet in all of them.

    The cells whose choices have an even sum, each counted among those of its kind: any two leave a
    third that may be even or odd.
    """
    choices: list[dict[object, int]] = [{} for _ in fields(Cell)]
    half = []
    for cell in cells:
        values = [getattr(cell, field.name) for field in fields(Cell)]
        places = [
            seen.setdefault(value, len(seen)) for seen, value in zip(choices, values, strict=True)
        ]
        if sum(places) % 2 == 0:
            half.append(cell)
    return half


def compare(
    stage: Stage, cells: Sequence[Cell], tick: Callable[[float], None] | None = None
) -> IdentityReport:
    """Write all cells, many texts in a pass, and each text plainly; report every difference.

    Args:
        stage: Where.
        cells: How.
        tick: Called with the finished share now and then.
    """
    plains = list(dict.fromkeys(cell.plain for cell in cells))
    whole = len(plains) + len(cells)

    def after(done: int) -> Callable[[float], None]:
        return lambda cells: None if tick is None else tick((done + cells) / whole)

    report = IdentityReport(cells=len(cells), tolerance=tolerance_of(stage.target))
    own: dict[Cell, list[Result]] = {}
    drafts: dict[Cell, int] = {}
    for cell, requests in _written(stage, plains, after(0)):
        own[cell] = [request.result() for request in requests]
        wrong = [problem for request in requests if (problem := stage.judge(request))]
        report.mismatches += [f"{stage.name}, {cell}: {problem}" for problem in wrong]
    for cell, requests in _written(stage, cells, after(len(plains))):
        drafted = 0
        for i, (request, plain) in enumerate(zip(requests, own[cell.plain], strict=True)):
            result = request.result()
            drafted += result.stats.drafted
            report.count(result)
            difference = _difference(plain, result)
            if difference and report.tolerance:
                difference, gap = near_difference(stage.target, request, plain, report.tolerance)
                report.near += [] if gap is None else [gap]
            if difference:
                report.mismatches.append(f"{stage.name}, prompt {i}, {cell}: {difference}")
        drafts[cell] = drafted
    report.idle = [f"{stage.name}, {cell}" for cell in _idle(drafts)]
    return report


def _idle(drafts: Mapping[Cell, int]) -> list[Cell]:
    """Return the cells that show nothing, by what each drafted."""
    of_drafter: Counter[str] = Counter()
    for cell, drafted in drafts.items():
        of_drafter[cell.drafter] += drafted
    return [
        cell
        for cell, drafted in drafts.items()
        if not drafted and not (_is_late(cell) and of_drafter[cell.drafter])
    ]


def _is_late(cell: Cell) -> bool:
    return cell.width == CHOSEN or cell.drafter in _LATE


def _written(
    stage: Stage, cells: Sequence[Cell], tick: Callable[[float], None]
) -> Iterator[tuple[Cell, list[Request]]]:
    """Yield each cell with its finished requests; so many cells ran together as memory allows."""
    size = max(1, _TEXTS // len(stage.prompts))
    for start in range(0, len(cells), size):
        some = cells[start : start + size]
        asks = [ask for cell in some for ask in stage.asks(cell)]

        def inner(share: float, start: int = start, count: int = len(some)) -> None:
            tick(start + share * count)

        requests = iter(write(stage.target, asks, stage.drafter_for, tick=inner))
        for cell in some:
            yield cell, list(itertools.islice(requests, len(stage.prompts)))


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
