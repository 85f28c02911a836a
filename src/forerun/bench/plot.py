"""The curves of a measurement, drawn with matplotlib (the extra `plot`)."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from forerun.bench.report import PassReport
from forerun.errors import OptionError, StartError
from forerun.extras import pip_command
from forerun.printable import counted

__all__ = ["check_plot", "draw_passes", "new_figure", "plain", "save"]


def check_plot(path: str) -> None:
    """Check, before anything is measured, that a plot can be written.

    Raises:
        StartError: matplotlib is not installed.
        OptionError: There is no such folder, or no such kind of file.
    """
    known = new_figure().canvas.get_supported_filetypes()
    suffix = Path(path).suffix.removeprefix(".").lower()
    if suffix not in known:
        what = f"plot = {path!r}: {suffix or 'a file without an ending'} can't be drawn."
        raise OptionError(what, f"Choose one of {', '.join(sorted(known))}, such as pass.svg.")
    if not Path(path).absolute().parent.is_dir():
        raise OptionError(f"plot = {path!r}: there is no such folder.", "Make it first.")


def draw_passes(report: PassReport, path: str) -> None:
    """Draw milliseconds and v(M) over rows into a file.

    Raises:
        OptionError: The file can't be written.
    """
    figure = new_figure()
    times, costs = figure.subplots(1, 2)
    for name in report.samples:
        times.plot(report.rows, _drawn(report.ms(name)), marker="o", label=name)
        costs.plot(report.rows, _drawn(report.v(name)), marker="o", label=name)
    if report.memory_limit_ms is not None:
        times.axhline(report.memory_limit_ms, linestyle="--", color="grey", label="memory limit")
    costs.axhline(1, linestyle="--", color="grey")
    for axes, label in ((times, "ms a pass"), (costs, "v(M): over a pass of one row")):
        axes.set(xlabel="rows M", ylabel=label, ylim=(0, None))
        axes.legend()
    context, threads = report.options.context, counted(report.machine["threads"], "thread")
    figure.suptitle(f"{plain(report.model)}, context {context}, {threads}")
    save(figure, path)


def save(figure: Any, path: str) -> None:
    """Write a figure into a file.

    Raises:
        OptionError: The file can't be written.
    """
    try:
        figure.savefig(path)
    except OSError as error:
        what = f"plot = {path!r} can't be written: {error.strerror or error}."
        raise OptionError(what, "Name another file.") from None


def plain(text: str) -> str:
    """Return text as matplotlib shows it: between two dollars it would read a formula."""
    return text.replace("$", r"\$")


def _drawn(column: list[float | None]) -> list[float]:
    """A gap where nothing was measured."""
    return [float("nan") if value is None else value for value in column]


def new_figure() -> Any:
    """Return a figure of its own, without a window or any state of matplotlib's.

    Raises:
        StartError: matplotlib is not installed.
    """
    try:
        module = importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise StartError(
            f"Plots need matplotlib: {error}.", f"Install it: {pip_command('forerun[plot]')}"
        ) from None
    return module.Figure(figsize=(10, 4.5), layout="constrained")
