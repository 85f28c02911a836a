from __future__ import annotations

import numpy as np

from forerun.train.loops import LoopWatch


def first_loop(tokens: list[int]) -> int | None:
    """After how many tokens the watch sees a loop."""
    watch = LoopWatch()
    return next((i + 1 for i, token in enumerate(tokens) if watch.loops(token)), None)


def share(tokens: list[int]) -> float:
    """The share of 8-grams that stood there before, counted plainly."""
    spans = [tuple(tokens[i : i + 8]) for i in range(len(tokens) - 7)]
    return sum(span in spans[:i] for i, span in enumerate(spans)) / len(spans)


def test_a_loop_is_seen_as_soon_as_thirty_percent_are_repeated() -> None:
    """And with 32 spans at least, whatever the period."""
    for period in (1, 3, 11, 40, 90):
        tokens = list(range(period)) * 60
        seen = first_loop(tokens)
        assert seen is not None
        assert share(tokens[:seen]) > 0.3
        assert seen == 39 or share(tokens[: seen - 1]) <= 0.3


def test_text_without_loops_goes_on() -> None:
    """Also where single tokens repeat a lot."""
    assert first_loop(np.random.default_rng(0).integers(3, size=3000).tolist()) is None
