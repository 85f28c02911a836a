"""The figures of a race, drawn with matplotlib (the extra `plot`)."""

from __future__ import annotations

from typing import Any

from forerun.bench.plot import new_figure, plain, save
from forerun.bench.race.report import RaceReport
from forerun.printable import counted

__all__ = ["draw_race"]

_WIDTH = 0.8  # of a task's group of bars


def draw_race(report: RaceReport, path: str) -> None:
    """Draw tokens per pass and per second, a group of bars for each task and overall.

    Raises:
        StartError: matplotlib is not installed.
        OptionError: The file can't be written.
    """
    figure = new_figure()
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
    threads = counted(report.machine["threads"], "thread")
    title = f"{plain(report.model)}, temperature {report.plan.temperature:g}, {threads}"
    figure.suptitle(title + (", interrupted" if report.is_interrupted else ""))
    save(figure, path)


def _bars(axes: Any, place: int, count: int, name: str, heights: list[float | None]) -> None:
    width = _WIDTH / count
    left = (place - (count - 1) / 2) * width
    places = [index + left for index in range(len(heights))]
    axes.bar(places, [height or 0.0 for height in heights], width, label=name)


def _of(record: dict[str, Any], task: str) -> float | None:
    value: float | None = record["overall"] if task == "overall" else record["by_task"][task]
    return value
