"""Tiny models of odd shapes, random trees, and the slow way to score a row: all alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray

from forerun.models.model import load_model
from forerun.targets.protocol import Row, Target
from forerun.targets.reference import ReferenceTarget
from models.tiny_gguf import Tiny

# Odd numbers everywhere: no dimension is a multiple of what a matrix library likes.
CASES = {
    "llama": Tiny(context=300),
    "narrow": Tiny(vocab_size=301, width=7, layers=1, heads=1, kv_heads=1, head_dim=2, inner=3),
    "one kv head": Tiny(vocab_size=331, width=36, heads=3, kv_heads=1, head_dim=12, inner=50),
    "untied": Tiny(vocab_size=307, width=33, heads=3, kv_heads=3, head_dim=14, is_tied=False),
    "stretched": Tiny(layers=3, rope_factors=(1.0, 1.5, 4.0, 8.0), rope_base=5e5, context=300),
    "partial rotary": Tiny(head_dim=12, metadata={"llama.rope.dimension_count": 6}),
    "quantised": Tiny(width=64, inner=96, quantisation="Q4_1"),
    "qwen2": Tiny("qwen2", vocab_size=333, width=40, heads=5, kv_heads=5, inner=77),
    "qwen3": Tiny("qwen3", vocab_size=299, width=44, heads=6, kv_heads=2, head_dim=18, inner=101),
    "smollm3": Tiny("smollm3", vocab_size=311, width=32, layers=5, heads=4, head_dim=10, inner=33),
    "at the library's threshold": Tiny(
        vocab_size=1009, width=250, layers=1, heads=8, kv_heads=4, head_dim=32, inner=509
    ),
}


def make_target(case: str, folder: Path) -> ReferenceTarget:
    """A target of one of the cases."""
    return ReferenceTarget(load_model(CASES[case].write(folder / "tiny.gguf")))


def random_tokens(random: Random, vocab_size: int, count: int) -> list[int]:
    """Tokens without any pattern."""
    return [random.randrange(vocab_size) for _ in range(count)]


def random_tree(random: Random, vocab_size: int, count: int) -> list[tuple[int, int]]:
    """(token, parent) of each node; chains, bushes and all between, roots among them."""
    bush = random.random()
    nodes = []
    for index in range(count):
        parent = index - 1 if random.random() > bush else random.randrange(-1, index)
        nodes.append((random.randrange(vocab_size), parent))
    return nodes


def as_rows(sequence: int, length: int, nodes: Sequence[tuple[int, int]]) -> list[Row]:
    """A tree as rows of one sequence alone in its pass."""
    rows: list[Row] = []
    for token, parent in nodes:
        position = length if parent < 0 else rows[parent].position + 1
        rows.append(Row(sequence, token, position, parent))
    return rows


def mixed(random: Random, parts: Sequence[Sequence[Row]]) -> tuple[list[Row], list[list[int]]]:
    """Rows of several sequences shuffled into one pass, and where each one's rows went."""
    order = [part for part, rows in enumerate(parts) for _ in rows]
    random.shuffle(order)
    rows: list[Row] = []
    places: list[list[int]] = [[] for _ in parts]
    for part in order:
        row = parts[part][len(places[part])]
        parent = -1 if row.parent < 0 else places[part][row.parent]
        places[part].append(len(rows))
        rows.append(row._replace(parent=parent))
    return rows, places


def path_to(nodes: Sequence[tuple[int, int]], node: int) -> list[int]:
    """The nodes from a root to `node`."""
    path = [node]
    while nodes[path[-1]][1] >= 0:
        path.append(nodes[path[-1]][1])
    return path[::-1]


def alone(target: Target, prompt: Sequence[int], tokens: Sequence[int]) -> NDArray[np.float32]:
    """Logits after the last of `tokens`, every token after the prompt in a pass of its own."""
    sequence = target.open(prompt)
    for place, token in enumerate(tokens):
        logits = target.score([Row(sequence, token, len(prompt) + place, -1)]).logits[0]
        target.commit(sequence, [0])
    target.free(sequence)
    return logits


def check_mix(target: Target, random: Random, longest: int, largest: int) -> None:
    """Score trees of several sequences in one pass; some rows must equal their lonely selves."""
    prompts = [
        random_tokens(random, target.vocab_size, random.randrange(longest))
        for _ in range(random.randrange(1, 5))
    ]
    trees = [random_tree(random, target.vocab_size, random.randrange(1, largest)) for _ in prompts]
    names = [target.open(prompt) for prompt in prompts]
    parts = zip(names, prompts, trees, strict=True)
    rows, places = mixed(random, [as_rows(n, len(p), t) for n, p, t in parts])
    asked = random.sample(range(len(rows)), random.randrange(1, len(rows) + 1))
    logits = dict(zip(asked, target.score(rows, logits=asked).logits, strict=True))
    for prompt, nodes, place in zip(prompts, trees, places, strict=True):
        for node in random.sample(range(len(nodes)), min(2, len(nodes))):
            if place[node] in logits:
                tokens = [nodes[step][0] for step in path_to(nodes, node)]
                np.testing.assert_array_equal(logits[place[node]], alone(target, prompt, tokens))
    for name in names:
        target.free(name)


def check_splits(target: Target, random: Random, length: int) -> None:
    """However a text is split into passes, drafted, rolled back and forked, the end is the same."""
    tokens = random_tokens(random, target.vocab_size, length)
    expected = alone(target, [], tokens)
    sequence = target.open(tokens[: random.randrange(length - 1)])
    while (held := target.length(sequence)) < length - 1:
        step = random.randrange(1, min(length - held, 40))
        # A wrong first branch comes along and is left behind.
        nodes = [((tokens[held] + 1) % target.vocab_size, -1), (tokens[held], 0)]
        nodes += [(tokens[held + i], -1 if i == 0 else i + 1) for i in range(step)]
        target.score(as_rows(sequence, held, nodes), logits=())
        target.commit(sequence, range(2, step + 2))
        move = random.random()
        if move < 0.3:
            target.rollback(sequence, random.randrange(held, held + step + 1))
        elif move < 0.6:
            other = target.fork(sequence)
            target.score(as_rows(sequence, held + step, [(0, -1), (1, 0)]))
            target.commit(sequence, [0, 1])
            target.free(sequence)
            sequence = other
    last = as_rows(sequence, length - 1, [(tokens[-1], -1)])
    np.testing.assert_array_equal(target.score(last).logits[0], expected)
    target.free(sequence)
