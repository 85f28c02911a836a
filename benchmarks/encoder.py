"""A T5 that learns to copy and translate, drafted for by a smaller one: predicted and measured.

    OMP_NUM_THREADS=1 python benchmarks/encoder.py

learns two models of T5's kind from sentences of a made language, a few minutes on one core: words
have a translation and a rarer synonym, two words in a row change places, names between them are
copied. Then, as in Leviathan et al.'s Table 4: alpha = E[sum min(p, q)] along the target's own
texts, what theory makes of it and of this machine's costs, and what is measured, plain and
speculative by turns. Last, tokens per pass of drafters that copy from the encoder's input, and of
the same with the text alone. The last line is one JSON object.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
import transformers
import typer
from numpy.typing import NDArray

from forerun.cli.consoles import print_json
from forerun.cli.guard import guarded
from forerun.cli.waiting import counting
from forerun.config import Generation
from forerun.core.tree import Draft
from forerun.drafters.protocol import Drafter, DraftRequest, Outcome
from forerun.drafters.table import DrafterKit, make_drafter
from forerun.engine.request import Ask
from forerun.engine.scheduler import Scheduler
from forerun.events import Result
from forerun.targets.protocol import Row, Target
from forerun.targets.transformers import TransformersTarget
from forerun.theory import measured_speedup, speedup, tokens_per_pass

_WORDS, _NAMES, _SYNONYM = 30, 60, 0.2
_START, _END, _WORD = 0, 1, 2
_TRANSLATED, _OTHER = _WORD + _WORDS, _WORD + 2 * _WORDS
_NAME = _WORD + 3 * _WORDS
_SIZE = _NAME + _NAMES
_LENGTHS = (3, 5)
_BATCH, _RATE = 32, 3e-3
_TIMES = 100


class Pair(NamedTuple):
    """A sentence and its translation."""

    source: list[int]
    answer: list[int]


class Sizes(NamedTuple):
    """A T5's."""

    width: int
    layers: int


_TARGET, _DRAFTER = Sizes(64, 4), Sizes(32, 1)


def sentence(rng: np.random.Generator) -> Pair:
    """Return a sentence: two or three times one to three words, then four to nine names."""
    names = _NAME + rng.permutation(_NAMES)
    source: list[int] = []
    answer: list[int] = []
    used = 0
    for _ in range(rng.integers(2, 4)):
        words = rng.integers(_WORDS, size=rng.integers(1, 4))
        other = rng.random(len(words)) < _SYNONYM
        told = np.where(other, _OTHER, _TRANSLATED) + words
        copied = names[used : used + int(rng.integers(4, 10))]
        used += len(copied)
        source += [*(_WORD + words).tolist(), *copied.tolist()]
        answer += [*(told[::-1] if len(told) == 2 else told).tolist(), *copied.tolist()]
    return Pair([*source, _END], [*answer, _END])


def network(sizes: Sizes, seed: int) -> Any:
    """Return an untrained T5."""
    torch.manual_seed(seed)
    config = transformers.T5Config(
        vocab_size=_SIZE,
        d_model=sizes.width,
        d_kv=sizes.width // 4,
        d_ff=2 * sizes.width,
        num_layers=1,
        num_decoder_layers=sizes.layers,
        num_heads=4,
        dropout_rate=0.0,
        decoder_start_token_id=_START,
        pad_token_id=_START,
        eos_token_id=_END,
        relative_attention_num_buckets=16,
        relative_attention_max_distance=32,
    )
    return transformers.T5ForConditionalGeneration(config)


def learn(model: Any, seconds: float, seed: int, tell: Any) -> Mapping[str, float]:
    """Train a model for so many seconds of processor time."""
    rng = np.random.default_rng(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_RATE, weight_decay=0.0)
    begun, steps, loss = time.process_time(), 0, torch.zeros(())
    while (part := (time.process_time() - begun) / seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = _RATE * min(1.0, (steps + 1) / 100) * (1 - part) ** 0.5
        sources, answers = _batch([sentence(rng) for _ in range(_BATCH)])
        mask = (sources != _START).long()
        loss = model(input_ids=sources, attention_mask=mask, labels=answers).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        steps += 1
        tell(f"step {steps}, {loss.item():.2f} nats", part)
    model.eval()
    weights = sum(each.numel() for each in model.parameters())
    return {"weights": weights, "steps": steps, "nats": loss.item()}


def _batch(pairs: Sequence[Pair]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return sources, and answers whose rest counts nothing."""
    longest = [max(len(pair[part]) for pair in pairs) for part in (0, 1)]
    sources = np.full((len(pairs), longest[0]), _START)
    answers = np.full((len(pairs), longest[1]), -100)
    for place, (source, answer) in enumerate(pairs):
        sources[place, : len(source)], answers[place, : len(answer)] = source, answer
    return torch.from_numpy(sources), torch.from_numpy(answers)


class Alone:
    """A drafter that is not shown what the encoder has read.

    Args:
        drafter: The drafter that it is.
    """

    name = "alone"

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self.open, self.fork = drafter.open, drafter.fork
        self.rollback, self.free = drafter.rollback, drafter.free

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Draft from the text alone."""
        return self._drafter.draft([replace(request, source=()) for request in requests])

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Learn."""
        self._drafter.observe(outcomes)


class _Silent:
    def push(self, token: int) -> str:
        return ""

    def flush(self) -> str:
        return ""


def write(target: Target, source: Sequence[int], drafter: Drafter | None, **how: Any) -> Result:
    """Answer a sentence."""
    scheduler = Scheduler(target, lambda _: drafter)
    options = Generation(max_tokens=64, drafter="none" if drafter is None else "own", **how)
    ask = Ask((_START,), options, 7, (_END,), _Silent(), source=tuple(source))
    (result,) = [event for event in scheduler.run([ask]) if isinstance(event, Result)]
    return result


def laws(target: Target, source: Sequence[int], text: Sequence[int], heat: float) -> Any:
    """Return a model's laws along a text, [tokens, vocabulary]."""
    sequence = target.open((), source)
    tokens = [_START, *text[:-1]]
    rows = [Row(sequence, token, i, i - 1) for i, token in enumerate(tokens)]
    logits = target.score(rows).logits.astype(np.float64)
    target.free(sequence)
    if heat == 0:
        return np.eye(logits.shape[1])[logits.argmax(1)]
    scores = np.exp((logits - logits.max(1, keepdims=True)) / heat)
    return scores / scores.sum(1, keepdims=True)


def _costs(
    target: Target, drafter: Target, source: Sequence[int]
) -> tuple[float, dict[int, float]]:
    """Return c, and v of the numbers of rows that are scored; passes are timed by turns."""
    held = 16
    sequences = [(each, each.open([_START] * held, source)) for each in (target, drafter)]
    kinds = [(0, 1), (1, 1), *((0, length + 1) for length in _LENGTHS)]
    timed: dict[tuple[int, int], list[float]] = {kind: [] for kind in kinds}
    for _ in range(_TIMES):
        for which, rows in kinds:
            model, name = sequences[which]
            chain = [Row(name, _NAME + i, held + i, i - 1) for i in range(rows)]
            begun = time.perf_counter()
            model.score(chain)
            timed[which, rows].append(time.perf_counter() - begun)
    for model, name in sequences:
        model.free(name)
    seconds = {kind: float(np.median(times)) for kind, times in timed.items()}
    one = seconds[0, 1]
    return seconds[1, 1] / one, {rows: seconds[0, rows] / one for which, rows in kinds if not which}


def drafted(
    target: Target, drafter: Drafter, sources: Sequence[Sequence[int]], **how: Any
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return tokens, passes and seconds, plain and drafted, written by turns."""
    sums = []
    for source in sources:
        results = [write(target, source, each, **how) for each in (None, drafter)]
        sums.append([(r.stats.tokens, r.stats.passes, r.stats.seconds) for r in results])
    plain, speculative = np.array(sums, np.float64).sum(0)
    return plain, speculative


def table(target: Target, draft: Target, sources: Sequence[Sequence[int]]) -> list[Any]:
    """Return the rows of a table as the paper's fourth."""
    kit = DrafterKit(target.vocab_size, lambda: draft, target=target)
    model = make_drafter("model", kit)
    assert model is not None
    cost, rows_cost = _costs(target, draft, sources[0])
    lines: list[Any] = []
    for heat in (0.0, 1.0):
        overlaps: list[float] = []
        for source in sources:
            text = write(target, source, None, temperature=heat).token_ids
            p, q = (laws(each, source, text, heat) for each in (target, draft))
            overlaps += np.minimum(p, q).sum(1).tolist()
        alpha = float(np.mean(overlaps))
        for length in _LENGTHS:
            how = {"temperature": heat, "draft_length": length, "rule": "speculative"}
            plain, found = drafted(target, model, sources, **how)
            lines.append(
                {
                    "temperature": heat,
                    "draft_length": length,
                    "alpha": alpha,
                    "cost": cost,
                    "v": rows_cost[length + 1],
                    "tokens_per_pass": found[0] / found[1],
                    "predicted_tokens_per_pass": tokens_per_pass(alpha, length),
                    "speed": (found[0] / found[2]) / (plain[0] / plain[2]),
                    "predicted_speed": measured_speedup(alpha, length, cost, rows_cost),
                    "speed_by_theorem": speedup(alpha, length, cost),
                }
            )
    return lines


def copying(target: Target, sources: Sequence[Sequence[int]]) -> dict[str, Mapping[str, float]]:
    """Return what drafters bring that copy, with the encoder's input and without."""
    kit = DrafterKit(target.vocab_size, lambda: target, target=target)
    found: dict[str, Mapping[str, float]] = {}
    for name in ("lookup", "suffix"):
        for label, alone in ((name, False), (f"{name}, text alone", True)):
            made = make_drafter(name, kit)
            assert made is not None
            drafter: Drafter = Alone(made) if alone else made
            plain, sums = drafted(target, drafter, sources, draft_length=8)
            speed = (sums[0] / sums[2]) / (plain[0] / plain[2])
            found[label] = {"tokens_per_pass": sums[0] / sums[1], "speed": speed}
    return found


def main(
    seconds: Annotated[float, typer.Option(help="Of a processor, for both models.")] = 170.0,
    sentences: Annotated[int, typer.Option(min=1, help="Written for the tables.")] = 40,
    keep: Annotated[
        Path | None, typer.Option(help="Where the models are kept, and found another time.")
    ] = None,
) -> None:
    """Learn, predict and measure."""
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    models: list[Any] = []
    learned: list[Mapping[str, float]] = []
    for name, sizes, share in (("target", _TARGET, 0.75), ("drafter", _DRAFTER, 0.25)):
        folder = None if keep is None else keep / name
        if folder is not None and (folder / "learned.json").exists():
            kept = transformers.T5ForConditionalGeneration.from_pretrained(folder)
            models.append(kept.eval())
            learned.append(json.loads((folder / "learned.json").read_text()))
            continue
        models.append(network(sizes, len(models)))
        with counting("Learning") as tell:
            learned.append(learn(models[-1], share * seconds, 1, tell))
        if folder is not None:
            models[-1].save_pretrained(folder)
            (folder / "learned.json").write_text(json.dumps(learned[-1]))
    target, draft = (TransformersTarget(model) for model in models)
    rng = np.random.default_rng(99)
    sources = [sentence(rng).source for _ in range(sentences)]
    pairs = {"target": learned[0], "drafter": learned[1]}
    print_json(
        {**pairs, "table": table(target, draft, sources), "copying": copying(target, sources)}
    )


if __name__ == "__main__":
    with guarded():
        typer.run(main)
