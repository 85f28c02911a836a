"""The slow twin of warp and plain decoding against laws computed by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from forerun.audit.twin import law_after, text_law
from forerun.audit.warps import warp_problems
from forerun.config import Generation

LOG2, LOG3 = math.log(2), math.log(3)


def _law(logits: Sequence[float], output: Sequence[int] = (), **options: object) -> list[float]:
    options = {"temperature": 1.0, **options}
    return law_after(logits, (2,), output, Generation.make(**options), stop_ids=(0,))


def test_softmax() -> None:
    """Log-weights 0, log 2, log 3 are shares of 6."""
    assert _law([0, LOG2, LOG3]) == pytest.approx([1 / 6, 2 / 6, 3 / 6])


def test_temperature_divides() -> None:
    """At temperature one half, weights are squared."""
    assert _law([0, LOG2, LOG3], temperature=0.5) == pytest.approx([1 / 14, 4 / 14, 9 / 14])


def test_temperature_zero_takes_the_lowest_of_equals() -> None:
    """Ties go to the lowest id."""
    assert _law([0, 2, 2], temperature=0) == [0, 1, 0]


def test_filters_keep_the_lowest_of_equals() -> None:
    """Top-k and top-p meet ties from below."""
    assert _law([1, 1, 1], top_k=2) == pytest.approx([0.5, 0.5, 0])
    assert _law([1, 1, 1], top_p=0.3) == [1, 0, 0]
    assert _law([0, LOG2, LOG3], top_p=0.8) == pytest.approx([0, 0.4, 0.6])
    assert _law([0, LOG2, LOG3], min_p=0.5) == pytest.approx([0, 0.4, 0.6])


def test_top_p_looks_at_what_top_k_left() -> None:
    """Shares 3/5 and 2/5 are left by top-k; the first reaches a half alone."""
    assert _law([0, LOG2, LOG3], top_k=2, top_p=0.55) == [0, 0, 1]


def test_penalties() -> None:
    """Repetition sees the prompt, presence and frequency only the output."""
    assert _law([1, 1, 2], repetition_penalty=2) == pytest.approx([1 / 3] * 3)
    assert _law([0, 0, 0], output=(1, 1), frequency_penalty=LOG2) == pytest.approx(
        [4 / 9, 1 / 9, 4 / 9]
    )
    assert _law([0, 0, 0], output=(1, 1), presence_penalty=LOG2) == pytest.approx([0.4, 0.2, 0.4])


def test_masks() -> None:
    """Bans, allowances and the least length take tokens out."""
    assert _law([0, 0, 0], banned_tokens=(1,)) == [0.5, 0, 0.5]
    assert _law([0, 0, 0], allowed_tokens=(1,)) == [0, 1, 0]
    assert _law([0, 0, 0], min_tokens=2, output=(1,)) == [0, 0.5, 0.5]
    assert _law([0, 0, 0], min_tokens=2, output=(1, 1)) == pytest.approx([1 / 3] * 3)


def test_texts_end() -> None:
    """Token 0 ends a text, max_tokens every other one."""
    options = Generation.make(temperature=1, max_tokens=2)
    law = text_law(lambda _: [0.0, 0.0], (1,), options, eos_ids=(0,))
    assert law == {(0,): 0.5, (1, 0): 0.25, (1, 1): 0.25}
    options = options.replace(ignore_eos=True)
    assert len(text_law(lambda _: [0.0, 0.0], (1,), options, eos_ids=(0,))) == 4


def test_production_warps_alike() -> None:
    """The production warp gives the twin's laws, in every setting and with ties."""
    assert warp_problems() == []
