"""Whether choosing lengths pays: `auto` against the best of our sides that choose none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from forerun.bench.race.tables import Grid, interval_text, shown

__all__ = ["AT_LEAST", "AT_LEAST_BY_TASK", "WITHIN", "best_of", "grid_of_best", "hardest"]
__all__ += ["told_foretold", "verdict"]

AT_LEAST, AT_LEAST_BY_TASK = 1.0, 0.95
"""How fast `auto` is to be over the fastest that is fixed: overall, and in each task."""

WITHIN = 0.15
"""How far what v, c and acceptance foretell may be from what was taken."""

HOLDS, FAILS, OPEN = "holds", "fails", "undecided"

Record = dict[str, Any]


def verdict(ratio: Mapping[str, float | None], at_least: float) -> str:
    """Return whether a ratio reaches a bound: it fails if its whole interval lies below.

    A single measurement has no interval, and decides nothing.
    """
    value, high = ratio["value"], ratio["high"]
    assert value is not None
    if high is None:
        return OPEN
    if value >= at_least:
        return HOLDS
    return FAILS if high < at_least else OPEN


def hardest(ratios: Mapping[str, Mapping[str, float | None] | None]) -> tuple[str, Record] | None:
    """Return the side that `auto` is ahead of least, and by how much; None without any."""
    known = {name: dict(ratio) for name, ratio in ratios.items() if ratio is not None}
    if not known:
        return None
    name = min(known, key=lambda each: float(known[each]["value"] or 0))
    return name, known[name]


def best_of(
    ratios: Mapping[str, Record], fixed: Sequence[str], tasks: Sequence[str]
) -> dict[str, Any]:
    """Return the fastest of the sides `fixed`, overall and by task, with the verdict on `auto`.

    Args:
        ratios: Of `auto` over each of them, as `auto/NAME`.
        fixed: Sides of ours that choose no length.
        tasks: Of the race.

    Returns:
        For each its `side`, `auto_over_it`, `at_least` and `verdict`; None where nothing is shared
        that has a speed.
    """
    own = {name: ratios[f"auto/{name}"] for name in fixed}
    by_task = {
        task: _judged({name: each["by_task"][task] for name, each in own.items()}, AT_LEAST_BY_TASK)
        for task in tasks
    }
    overall = _judged({name: each["overall"] for name, each in own.items()}, AT_LEAST)
    return {"overall": overall, "by_task": by_task}


def _judged(ratios: Mapping[str, Record | None], at_least: float) -> Record | None:
    found = hardest(ratios)
    if found is None:
        return None
    side, ratio = found
    judged = {"at_least": at_least, "verdict": verdict(ratio, at_least)}
    return {"side": side, "auto_over_it": ratio, **judged}


def grid_of_best(best: Mapping[str, Any], speeds: Mapping[str, Record]) -> Grid:
    """Return the table: which fixed side was fastest where, and whether `auto` keeps up.

    Args:
        best: As `best_of` gives it.
        speeds: Of each side, tokens per second `overall` and `by_task`.
    """
    rows = []
    for task, own in [*best["by_task"].items(), ("overall", best["overall"])]:
        of_auto = _speed(speeds["auto"], task)
        if own is None:
            rows.append([task, "–", "–", of_auto, "–", "–", "–"])
            continue
        of_side = _speed(speeds[own["side"]], task)
        ratio = own["auto_over_it"]
        over = f"{shown(ratio['value'])} {interval_text(ratio)}".rstrip()
        asked = f"≥ {own['at_least']:g}"
        rows.append([task, own["side"], of_side, of_auto, over, asked, own["verdict"]])
    head = ["task", "best fixed", "tokens/s", "auto", "auto over it, 95 %", "asked", "verdict"]
    return Grid("auto against the best fixed length of each task", head, rows)


def told_foretold(foretold: Mapping[str, Record]) -> Iterator[str]:
    """Yield how often v, c and acceptance foretell the time that a task took."""
    for who, sides in (("auto", ["auto"]), ("all sides", list(foretold))):
        known = [
            each["ratio"]
            for side in sides
            for each in foretold.get(side, {}).get("by_task", {}).values()
            if each is not None
        ]
        if known and (who == "auto" or len(sides) > 1):
            near = sum(abs(ratio - 1) <= WITHIN for ratio in known)
            yield (
                f"Foretold by v, c and acceptance within {WITHIN:.0%} of the time taken: "
                f"{near} of {len(known)} for {who}, {min(known):.2f} to {max(known):.2f}."
            )


def _speed(speeds: Record, task: str) -> str:
    return shown(speeds["overall"] if task == "overall" else speeds["by_task"][task])
