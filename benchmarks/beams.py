"""Passes, rows and time of beam search with drafts, against plain beam search.

    python benchmarks/beams.py --prompts prompts.jsonl --beams 4

searches for each prompt's first turn plainly and with every way of drafting, in turns, and checks
that all beams and scores are the same, bit for bit. Passes and rows are counted: a busy machine
changes nothing. Times are sums over all prompts, of each the least of the repeats, and hold for
the machine and its load alone. Intervals (95 %) come of prompts drawn again. The last line is one
JSON object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

import forerun
from forerun.bench.prompts import read_prompts
from forerun.cli.consoles import print_json
from forerun.cli.guard import guarded
from forerun.cli.waiting import counting
from forerun.errors import EngineError
from forerun.events import BeamResult

_DRAWS = 2000


class Way(NamedTuple):
    """How drafts are made."""

    drafter: str
    length: int | str
    width: int | str = 1

    def __str__(self) -> str:
        if self.drafter == "none":
            return "plain"
        shape = "auto" if self.length == "auto" else f"{self.length} levels, {self.width}x"
        return f"{self.drafter}, {shape}"


def _ways(drafters: Sequence[str]) -> list[Way]:
    shapes: list[tuple[int | str, int | str]] = [(1, 1), (3, 1), (3, 2), ("auto", "auto")]
    return [Way("none", 0), *(Way(name, *shape) for name in drafters for shape in shapes)]


def _report(results: Sequence[BeamResult], seconds: Sequence[float]) -> Mapping[str, Any]:
    """Return what one way cost, over all prompts."""
    stats = [result.stats for result in results]
    steps, passes = (np.array([getattr(s, name) for s in stats]) for name in ("steps", "passes"))
    drawn = np.random.default_rng(0).integers(len(stats), size=(_DRAWS, len(stats)))
    low, high = np.quantile(steps[drawn].sum(1) / passes[drawn].sum(1), [0.025, 0.975])
    rows, plain_rows = (sum(getattr(s, name) for s in stats) for name in ("rows", "plain_rows"))
    drafted, kept = (sum(getattr(s, name) for s in stats) for name in ("drafted", "kept"))
    return {
        "tokens_per_pass": steps.sum() / passes.sum(),
        "low": float(low),
        "high": float(high),
        "rows_over_plain": rows / plain_rows,
        "kept_of_drafted": kept / drafted if drafted else None,
        "seconds": sum(seconds),
    }


def main(
    prompts: Annotated[Path, typer.Option(help="In Spec-Bench's format.")],
    model: Annotated[str, typer.Option(help="A model's name or file.")] = "smollm2",
    drafters: Annotated[str, typer.Option(help="Joined by blanks.")] = "lookup recycle eagle auto",
    beams: Annotated[int, typer.Option(min=1)] = 4,
    limit: Annotated[int, typer.Option(min=1, help="Every so many-th prompt is taken.")] = 1,
    max_tokens: Annotated[int, typer.Option(min=2)] = 64,
    repeats: Annotated[int, typer.Option(min=1)] = 1,
) -> None:
    """Search, compare and count."""
    lm = forerun.load(model)
    texts = [prompt.turns[0] for prompt in read_prompts(str(prompts))][::limit]
    ways = _ways(drafters.split())
    results: dict[Way, list[BeamResult]] = {way: [] for way in ways}
    seconds: dict[Way, list[float]] = {way: [] for way in ways}
    with counting("Beams") as progress:
        for done, text in enumerate(texts):
            taken: dict[Way, list[float]] = {way: [] for way in ways}
            for turn in range(repeats):
                for way in ways[turn:] + ways[:turn]:
                    result = lm.beam_search(
                        text,
                        beams=beams,
                        max_tokens=max_tokens,
                        drafter=way.drafter,
                        draft_length=way.length,
                        draft_width=way.width,
                    )
                    taken[way].append(result.stats.seconds)
                    if turn == repeats - 1:
                        results[way].append(result)
            for way in ways:
                seconds[way].append(min(taken[way]))
                if results[way][-1].beams != results[ways[0]][-1].beams:
                    raise EngineError(f"Prompt {done}: the beams of '{way}' are others.")
            progress(str(done), (done + 1) / len(texts))
    found = {str(way): _report(results[way], seconds[way]) for way in ways}
    print_json({"model": lm.model.name, "prompts": len(texts), "beams": beams, "ways": found})


if __name__ == "__main__":
    with guarded():
        typer.run(main)
