"""The default model through transformers: its own ways of drafting against Forerun's.

    python benchmarks/assisted.py --prompts prompts.jsonl --layers 7

writes each prompt's first turn at temperature 0 with the same network in float32, by turns in one
process: with transformers' `generate`, plainly, with its prompt lookup and with its assisted
generation, and with Forerun's drafters. The draft model of both is the network's own first layers
under its own norm and head, and `early_exit` leaves the network after as many. Forerun forgets
between any two texts. Then, by turns, groups of prompts in one batch and one by one.

Seconds hold the reading of the prompt. Intervals (95 %) come of prompts drawn again. With `--keep`
a run is cut in steps: samples are kept in that file, and the table is of all it holds. The last
line is one JSON object.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
import typer
from transformers_identity import gap, theirs, write_network

import forerun
from forerun.bench.prompts import Prompt, read_prompts
from forerun.bench.race.intervals import Bootstrap
from forerun.bench.race.samples import TaskCells
from forerun.bench.race.tables import Grid, interval_text, shown
from forerun.cli.consoles import print_json, stderr
from forerun.cli.guard import guarded
from forerun.cli.waiting import counting, read_model
from forerun.errors import OptionError

_LOOKUP_TOKENS = 10
_PLAIN, _LOOKUP, _ASSISTED = "generate", "generate, prompt lookup", "generate, assisted"
_WARM_TOKENS = 8
_OURS = ("lookup", "model", "early_exit", "auto")

Text = list[int]
Way = Callable[[Sequence[int]], Text]


class Sample(NamedTuple):
    """One text, or a group of them.

    Attributes:
        side: Who wrote.
        prompt: Which, or the first of which.
        tokens: Written.
        seconds: In all.
        is_same: Whether they are the tokens of `generate`, or in groups those of texts alone.
        gap: By how much two texts' logits differ where they part; 0 where they do not.
    """

    side: str
    prompt: str
    tokens: int
    seconds: float
    is_same: bool
    gap: float = 0.0


class Models(NamedTuple):
    """What writes: Forerun's, the network in it, and the draft model of both."""

    lm: forerun.LanguageModel
    network: Any
    draft: Any


@contextmanager
def opened(name: str, layers: int) -> Iterator[Models]:
    """Yield the model's network, whole and cut."""
    model = read_model(name)
    with TemporaryDirectory() as folder:
        whole, cut = Path(folder) / "whole", Path(folder) / "cut"
        network = write_network(model, model.architecture.num_layers, whole)
        draft = write_network(model, layers, cut)
        lm = forerun.load(
            str(model.path),
            network=network,
            target="transformers",
            draft_model=str(cut),
            draft_layers=layers,
        )
        yield Models(lm, network, draft)


def ways_of(models: Models, max_tokens: int) -> dict[str, Way]:
    """Return what writes one text, by name."""
    lm, ends = models.lm, sorted(models.lm.model.tokenizer.eos_ids)

    def ours(drafter: str) -> Way:
        def write(prompt: Sequence[int]) -> Text:
            lm.forget()
            return list(lm.generate(prompt, max_tokens=max_tokens, drafter=drafter).token_ids)

        return write

    ways: dict[str, Way] = {
        _PLAIN: theirs(models.network, max_tokens, ends),
        _LOOKUP: theirs(models.network, max_tokens, ends, prompt_lookup_num_tokens=_LOOKUP_TOKENS),
        _ASSISTED: theirs(models.network, max_tokens, ends, assistant_model=models.draft),
    }
    return ways | {f"forerun, {drafter}": ours(drafter) for drafter in _OURS}


def written(models: Models, ways: dict[str, Way], prompt: Prompt, turn: int) -> list[Sample]:
    """Let each side write a prompt's text, another one first each time."""
    ids = models.lm.tokens_of(prompt.turns[0])
    names = [*ways][turn % len(ways) :] + [*ways][: turn % len(ways)]
    texts: dict[str, Text] = {}
    seconds: dict[str, float] = {}
    for name in names:
        begun = time.perf_counter()
        texts[name] = ways[name](ids)
        seconds[name] = time.perf_counter() - begun
    expected = texts[names[0]] if _PLAIN not in texts else texts[_PLAIN]
    return [
        Sample(
            name,
            prompt.question_id,
            len(text),
            seconds[name],
            text == expected,
            0.0 if text == expected else gap(models.network, ids, expected, text),
        )
        for name, text in texts.items()
    ]


def together(models: Models, group: Sequence[Prompt], max_tokens: int, turn: int) -> list[Sample]:
    """Write a group of prompts in one batch and one by one, each first as often as the other."""
    lm, size = models.lm, len(group)
    prompts = [lm.tokens_of(prompt.turns[0]) for prompt in group]
    options: dict[str, Any] = {"max_tokens": max_tokens, "drafter": "lookup"}
    found: dict[int, list[tuple[int, ...]]] = {}
    seconds: dict[int, float] = {}
    for at_once in (1, size) if turn % 2 else (size, 1):
        begun = time.perf_counter()
        texts: list[tuple[int, ...]] = []
        for start in range(0, size, at_once):
            lm.forget()
            results = lm.generate_batch(prompts[start : start + at_once], **options)
            texts += [result.token_ids for result in results]
        seconds[at_once], found[at_once] = time.perf_counter() - begun, texts
    return [
        Sample(
            f"batch of {at_once}",
            group[0].question_id,
            sum(map(len, texts)),
            seconds[at_once],
            texts == found[1],
        )
        for at_once, texts in sorted(found.items())
    ]


def report(samples: Iterable[Sample]) -> dict[str, Any]:
    """Return each side's seconds, and how many times as fast it is as each of the first ones."""
    kept = list(samples)
    sides = list(dict.fromkeys(sample.side for sample in kept))
    prompts = list(dict.fromkeys(sample.prompt for sample in kept))
    if not kept:
        return {}
    numbers = np.zeros((2, len(sides), len(prompts), 1))
    for sample in kept:
        at = sides.index(sample.side), prompts.index(sample.prompt), 0
        numbers[0][at], numbers[1][at] = sample.tokens, sample.seconds
    draws = Bootstrap({"all": TaskCells(*numbers, numbers[0] > 0)}, seed=0)
    found: dict[str, Any] = {}
    for place, side in enumerate(sides):
        own = [sample for sample in kept if sample.side == side]
        ratios = {}
        for base in (_PLAIN, _LOOKUP, _ASSISTED, "batch of 1"):
            ratio = draws.ratio(place, sides.index(base)) if base in sides else None
            if ratio is not None and base != side:
                ratios[base] = ratio._asdict()
        found[side] = {
            "texts": len(own),
            "same": sum(sample.is_same for sample in own),
            "gaps": [sample.gap for sample in own if not sample.is_same],
            "tokens": sum(sample.tokens for sample in own),
            "seconds": sum(sample.seconds for sample in own),
            "times_as_fast_as": ratios,
        }
    return found


def table(title: str, found: dict[str, Any]) -> Grid:
    """Return the report for people."""
    bases = list(dict.fromkeys(base for own in found.values() for base in own["times_as_fast_as"]))
    rows = []
    for side, own in found.items():
        cells = [side, f"{own['same']} of {own['texts']}", shown(own["seconds"])]
        for base in bases:
            ratio = own["times_as_fast_as"].get(base)
            told = "" if ratio is None else f"{shown(ratio['value'])} {interval_text(ratio)}"
            cells.append(told.strip())
        rows.append(cells)
    return Grid(title, ["", "the same", "seconds", *(f"over {base}" for base in bases)], rows)


def measured(models: Models, ways: dict[str, Way], chosen: list[Prompt], asked: Any) -> Any:
    """Yield what is written, as it comes."""
    with counting("Race") as progress:
        for way in ways_of(models, _WARM_TOKENS).values():
            way(models.lm.tokens_of(chosen[0].turns[0])[:_WARM_TOKENS])
        for turn, prompt in enumerate(chosen if ways else ()):
            yield from written(models, ways, prompt, turn)
            progress(prompt.question_id, (turn + 1) / len(chosen))
        batch, max_tokens = asked
        for start in range(0, len(chosen) - batch + 1 if batch else 0, batch or 1):
            group = chosen[start : start + batch]
            yield from together(models, group, max_tokens, start // batch)


def main(
    prompts: Annotated[Path, typer.Option(help="In Spec-Bench's format.")],
    model: Annotated[str, typer.Option(help="A model's name or GGUF file.")] = "smollm2",
    layers: Annotated[int, typer.Option(min=1, help="Of the draft model.")] = 7,
    start: Annotated[int, typer.Option(min=0, help="Which prompt of the file is the first.")] = 0,
    step: Annotated[int, typer.Option(min=1, help="Every so many-th prompt is taken.")] = 1,
    count: Annotated[int, typer.Option(min=1, help="Prompts.")] = 8,
    max_tokens: Annotated[int, typer.Option(min=2)] = 48,
    race: Annotated[bool, typer.Option(help="Let the sides write one by one.")] = True,
    batch: Annotated[int, typer.Option(min=0, help="Prompts of a batch; 0 leaves it out.")] = 4,
    keep: Annotated[Path | None, typer.Option(help="File of samples, to which is added.")] = None,
) -> None:
    """Write, compare, and time."""
    chosen = list(read_prompts(str(prompts)))[start::step][:count]
    if not chosen:
        raise OptionError(f"start = {start}: the file has not so many.", "Choose an earlier one.")
    samples: list[Sample] = []
    if keep is not None and keep.exists():
        samples = [Sample(*json.loads(line)) for line in keep.read_text("utf-8").splitlines()]
    with opened(model, layers) as models:
        ways = ways_of(models, max_tokens) if race else {}
        for sample in measured(models, ways, chosen, (batch, max_tokens)):
            samples.append(sample)
            if keep is not None:
                with keep.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(sample) + "\n")
    parts = {
        "sides": report(each for each in samples if not each.side.startswith("batch")),
        "batches": report(each for each in samples if each.side.startswith("batch")),
    }
    for name, found in parts.items():
        if found:
            stderr().print(table(name, found).as_markdown(), markup=False)
    about = {"model": models.lm.model.name, "layers": layers, "max_tokens": max_tokens}
    print_json({**about, "threads": torch.get_num_threads(), "dtype": "float32", **parts})


if __name__ == "__main__":
    with guarded():
        typer.run(main)
