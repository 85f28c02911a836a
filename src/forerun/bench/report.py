"""What was measured, as a table for people and a record for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from forerun.bench.machine import Reading
from forerun.bench.measure import Plan, Samples, Task, median
from forerun.bench.options import Timing
from forerun.printable import counted, printable

__all__ = ["OURS", "Load", "PassReport"]

OURS = "forerun"
_BUSY = 0.1  # cores of others from which on figures are doubtful

Column = list[float | None]


class Load(NamedTuple):
    """Who else used the machine; None is not known.

    Attributes:
        before: The system's load average before the measurement.
        after: The same after it.
        others: Cores that other processes kept busy meanwhile, on average.
        stolen: Cores that a virtual machine's host kept to itself, likewise.
    """

    before: float | None
    after: float | None
    others: float | None
    stolen: float | None


@dataclass(frozen=True)
class PassReport:
    """A measurement of passes.

    Attributes:
        model: The model's name.
        options: What was asked for.
        plan: What was done.
        samples: By side; Forerun's first.
        details: What each side says of itself.
        machine: What it ran on.
        bytes_per_pass: Weights, keys and values that a pass of one row reads.
        readings: What the machine gave, before each repeat and at the end.
        load: Who else used it.
    """

    model: str
    options: Timing
    plan: Plan
    samples: dict[str, Samples]
    details: dict[str, dict[str, Any]]
    machine: dict[str, Any]
    bytes_per_pass: int
    readings: list[Reading]
    load: Load

    @property
    def rows(self) -> list[int]:
        """Rows of the passes, ascending."""
        return sorted(self.plan.rows)

    @property
    def peers(self) -> list[str]:
        """Names of the other sides."""
        return [name for name in self.samples if name != OURS]

    @property
    def bandwidth_gb_s(self) -> float | None:
        """The median of the readings."""
        known = (reading.bandwidth_gb_s for reading in self.readings)
        return median([each for each in known if each is not None])

    @property
    def barrier_ns(self) -> float | None:
        """The median of the readings."""
        return median([reading.barrier_ns for reading in self.readings])

    @property
    def memory_limit_ms(self) -> float | None:
        """Milliseconds in which memory gives the bytes of a pass."""
        bandwidth = self.bandwidth_gb_s
        return None if bandwidth is None else self.bytes_per_pass / bandwidth / 1e6

    def ms(self, side: str) -> Column:
        """Return the median of each number of rows, milliseconds."""
        return [self.samples[side].median_ms(Task("pass", rows)) for rows in self.rows]

    def v(self, side: str) -> Column:
        """Return each median over that of one row."""
        one = self.samples[side].median_ms(Task("pass", 1))
        return [_ratio(ms, one) for ms in self.ms(side)]

    def ratios(self, peer: str) -> Column:
        """Return how many times as fast as the peer Forerun's passes are."""
        return [_ratio(*pair) for pair in zip(self.ms(peer), self.ms(OURS), strict=True)]

    def over_limit(self) -> Column:
        """Return Forerun's times over the memory limit."""
        return [_ratio(ms, self.memory_limit_ms) for ms in self.ms(OURS)]

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain data; what was not measured is None."""
        return {
            "event": "pass",
            "model": self.model,
            "context": self.options.context,
            "rows": self.rows,
            "sides": {name: self._side(name) for name in self.samples},
            "ratios": {name: self.ratios(name) for name in self.peers},
            "v": self.v(OURS),
            "bandwidth_gb_s": self.bandwidth_gb_s,
            "bytes_per_pass": self.bytes_per_pass,
            "memory_limit_ms": self.memory_limit_ms,
            "over_limit": self.over_limit(),
            "barrier_ns": self.barrier_ns,
            "readings": [reading._asdict() for reading in self.readings],
            "load": self.load._asdict(),
            "prefill": self._long(Task("prefill", self.plan.prefill)),
            "decode": self._long(Task("decode", self.plan.decode)),
            "repeats": self.plan.repeats,
            "seed": self.plan.seed,
            "machine": self.machine,
        }

    def samples_as_json(self) -> Iterator[dict[str, Any]]:
        """Yield every sample, in milliseconds, by side and task."""
        for name, samples in self.samples.items():
            for task, seconds in sorted(samples.seconds.items()):
                ms = [1000 * each for each in seconds]
                yield {"event": "samples", "side": name, **task._asdict(), "ms": ms}

    def as_text(self) -> RenderableType:
        """Return tables and remarks for a terminal."""
        parts: list[RenderableType] = [self._passes(), Text()]
        parts += [line for kind in ("prefill", "decode") for line in self._long_lines(kind)]
        parts += [Text(printable(line)) for line in self._remarks()]
        return Group(*parts)

    def _side(self, name: str) -> dict[str, Any]:
        own = self.samples[name]
        record = {"ms": self.ms(name), "v": self.v(name), **self.details[name]}
        return {**record, "error": own.error} if own.error else record

    def _long(self, task: Task) -> dict[str, Any] | None:
        """A prompt's or a text's times; None if it was left out."""
        if task.size == 0:
            return None
        ms = {name: own.median_ms(task) for name, own in self.samples.items()}
        return {
            "tokens": task.size,
            "ms": ms,
            "tokens_per_second": {
                name: _ratio(1000 * task.size, value) for name, value in ms.items()
            },
            "ratios": {name: _ratio(ms[name], ms[OURS]) for name in self.peers},
        }

    def _passes(self) -> Table:
        table = Table("rows", "ms", "v(M)", "× limit", box=None, pad_edge=False)
        columns: list[Column] = [self.ms(OURS), self.v(OURS), self.over_limit()]
        for peer in self.peers:
            for head in (f"{peer} ms", "v(M)", "times as fast"):
                table.add_column(head)
            columns += [self.ms(peer), self.v(peer), self.ratios(peer)]
        for column in table.columns:
            column.justify = "right"
        for rows, *cells in zip(self.rows, *columns, strict=True):
            table.add_row(str(rows), *map(_shown, cells))
        return table

    def _long_lines(self, kind: str) -> Iterator[Text]:
        record = self._long(Task(kind, getattr(self.plan, kind)))
        if record is None:
            return
        said = [f"{name} {_shown(rate)}" for name, rate in record["tokens_per_second"].items()]
        said += [f"{_shown(ratio)} times {name}'s" for name, ratio in record["ratios"].items()]
        tokens = counted(record["tokens"], "token")
        yield Text(f"{kind} of {tokens}, tokens a second: {', '.join(said)}")

    def _remarks(self) -> Iterator[str]:
        limit, bandwidth = self.memory_limit_ms, self.bandwidth_gb_s
        if limit is not None:
            yield (
                f"memory limit: {limit:.2f} ms, {self.bytes_per_pass / 1e6:.1f} MB a pass at "
                f"{bandwidth:.1f} GB/s"
            )
        barriers = [reading.barrier_ns for reading in self.readings]
        yield f"barrier: {self.barrier_ns:.0f} ns, {min(barriers):.0f} to {max(barriers):.0f}"
        load = self.load
        if load.others is not None and load.stolen is not None:
            doubtful = ": not a quiet machine" if load.others + load.stolen > _BUSY else ""
            cores = f"{load.others:.2f} cores by others, {load.stolen:.2f} by the host"
            yield f"load: {cores}{doubtful}"
        if load.before is not None and load.after is not None:
            yield f"load average: {load.before:.2f} before, {load.after:.2f} after"
        ours = self.details[OURS]
        context = f"context {self.options.context} in {ours['kv_bits']} bits"
        weights = "" if ours["weights"] == "auto" else f" as {ours['weights']}"
        threads = counted(self.machine["threads"], "thread")
        where = f"{self.machine['processor']}, {self.machine['instructions']}"
        yield f"{self.model}{weights}, {context}, {threads}, {where}"
        for name, own in self.samples.items():
            if own.error:
                yield f"{name} was given up: {own.error}"


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None


def _shown(value: float | None) -> str:
    """Three digits that count; a dash for what was not measured."""
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}" if value >= 10 else f"{value:.2f}"
