from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from forerun.targets.native import NativeTarget
from forerun.train.evaluation import Measured, measure, measure_exactly
from forerun.train.examples import Examples
from forerun.train.head import Network, initial_weights
from forerun.train.network import Frozen
from forerun.train.shards import Shards
from forerun.train.vocabulary import choose_tokens, ids_of, token_weights
from train.made_text import captured, tiny_model

pytestmark = pytest.mark.judge


def test_by_enumeration_and_by_what_was_kept_it_is_the_same(tmp_path: Path) -> None:
    """Where a capture keeps every token's probability, nothing is missing from what it measures."""
    model = tiny_model(tmp_path, quantisation="Q4_1", inner=96)
    target = NativeTarget(model, threads=1)
    captured(model, tmp_path / "text", target, tokens=800, top=300)
    conversations = list(Shards(tmp_path / "text").conversations())[:20]
    tokens = choose_tokens(token_weights(conversations, 300), 150)
    network = Network(initial_weights(model, 2, 0), Frozen.of(model, tokens))
    examples = Examples(conversations, ids_of(tokens, 300))
    kept = measure(network, examples.task(range(len(conversations))), 3, bf16=False)
    exact = measure_exactly(network, target, conversations, tokens, 3)
    assert np.allclose(kept.alpha, exact.alpha, atol=1e-3)
    assert np.allclose(kept.agreement, exact.agreement, atol=1e-9)
    assert 0.1 < exact.alpha[0] < 0.6


def test_a_capture_that_keeps_less_measures_less(tmp_path: Path) -> None:
    """What was not kept counts as lost, so the quick measure is a lower bound."""
    model = tiny_model(tmp_path, quantisation="Q4_1", inner=96)
    target = NativeTarget(model, threads=1)
    captured(model, tmp_path / "text", target, tokens=800, top=20)
    conversations = list(Shards(tmp_path / "text").conversations())[:20]
    tokens = np.arange(300)
    network = Network(initial_weights(model, 2, 0), Frozen.of(model, tokens))
    examples = Examples(conversations, ids_of(tokens, 300))
    kept = measure(network, examples.task(range(len(conversations))), 2, bf16=False)
    exact = measure_exactly(network, target, conversations, tokens, 2)
    assert all(less < more for less, more in zip(kept.alpha, exact.alpha, strict=True))


def test_tokens_per_pass_are_those_of_a_chain() -> None:
    """Each guess counts only where all before it were accepted; one token is for free."""
    assert Measured([0.5, 0.4], [], []).tokens_per_pass == pytest.approx(1 + 0.5 + 0.2)
