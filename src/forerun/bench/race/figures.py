"""From samples to figures: speeds, tokens per pass, ratios, acceptance, time by part."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from forerun.bench.race.foretold import drafting_price, foretold, together
from forerun.bench.race.intervals import Bootstrap, Interval
from forerun.bench.race.protocol import Acceptance, Written
from forerun.bench.race.samples import Sample, cells_of
from forerun.events import Stats

__all__ = ["Figures", "parts_of"]

T = TypeVar("T")


def parts_of(stats: Stats) -> dict[str, float]:
    """Return where the time in rounds went, in seconds."""
    parts = {
        "drafting": stats.draft_seconds,
        "choice": stats.choice_seconds,
        "pass": stats.pass_seconds,
    }
    return {**parts, "rest": stats.seconds - sum(parts.values())}


class Figures:
    """What follows from some samples.

    Args:
        samples: Of all sides.
        sides: In the report's order.
        seed: Of the intervals' draws.
    """

    def __init__(self, samples: Sequence[Sample], sides: Sequence[str], seed: int) -> None:
        self._by_side: dict[str, list[Sample]] = {name: [] for name in sides}
        for sample in samples:
            self._by_side[sample.side].append(sample)
        self._places = {name: i for i, name in enumerate(sides)}
        cells = cells_of(samples, sides)
        self.tasks = list(cells)
        self._bootstrap = Bootstrap(cells, seed)

    def ratio(self, a: str, b: str) -> dict[str, Any]:
        """Return the speed of side a over b's, overall and by task; None where nothing is shared.

        Each has `value`, and `low` and `high` of its 95 % interval.
        """
        pair = self._places[a], self._places[b]
        return {
            "overall": _plain(self._bootstrap.ratio(*pair)),
            "by_task": {task: _plain(self._bootstrap.ratio(*pair, task)) for task in self.tasks},
        }

    def side(self, name: str) -> dict[str, Any]:
        """Return a side's own figures; what is not known is None."""
        samples = self._by_side[name]
        return {
            "tokens_per_second": self._each(samples, _speed),
            "tokens_per_pass": self._each(samples, _tokens_per_pass),
            "first_token_ms": self._each(samples, _first_ms),
            "texts_in_one_pass": self.in_one_pass(name),
            "tokens": sum(len(each.written.token_ids) for each in samples),
            "seconds": sum(each.written.first_seconds + each.written.seconds for each in samples),
            "acceptance": _acceptance(samples),
            "time": _time(samples),
            "predicted": self._each(samples, _predicted),
        }

    def foretold(self, name: str, plain: str, v: Sequence[float]) -> dict[str, Any]:
        """Return what v, c and acceptance say of a side's time; see `race.foretold`.

        Args:
            name: The side.
            plain: The one that writes plainly.
            v: By rows of a pass, its time over that of one of one row.
        """
        own, of_plain = (self._by_task(self._by_side[each]) for each in (name, plain))
        price = drafting_price([text for texts in own.values() for text in texts])
        by_task = {task: foretold(own[task], of_plain[task], price, v) for task in self.tasks}
        return {"overall": together(by_task.values()), "by_task": by_task}

    def speeds(self, name: str) -> dict[str, Any]:
        """Return a side's tokens per second alone, overall and by task."""
        return self._each(self._by_side[name], _speed)

    def in_one_pass(self, name: str) -> int:
        """Return how many texts a side had whole with its first pass: those have no speed."""
        return sum(not sample.written.is_timed for sample in self._by_side[name])

    def _each(
        self, samples: Sequence[Sample], figure: Callable[[Sequence[Written]], T]
    ) -> dict[str, Any]:
        """Overall and by task."""
        by_task = {task: figure(own) for task, own in self._by_task(samples).items()}
        return {"overall": figure([each.written for each in samples]), "by_task": by_task}

    def _by_task(self, samples: Sequence[Sample]) -> dict[str, list[Written]]:
        by_task: dict[str, list[Written]] = {task: [] for task in self.tasks}
        for sample in samples:
            by_task[sample.task].append(sample.written)
        return by_task


def _plain(interval: Interval | None) -> dict[str, float | None] | None:
    return None if interval is None else interval._asdict()


def _speed(texts: Sequence[Written]) -> float | None:
    timed = [text for text in texts if text.is_timed]
    seconds = sum(text.seconds for text in timed)
    return sum(text.later for text in timed) / seconds if seconds > 0 else None


def _tokens_per_pass(texts: Sequence[Written]) -> float | None:
    counted = [(len(text.token_ids), text.passes) for text in texts if text.passes is not None]
    passes = sum(count for _, count in counted)
    return sum(tokens for tokens, _ in counted) / passes if passes else None


def _first_ms(texts: Sequence[Written]) -> float | None:
    return statistics.median(1000 * text.first_seconds for text in texts) if texts else None


def _predicted(texts: Sequence[Written]) -> dict[str, float] | None:
    """Seconds in rounds as the choice of drafts expected them, and as they came; None if fixed."""
    known = [text.stats for text in texts if text.stats is not None and text.stats.expected_seconds]
    expected = sum(stats.expected_seconds for stats in known)
    measured = sum(stats.seconds for stats in known)
    if expected <= 0 or measured <= 0:
        return None
    return {"expected": expected, "measured": measured, "ratio": expected / measured}


def _acceptance(samples: Iterable[Sample]) -> dict[str, Any] | None:
    known = [s.written.acceptance for s in samples if s.written.acceptance is not None]
    if not known:
        return None
    total = Acceptance()
    for each in known:
        total.add(each)
    return total.as_json()


def _time(samples: Iterable[Sample]) -> dict[str, float] | None:
    """Shares of the time in rounds; None if there was none, or nobody counted."""
    total = Stats()
    for sample in samples:
        if sample.written.stats is not None:
            total.add(sample.written.stats)
    if total.seconds <= 0:
        return None
    return {part: seconds / total.seconds for part, seconds in parts_of(total).items()}
