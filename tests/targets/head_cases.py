"""Heads for tiny models of odd shapes, what they read, and the slow way to score a row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forerun.models.head_file import HeadFile
from forerun.models.model import Model, load_model
from forerun.targets.head import Head
from forerun.targets.protocol import Row
from models.random_head import random_head
from models.tiny_gguf import Tiny
from targets.row_cases import CASES, random_tree

Array = NDArray[np.float32]


class HeadCase(NamedTuple):
    """A head to be made, and the model that it is for."""

    tiny: Tiny
    kind: str = "Q8_0"
    size: int = 48
    layers: tuple[int, ...] | None = None
    has_own_head: bool = False

    def make(self, folder: Path) -> tuple[HeadFile, Model]:
        """Write both."""
        model = load_model(self.tiny.write(folder / "tiny.gguf"))
        wanted = {"size": self.size, "kind": self.kind, "has_own_head": self.has_own_head}
        head = random_head(folder / "head.gguf", model, layers=self.layers, **wanted)
        return head, model


HEAD_CASES = {
    **{name: HeadCase(tiny, kind="F16", size=37) for name, tiny in CASES.items()},
    "Q8_0": HeadCase(Tiny(width=64, inner=96, quantisation="Q4_1"), size=64),
    "Q4_0": HeadCase(Tiny(width=64, inner=96, quantisation="Q8_0"), kind="Q4_0", size=50),
    "F32": HeadCase(Tiny(width=64, inner=96, quantisation="Q4_0"), kind="F32", size=1),
    "own head": HeadCase(
        Tiny(width=64, inner=96, quantisation="Q4_0", is_tied=False), size=77, has_own_head=True
    ),
    "one feature": HeadCase(Tiny(width=96, inner=64, layers=3), layers=(3,)),
    "wide heads": HeadCase(Tiny(width=64, heads=4, head_dim=64, inner=96), layers=(0, 1, 2)),
}


class Step(NamedTuple):
    """Rows of one sequence alone in a pass, and what they read: the first have features."""

    rows: list[Row]
    features: Array
    given: Array


def random_step(
    random: Random, head: Head, sequence: int, count: int, with_features: int | None = None
) -> Step:
    """A random tree on the sequence's end; by default all its rows have features."""
    nodes = random_tree(random, 290, count)
    rows: list[Row] = []
    for token, parent in nodes:
        above = head.length(sequence) if parent < 0 else rows[parent].position
        rows.append(Row(sequence, token, above + 1, parent))
    first = count if with_features is None else min(with_features, count)
    numbers = np.random.default_rng(random.getrandbits(32))
    columns = len(head.layers) * head.width
    features = numbers.standard_normal((first, columns), dtype=np.float32)
    return Step(rows, features, numbers.standard_normal((count - first, head.width), np.float32))


def together(steps: Sequence[Step]) -> tuple[Step, list[list[int]]]:
    """Steps of several sequences in one pass, and where each one's rows went."""
    places: list[list[int]] = [[0] * len(step.rows) for step in steps]
    rows: list[Row] = []
    for has_features in (True, False):
        for step, own in zip(steps, places, strict=True):
            count = len(step.features)
            for i in range(count) if has_features else range(count, len(step.rows)):
                own[i] = len(rows)
                parent = step.rows[i].parent
                rows.append(step.rows[i]._replace(parent=-1 if parent < 0 else own[parent]))
    features = np.concatenate([step.features for step in steps])
    return Step(rows, features, np.concatenate([step.given for step in steps])), places


def alone(head: Head, step: Step, row: int) -> tuple[Array, Array]:
    """Logits and output of a row whose ancestors are scored before it, one by one."""
    sequence = head.fork(step.rows[row].sequence)
    path, at = [row], step.rows[row].parent
    while at >= 0:
        path.insert(0, at)
        at = step.rows[at].parent
    for index in path:
        count = len(step.features)
        of_index = (
            {"features": step.features[index : index + 1]}
            if index < count
            else {"given": step.given[index - count : index - count + 1]}
        )
        scores = head.score([step.rows[index]._replace(sequence=sequence, parent=-1)], **of_index)
        head.commit(sequence, [0])
    head.free(sequence)
    return scores.logits[0], scores.outputs[0]


def read(head: Head, sequence: int, random: Random, count: int) -> None:
    """Score and commit a chain of so many rows with features."""
    step = random_step(random, head, sequence, count)
    rows = [
        row._replace(position=head.length(sequence) + 1 + i, parent=i - 1)
        for i, row in enumerate(step.rows)
    ]
    head.score(rows, features=step.features, logits=())
    head.commit(sequence, range(count))


def check_rows_are_exact(head: Head, random: Random) -> None:
    """Trees of several sequences in one pass: each row has the bits that it has all alone."""
    sequences = [head.open() for _ in range(3)]
    for sequence, count in zip(sequences, (0, 5, 33), strict=True):
        if count:
            read(head, sequence, random, count)
    steps = [random_step(random, head, name, 8, random.randrange(9)) for name in sequences]
    step, places = together(steps)
    scores = head.score(step.rows, features=step.features, given=step.given)
    for own, where in zip(steps, places, strict=True):
        for row, place in enumerate(where):
            logits, output = alone(head, own, row)
            np.testing.assert_array_equal(scores.logits[place], logits)
            np.testing.assert_array_equal(scores.outputs[place], output)
