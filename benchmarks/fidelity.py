"""Mean KL of the native target, and of llama.cpp, from the model's weights in 32-bit floats.

    python benchmarks/fidelity.py --prompts prompts.jsonl --peer llama.cpp

reads the first prompts of a file of JSON lines (`prompt`, or `turns` of which the first counts),
puts the chat template around each, and compares the law at every position. The same file of
weights, tokens and threads on all sides; the last line is one JSON object. llama.cpp runs as it is
timed by `forerun bench pass`: flash attention, keys and values in half floats.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forerun.bench.fidelity import (
    Scorer,
    as_texts,
    compare,
    logits_of,
    prompt_tokens,
    read_prompts,
)
from forerun.cli.consoles import print_json
from forerun.cli.guard import guarded
from forerun.cli.waiting import counting, read_model
from forerun.targets.native import NativeTarget
from forerun.targets.reference import ReferenceTarget


def main(
    prompts: Annotated[Path, typer.Option(help="JSON lines.")],
    model: Annotated[str, typer.Option(help="A model's name or GGUF file.")] = "smollm2",
    count: Annotated[int, typer.Option(min=1, help="Prompts.")] = 20,
    tokens: Annotated[int, typer.Option(min=1, help="Most tokens of each.")] = 200,
    threads: Annotated[int, typer.Option(min=1, help="Threads of every side.")] = 2,
    peer: Annotated[str | None, typer.Option(help="llama.cpp")] = None,
) -> None:
    """Compare laws."""
    if peer not in (None, "llama.cpp"):
        raise typer.BadParameter(f"There is no peer {peer!r}; llama.cpp is one.")
    opened = read_model(model)
    given = read_prompts(prompts, count)
    texts = as_texts([prompt_tokens(opened, prompt, tokens) for prompt in given])
    engines: dict[str, Scorer] = {
        f"native, {bits} bits": logits_of(NativeTarget(opened, threads=threads, kv_bits=bits))
        for bits in (16, 32)
    }
    if peer is not None:
        from forerun.bench.llama_cpp import LlamaCpp

        side = LlamaCpp(str(opened.path), threads, texts[0].tokens[:1], 1, tokens)
        engines[peer] = side.logits
    with counting("Fidelity") as progress:
        found = compare(logits_of(ReferenceTarget(opened)), engines, texts, progress)
    print_json(
        {
            "model": opened.name,
            "texts": len(texts),
            "positions": sum(len(text.tokens) - text.repeated for text in texts),
            "repeated": sum(text.repeated for text in texts),
            "sides": {name: distance.as_json() for name, distance in found.items()},
        }
    )


if __name__ == "__main__":
    with guarded():
        typer.run(main)
