"""Tokens per pass of a learned head under each rule, blind and with the shared noise.

    python benchmarks/rules.py --prompts prompts.jsonl --temperatures 1,0.7

writes each prompt's first turn with every way of drafting and verifying, drafts of one fixed size,
and counts. Passes are counted, not timed: a busy machine changes nothing. Under the rules that
draw coins each way writes a text of its own, so intervals (95 %, prompts drawn again) are wider
than a difference on the same text needs. The last line is one JSON object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

import forerun
from forerun.bench.prompts import read_prompts
from forerun.cli.consoles import print_json
from forerun.cli.guard import guarded
from forerun.cli.waiting import counting
from forerun.core.tree import Draft
from forerun.drafters.protocol import DraftRequest, Outcome, Watcher

_DRAWS = 2000


class Way(NamedTuple):
    """How drafts are made and judged."""

    name: str
    drafter: str
    rule: str
    length: int
    width: int = 1


_WAYS = (
    Way("match, blind, chain of 3", "blind", "match", 3),
    Way("match, shared noise, chain of 3", "eagle", "match", 3),
    Way("match, blind, 3 levels of 3", "blind", "match", 3, 3),
    Way("match, shared noise, 3 levels of 3", "eagle", "match", 3, 3),
    Way("speculative, chain of 3", "eagle", "speculative", 3),
    Way("block, chain of 3", "eagle", "block", 3),
    Way("tree, 3 levels of 3", "eagle", "tree", 3, 3),
)


class Blind:
    """A head that is not shown the noise: it ranks by q alone.

    Args:
        head: The drafter that it is.
    """

    name = "blind"

    def __init__(self, head: Watcher) -> None:
        self._head = head
        self.layers = head.layers
        self.open, self.see, self.fork = head.open, head.see, head.fork
        self.rollback, self.free = head.rollback, head.free

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Draft without the noise."""
        return self._head.draft([replace(request, noise=None) for request in requests])

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Learn."""
        self._head.observe(outcomes)


def _interval(tokens: NDArray[np.int64], passes: NDArray[np.int64]) -> Mapping[str, float]:
    """Return tokens over passes, and where 95 % of drawn sets of prompts have it."""
    drawn = np.random.default_rng(0).integers(len(tokens), size=(_DRAWS, len(tokens)))
    ratios = tokens[drawn].sum(1) / passes[drawn].sum(1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return {"value": tokens.sum() / passes.sum(), "low": float(low), "high": float(high)}


def main(
    prompts: Annotated[Path, typer.Option(help="In Spec-Bench's format.")],
    model: Annotated[str, typer.Option(help="A model's name or file.")] = "smollm2",
    head: Annotated[str | None, typer.Option(help="Its head; by default the shipped one.")] = None,
    temperatures: Annotated[str, typer.Option(help="Joined by commas.")] = "1,0.7",
    limit: Annotated[int, typer.Option(min=1, help="Every so many-th prompt is written.")] = 1,
    max_tokens: Annotated[int, typer.Option(min=2)] = 96,
) -> None:
    """Count tokens and passes."""
    lm = forerun.load(model, head=head)
    own = lm._drafter("eagle")
    assert isinstance(own, Watcher)
    lm.add_drafter(Blind(own))
    texts = [prompt.turns[0] for prompt in read_prompts(str(prompts))][::limit]
    found: dict[str, dict[str, Mapping[str, float]]] = {}
    heats = [float(each) for each in temperatures.split(",")]
    with counting("Rules") as progress:
        for done, temperature in enumerate(heats):
            for place, way in enumerate(_WAYS):
                stats = []
                for text in texts:
                    result = lm.generate(
                        text,
                        drafter=way.drafter,
                        rule=way.rule,
                        draft_length=way.length,
                        draft_width=way.width,
                        temperature=temperature,
                        seed=7,
                        max_tokens=max_tokens,
                    )
                    stats.append((result.stats.tokens, result.stats.passes))
                tokens, passes = np.array(stats).T
                found.setdefault(str(temperature), {})[way.name] = _interval(tokens, passes)
                progress(way.name, (done * len(_WAYS) + place + 1) / (len(heats) * len(_WAYS)))
    print_json({"model": lm.model.name, "prompts": len(texts), "tokens_per_pass": found})


if __name__ == "__main__":
    with guarded():
        typer.run(main)
