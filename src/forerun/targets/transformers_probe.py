"""What a transformers model can do, found out by trying: passes against its plain forward.

Whether a model honours masks and positions that are given to it, its code alone can tell. So before
anything is promised a few tokens are scored both ways: two texts of different lengths in one pass,
a tree under one of them, a branch kept, another dropped. If a row does not come out as the plain
forward of its text, which knows no cache, the next way is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.targets.protocol import Row, Target

__all__ = ["ALLOWED", "Plain", "disagreement"]

Array = NDArray[np.float32]

ALLOWED = {"float32": 1e-3, "float64": 1e-3, "float16": 0.02, "bfloat16": 0.1}
"""Largest mean difference of a right pass, in mean deviations of a row's logits. A wrong mask makes
some tenths, rounding a hundredth of what is allowed here."""


Plain = Callable[[Sequence[int], Sequence[int] | None], Array]
"""Returns the logits after a text, and an encoder's input if there is one."""


def disagreement(target: Target, plain: Plain) -> float:
    """Return how far a target's rows are from the plain forward of their texts.

    Args:
        target: Whose passes; trees are tried if it says that it scores them.
        plain: Returns the logits after a text, and an encoder's input if there is one.

    Returns:
        The mean difference over mean deviations, of the worst row; not a number if any is not.
    """
    size = target.vocab_size
    first, second = ([(7919 * i + 13 * n) % size for i in range(n)] for n in (7, 3))
    sources: list[list[int] | None] = [None, None]
    if encoder := target.capabilities.encoder:
        sources = [[(17 * i + 3) % encoder.vocab_size for i in range(n)] for n in (6, 4)]
    one, two = target.open(first, sources[0]), target.open(second, sources[1])
    tokens = [(31 * i + 5) % size for i in range(6)]
    parents = [-1, -1, 1, 0, 2] if target.capabilities.trees else [-1, 0, 1, 2, 3]
    kept = [1, 2, 4] if target.capabilities.trees else [0, 1, 2]
    try:
        rows = _rows(one, len(first), tokens, parents)
        rows.append(Row(two, tokens[5], len(second), -1))
        texts = [first + _along(rows, i) for i in range(5)] + [[*second, tokens[5]]]
        asked = [(text, sources[i > 4]) for i, text in enumerate(texts)]
        worst = _worst(target.score(rows).logits, asked, plain)
        target.commit(one, kept)
        target.commit(two, [5])
        target.rollback(one, len(first) + 2)
        held = first + [tokens[i] for i in kept[:2]]
        rows = [Row(two, tokens[0], len(second) + 1, -1), Row(one, tokens[3], len(held), -1)]
        texts = [[*second, tokens[5], tokens[0]], [*held, tokens[3]]]
        asked = list(zip(texts, reversed(sources), strict=True))
        return float(np.maximum(worst, _worst(target.score(rows).logits, asked, plain)))
    finally:
        target.free(one)
        target.free(two)


def _rows(sequence: int, length: int, tokens: Sequence[int], parents: Sequence[int]) -> list[Row]:
    rows: list[Row] = []
    for token, parent in zip(tokens, parents, strict=False):
        position = length if parent < 0 else rows[parent].position + 1
        rows.append(Row(sequence, token, position, parent))
    return rows


def _along(rows: Sequence[Row], index: int) -> list[int]:
    """Return the tokens from the committed end down to a row."""
    tokens: list[int] = []
    while index >= 0:
        tokens.insert(0, rows[index].token)
        index = rows[index].parent
    return tokens


def _worst(
    found: Array, asked: Sequence[tuple[Sequence[int], Sequence[int] | None]], plain: Plain
) -> float:
    worst = 0.0
    for row, (text, source) in zip(found, asked, strict=True):
        expected = plain(text, source)
        spread = float(np.abs(expected - expected.mean()).mean())
        difference = float(np.abs(row - expected).mean())
        worst = float(np.maximum(worst, difference / max(spread, 1e-30)))
    return worst
