"""The figures of a race, drawn with matplotlib (the extra `plot`)."""

from __future__ import annotations

import math
import re
from typing import Any

from forerun.bench.plot import new_figure, plain, save
from forerun.bench.race.report import RaceReport
from forerun.printable import counted

__all__ = ["draw_race"]

_WIDTH = 0.8  # of a task's group of bars
_COLUMNS = 4  # panels beside one another
_DASHES = ("--", "-.", ":")


def draw_race(report: RaceReport, path: str) -> None:
    """Draw tokens per pass and per second, a group of bars for each task and overall.

    Of a sweep, draw tokens per second over the fixed length instead, a line for each drafter, and
    `auto` beside them.

    Raises:
        StartError: matplotlib is not installed.
        OptionError: The file can't be written.
    """
    figure = new_figure()
    lines = _lines(report)
    if any(len(places) > 1 for places in lines.values()):
        _draw_lines(figure, report, lines)
    else:
        _draw_bars(figure, report)
    threads = counted(report.machine["threads"], "thread")
    title = f"{plain(report.model)}, temperature {report.plan.temperature:g}, {threads}"
    figure.suptitle(title + (", interrupted" if report.is_interrupted else ""))
    save(figure, path)


def _draw_bars(figure: Any, report: RaceReport) -> None:
    tasks = ["overall", *report.figures.tasks]
    figure.set_size_inches(max(10.0, 0.3 * len(tasks) * len(report.sides)), 9)
    panels = figure.subplots(2, 1)
    measures = ("tokens_per_pass", "tokens_per_second")
    for axes, measure in zip(panels, measures, strict=True):
        for place, name in enumerate(report.sides):
            record = report.figures.side(name)[measure]
            _bars(axes, place, len(report.sides), name, [_of(record, task) for task in tasks])
        axes.set_xticks(range(len(tasks)), [plain(task) for task in tasks], rotation=20, ha="right")
        axes.set_ylabel(measure.replace("_", " "))
    panels[0].axhline(1, linestyle="--", color="grey")
    panels[0].legend(ncols=min(6, len(report.sides)))


def _bars(axes: Any, place: int, count: int, name: str, heights: list[float | None]) -> None:
    width = _WIDTH / count
    left = (place - (count - 1) / 2) * width
    places = [index + left for index in range(len(heights))]
    axes.bar(places, [height or 0.0 for height in heights], width, label=name)


def _lines(report: RaceReport) -> dict[str, list[tuple[int, str]]]:
    """Of each drafter at fixed lengths: lengths and sides, in their order."""
    lines: dict[str, list[tuple[int, str]]] = {}
    for name in report.fixed:
        line = re.sub(":[0-9]+", ":N", name)
        lines.setdefault(line, []).append((report.details[name]["draft_length"], name))
    return {line: sorted(places) for line, places in lines.items()}


def _draw_lines(figure: Any, report: RaceReport, lines: dict[str, list[tuple[int, str]]]) -> None:
    """A panel overall, and one for each task."""
    tasks = ["overall", *report.figures.tasks]
    rows = math.ceil(len(tasks) / _COLUMNS)
    columns = min(len(tasks), _COLUMNS)
    figure.set_size_inches(max(6.0, 4.0 * columns), 1.0 + 3.5 * rows)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    speeds = {name: report.figures.speeds(name) for name in report.ours}
    others = [name for name in report.ours if name not in report.fixed]
    for axes, task in zip(panels, tasks, strict=False):
        for line, places in lines.items():
            heights = [_of(speeds[name], task) for _, name in places]
            drawn = [math.nan if height is None else height for height in heights]
            axes.plot([length for length, _ in places], drawn, marker=".", label=line)
        for index, name in enumerate(others):
            height = _of(speeds[name], task)
            if height is not None:
                style = {"color": "grey" if name == "plain" else "black", "ls": _DASHES[index % 3]}
                axes.axhline(height, label=name, **style)
        axes.set(title=plain(task), xlabel="draft length", ylabel="tokens per second")
        axes.set_ylim(0, None)
    for axes in panels[len(tasks) :]:
        axes.remove()
    panels[0].legend(fontsize="small")


def _of(record: dict[str, Any], task: str) -> float | None:
    value: float | None = record["overall"] if task == "overall" else record["by_task"][task]
    return value
