"""The default model through transformers, in float32: the same tokens as its own `generate`.

    python benchmarks/transformers_identity.py --prompts prompts.jsonl --max-tokens 64

writes each prompt's first turn at temperature 0 with transformers' `generate`, plainly and with
its prompt lookup, and with Forerun over the same network, interleaved in one process. Where a text
parts from the plain one, the gap of the two tokens' logits there is told. The last line is one JSON
object; its times are worth something only on a machine that does nothing else.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import transformers
import typer

import forerun
from forerun.bench.prompts import read_prompts
from forerun.cli.consoles import print_json
from forerun.cli.guard import guarded
from forerun.cli.waiting import counting, read_model
from forerun.errors import OptionError
from forerun.models.model import Model
from forerun.train.model_folder import write_model_folder
from forerun.train.student import initial_student

_LOOKUP_TOKENS = 10

Way = Callable[[Sequence[int]], list[int]]
Ways = dict[str, Way]


def write_network(model: Model, layers: int, folder: Path) -> Any:
    """Write the model's first layers as a folder, and return them as a network in float32."""
    weights = initial_student(model, range(layers))
    tensors = {name: values.numpy() for name, values in weights.items()}
    write_model_folder(model, layers, tensors, folder, "float32")
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def theirs(network: Any, max_tokens: int, ends: Sequence[int], **how: Any) -> Way:
    """Return what writes with `generate`, its options given."""

    def write(prompt: Sequence[int]) -> list[int]:
        ids = torch.tensor([list(prompt)])
        found = network.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_tokens,
            do_sample=False,
            eos_token_id=list(ends),
            pad_token_id=ends[0],
            **how,
        )
        tokens: list[int] = found[0, len(prompt) :].tolist()
        return tokens

    return write


def _ways(
    lm: forerun.LanguageModel, network: Any, drafters: str, max_tokens: int, peer: bool
) -> Ways:
    """Return what writes: each takes a prompt and returns a text."""
    ends = sorted(lm.model.tokenizer.eos_ids)

    def ours(drafter: str) -> Callable[[Sequence[int]], list[int]]:
        return lambda prompt: list(
            lm.generate(prompt, max_tokens=max_tokens, drafter=drafter).token_ids
        )

    ways: Ways = {"generate": theirs(network, max_tokens, ends)}
    if peer:
        how = {"prompt_lookup_num_tokens": _LOOKUP_TOKENS}
        ways["generate, prompt lookup"] = theirs(network, max_tokens, ends, **how)
    return ways | {f"forerun, {drafter}": ours(drafter) for drafter in drafters.split(";")}


def gap(network: Any, prompt: Sequence[int], plain: Sequence[int], other: Sequence[int]) -> float:
    """Return by how much two texts' logits differ where they part, by a pass over the whole."""
    at = next(i for i, pair in enumerate(zip(plain, other, strict=False)) if pair[0] != pair[1])
    with torch.no_grad():
        logits = network(torch.tensor([[*prompt, *plain[:at]]]), use_cache=False).logits[0, -1]
    return abs(float(logits[plain[at]] - logits[other[at]]))


def main(
    prompts: Annotated[Path, typer.Option(help="In Spec-Bench's format.")],
    model: Annotated[str, typer.Option(help="A model's name or GGUF file.")] = "smollm2",
    drafters: Annotated[str, typer.Option(help="Joined by semicolons.")] = "none;lookup;auto",
    start: Annotated[int, typer.Option(min=0, help="Which prompt of the file is the first.")] = 0,
    count: Annotated[int, typer.Option(min=1, help="Prompts.")] = 60,
    max_tokens: Annotated[int, typer.Option(min=2)] = 64,
    peer: Annotated[bool, typer.Option(help="Write with its prompt lookup, too.")] = True,
) -> None:
    """Write, compare, and time."""
    opened = read_model(model)
    with tempfile.TemporaryDirectory() as folder:
        network = write_network(opened, opened.architecture.num_layers, Path(folder))
    lm = forerun.load(str(opened.path), network=network)
    ways = _ways(lm, network, drafters, max_tokens, peer)
    given = list(read_prompts(str(prompts)))
    chosen = given[start : start + count]
    if not chosen:
        raise OptionError(f"start = {start}: the file has {len(given)}.", "Choose an earlier one.")
    seconds, tokens = dict.fromkeys(ways, 0.0), dict.fromkeys(ways, 0)
    gaps: dict[str, list[float]] = {name: [] for name in ways}
    with counting("Identity") as progress:
        for done, prompt in enumerate(chosen):
            ids = lm.tokens_of(prompt.turns[0])
            texts: dict[str, list[int]] = {}
            # Each way is the first one as often as any other.
            names = [*ways][done % len(ways) :] + [*ways][: done % len(ways)]
            for name in names:
                begun = time.perf_counter()
                texts[name] = ways[name](ids)
                seconds[name] += time.perf_counter() - begun
                tokens[name] += len(texts[name])
            for name, text in texts.items():
                if text != texts["generate"]:
                    gaps[name].append(gap(network, ids, texts["generate"], text))
            progress(prompt.question_id, (done + 1) / len(chosen))
    found = {
        name: {
            "same": len(chosen) - len(gaps[name]),
            "gaps": gaps[name],
            "tokens": tokens[name],
            "seconds": seconds[name],
        }
        for name in ways
    }
    about = {"model": opened.name, "prompts": len(chosen), "max_tokens": max_tokens}
    about["threads"] = torch.get_num_threads()
    print_json({**about, "dtype": "float32", "ways": found})


if __name__ == "__main__":
    with guarded():
        typer.run(main)
