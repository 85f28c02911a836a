"""What a race brought, as tables for people and a record for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from forerun.bench.machine import Reading
from forerun.bench.race.figures import Figures
from forerun.bench.race.run import Difference, LeftOut, Plan
from forerun.bench.race.samples import LOOP_SHARE, Sample, looping
from forerun.bench.race.tables import Grid, interval_text, shown
from forerun.bench.race.verdicts import best_of, grid_of_best, told_foretold
from forerun.bench.report import Load
from forerun.control.cost import CostCurve
from forerun.printable import counted, printable

__all__ = ["RaceReport"]

_BUSY = 0.1  # cores of others from which on figures are doubtful
_MOST_NAMED = 5
_MOST_INTERVALS = 4  # sides whose intervals a terminal has room for


@dataclass(frozen=True)
class RaceReport:
    """A race, over or interrupted.

    Attributes:
        model: The model's name.
        plan: What was asked for.
        prompts: How many prompts there were of each task.
        reference: The side that ours are compared with.
        ours: Names of our sides.
        details: What each side says of itself, in the order asked for.
        errors: By side, why it was given up.
        samples: What was written.
        differences: Where our sides did not write the same.
        left_out: What had no room in the context.
        machine: What it ran on.
        readings: What the machine gave, before each repeat and at the end.
        load: Who else used it.
        kept: The file with the samples.
        is_interrupted: Whether it was ended before it was over.
        not_kept: Why not all samples are in that file; empty if they are.
        curve: v by rows, as it was measured before each repeat; empty is not known.
    """

    model: str
    plan: Plan
    prompts: dict[str, int]
    reference: str
    ours: tuple[str, ...]
    details: dict[str, dict[str, Any]]
    errors: dict[str, str]
    samples: list[Sample]
    differences: list[Difference]
    left_out: list[LeftOut]
    machine: dict[str, Any]
    readings: list[Reading]
    load: Load
    kept: str
    is_interrupted: bool
    not_kept: str = ""
    curve: Mapping[int, float] = field(default_factory=dict)

    @property
    def identical(self) -> bool:
        """Whether all of our sides wrote the same tokens."""
        return not self.differences

    @property
    def sides(self) -> list[str]:
        """Names of all sides."""
        return list(self.details)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Whose speed is put over whose: every side over the reference, `auto` over every other."""
        over_reference = [(side, self.reference) for side in self.sides if side != self.reference]
        others = [side for side in self.sides if side not in ("auto", self.reference)]
        return over_reference + [("auto", side) for side in others if "auto" in self.details]

    @cached_property
    def figures(self) -> Figures:
        """Of all samples."""
        return Figures(self.samples, self.sides, self.plan.seed)

    @cached_property
    def loops(self) -> set[tuple[str, int]]:
        """Texts that repeat themselves, as our sides wrote them."""
        return looping(self.samples, self.reference)

    @cached_property
    def figures_without_loops(self) -> Figures:
        """Of the other samples."""
        rest = [sample for sample in self.samples if sample.text not in self.loops]
        return Figures(rest, self.sides, self.plan.seed)

    @cached_property
    def ratios(self) -> dict[str, dict[str, Any]]:
        """Every pair's, as `auto/plain`."""
        return {f"{a}/{b}": self.figures.ratio(a, b) for a, b in self.pairs}

    @cached_property
    def ratios_without_loops(self) -> dict[str, dict[str, Any]]:
        """The same without texts that repeat themselves."""
        return {f"{a}/{b}": self.figures_without_loops.ratio(a, b) for a, b in self.pairs}

    @cached_property
    def best_fixed(self) -> dict[str, Any] | None:
        """The fastest of our sides that choose no length, overall and by task; None without any.

        See `best_of`; `plain` is one of them, its length is 0.
        """
        fixed = [*self.fixed, *(name for name in self.ours if name == "plain")]
        if "auto" not in self.details or not fixed:
            return None
        return best_of(self.ratios, fixed, self.figures.tasks)

    @cached_property
    def fixed(self) -> list[str]:
        """Names of our sides that draft at a fixed length."""
        lengths = {name: self.details[name].get("draft_length") for name in self.ours}
        return [name for name, length in lengths.items() if isinstance(length, int)]

    @cached_property
    def foretold(self) -> dict[str, dict[str, Any]]:
        """What v, c and acceptance say of the time of each of our sides that drafts."""
        if "plain" not in self.ours or not self.curve:
            return {}
        v = CostCurve(self.curve).seconds(0)
        return {
            name: self.figures.foretold(name, "plain", v) for name in self.ours if name != "plain"
        }

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain data; what was not measured is None."""
        spared = self.figures_without_loops
        return {
            "event": "race",
            "model": self.model,
            **self.plan._asdict(),
            "prompts": self.prompts,
            "sides": {name: self._side(name) for name in self.sides},
            "ratios": self.ratios,
            "best_fixed": self.best_fixed,
            "pass_cost": dict(self.curve),
            "identical": self.identical,
            "differences": [each._asdict() for each in self.differences],
            "without_repeats": {
                "texts_left_out": len(self.loops),
                "tokens_per_second": {name: spared.speeds(name) for name in self.sides},
                "ratios": self.ratios_without_loops,
            },
            "left_out": [each._asdict() for each in self.left_out],
            "interrupted": self.is_interrupted,
            "machine": self.machine,
            "readings": [reading._asdict() for reading in self.readings],
            "load": self.load._asdict(),
            "samples": self.kept,
            "samples_missing": self.not_kept or None,
        }

    def as_text(self) -> RenderableType:
        """Return tables and remarks for a terminal."""
        parts: list[RenderableType] = []
        for grid in self.grids(with_intervals=len(self.sides) <= _MOST_INTERVALS):
            parts += [grid.as_table(), Text()]
        return Group(*parts, *(Text(printable(line)) for line in self.remarks()))

    def grids(self, *, with_intervals: bool) -> Iterator[Grid]:
        """Yield the tables: all sides overall, then each task, then where the time went.

        Args:
            with_intervals: Show them for each task too, which makes wide tables.
        """
        yield self._overall()
        title = f"Tokens per second over {self.reference}'s, by task"
        yield self._by_task(title, self.ratios, with_intervals)
        if self.loops:
            texts = counted(len(self.loops), "text")
            verb = "repeats itself" if len(self.loops) == 1 else "repeat themselves"
            title = f"The same without {texts} that {verb}"
            yield self._by_task(title, self.ratios_without_loops, with_intervals)
        yield self._parts()
        if self._expected:
            title = "Time expected by the choice over time taken"
            yield self._times(title, self._expected)
        if any(each["overall"] for each in self.foretold.values()):
            yield self._times("Time foretold by v, c and acceptance over time taken", self.foretold)
        if self.best_fixed is not None and self.fixed:
            yield grid_of_best(
                self.best_fixed, {name: self.figures.speeds(name) for name in self.ours}
            )

    def remarks(self) -> Iterator[str]:
        """Yield what a reader of the tables must know."""
        if self.is_interrupted:
            yield "INTERRUPTED: the figures are of what was written until then."
        if self.identical and self.samples:
            yield f"Our sides wrote the same tokens: {', '.join(self.ours)}."
        yield from self.told_differences()
        best = None if self.best_fixed is None else self.best_fixed["overall"]
        if best is not None and self.fixed:
            over = _cell(best["auto_over_it"], with_interval=True)
            yield f"The best of our sides at fixed lengths is {best['side']}; auto over it {over}."
        yield from told_foretold(self.foretold)
        yield from self._told_of_one_pass()
        for name, error in self.errors.items():
            yield f"{name} was given up: {error}"
        if self.left_out:
            texts = counted(len(self.left_out), "text")
            yield f"Left out, for there is no room in the model's context: {texts}."
        yield from self._about_the_machine()
        if self.not_kept:
            yield f"NOT every sample is in {self.kept}: {self.not_kept}."
        else:
            yield f"Every sample is in {self.kept}."

    def told_differences(self) -> Iterator[str]:
        """Yield the first places where one of our sides did not write the same."""
        for each in self.differences[:_MOST_NAMED]:
            yield (
                f"DIFFERENT: {each.side} left {self.reference}'s text of prompt "
                f"{each.question_id}, turn {each.turn + 1}, at token {each.place}."
            )

    def _told_of_one_pass(self) -> Iterator[str]:
        """Yield which texts are in no speed, if any are."""
        counts = {name: self.figures.in_one_pass(name) for name in self.sides}
        told = ", ".join(f"{counted(n, 'text')} of {name}" for name, n in counts.items() if n)
        if told:
            yield f"Whole with the first pass, so in no speed and in no ratio: {told}."

    def _side(self, name: str) -> dict[str, Any]:
        error = self.errors.get(name)
        own = {**self.figures.side(name), "settings": self.details[name]}
        own["foretold"] = self.foretold.get(name)
        return own if error is None else {**own, "error": error}

    def _overall(self) -> Grid:
        head = ["side", "tokens/s", f"over {self.reference}", "95 %", "tokens/pass", "first, ms"]
        rows = []
        for name in self.sides:
            own = self.figures.side(name)
            ratio = self.ratios.get(f"{name}/{self.reference}", {}).get("overall")
            rows.append(
                [
                    name,
                    shown(own["tokens_per_second"]["overall"]),
                    "–" if ratio is None else shown(ratio["value"]),
                    interval_text(ratio),
                    shown(own["tokens_per_pass"]["overall"]),
                    shown(own["first_token_ms"]["overall"]),
                ]
            )
        count = sum(self.prompts.values())
        title = f"{counted(count, 'prompt')}, {counted(self.plan.repeats, 'time')}"
        return Grid(title, head, rows)

    def _by_task(self, title: str, ratios: dict[str, dict[str, Any]], with_intervals: bool) -> Grid:
        others = [name for name in self.sides if name != self.reference]
        grid = [["", *others]]
        for task in self.figures.tasks:
            own = [ratios[f"{name}/{self.reference}"]["by_task"].get(task) for name in others]
            grid.append([task, *(_cell(ratio, with_intervals) for ratio in own)])
        if len(others) >= len(grid):  # the longer side of a table goes down the page
            grid = [list(column) for column in zip(*grid, strict=True)]
        return Grid(title, grid[0], grid[1:])

    def _parts(self) -> Grid:
        times = {name: self.figures.side(name)["time"] for name in self.ours}
        known = {name: parts for name, parts in times.items() if parts is not None}
        head = ["side", *next(iter(known.values()), {})]
        rows = [[name, *(f"{part:.1%}" for part in own.values())] for name, own in known.items()]
        return Grid("Time in rounds, by part", head, rows)

    @cached_property
    def _expected(self) -> dict[str, dict[str, Any]]:
        """Of sides whose drafts were chosen: what the choice expected, by task."""
        own = {name: self.figures.side(name)["predicted"] for name in self.ours}
        return {name: each for name, each in own.items() if each["overall"] is not None}

    def _times(self, title: str, of_sides: Mapping[str, dict[str, Any]]) -> Grid:
        """A side a row: the ratio of each task, and overall."""
        tasks = self.figures.tasks
        rows = [
            [name, *(_share(own["by_task"][task]) for task in tasks), _share(own["overall"])]
            for name, own in of_sides.items()
        ]
        return Grid(title, ["side", *tasks, "overall"], rows)

    def _about_the_machine(self) -> Iterator[str]:
        load, machine = self.load, self.machine
        if load.others is not None and load.stolen is not None:
            doubtful = ": not a quiet machine" if load.others + load.stolen > _BUSY else ""
            cores = f"{load.others:.2f} cores by others, {load.stolen:.2f} by the host"
            yield f"load: {cores}{doubtful}"
        barriers = [reading.barrier_ns for reading in self.readings]
        if barriers:
            yield f"barrier: {min(barriers):.0f} to {max(barriers):.0f} ns"
        threads = counted(machine["threads"], "thread")
        where = f"{machine['processor']}, {machine['instructions']}, {threads}"
        yield (
            f"{self.model}, {where}, temperature {self.plan.temperature:g}, at most "
            f"{counted(self.plan.max_tokens, 'token')}, seed {self.plan.seed}"
        )
        yield (
            "Speed is tokens after the first over the time after it; a text repeats itself if "
            f"over {LOOP_SHARE:.0%} of its 8-grams do."
        )


def _cell(ratio: dict[str, Any] | None, with_interval: bool) -> str:
    if ratio is None:
        return "–"
    value = shown(ratio["value"])
    return f"{value} {interval_text(ratio)}".rstrip() if with_interval else value


def _share(predicted: dict[str, float] | None) -> str:
    return "–" if predicted is None else shown(predicted["ratio"])
