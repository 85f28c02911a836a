"""Copies of the user's model that run instead of it: what becomes of the model becomes of them."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from forerun.targets.protocol import Row
from targets.tiny_networks import tiny_network

pytestmark = pytest.mark.judge


def scored(target: Any) -> list[Any]:
    """Logits after two siblings and, of the first layer alone, after one of them."""
    has_source = target.capabilities.encoder is not None
    sequence = target.open([1, 2, 3], source=[4, 5, 6] if has_source else None)
    rows = [Row(sequence, 4, 3, -1), Row(sequence, 5, 3, -1)]
    found = [target.score(rows).logits, target.score(rows[:1], until=1).logits]
    target.free(sequence)
    return found


def decoder_layers(network: Any, family: str) -> Any:
    return {
        "llama": lambda: network.model.layers,
        "t5": lambda: network.decoder.block,
        "bart": lambda: network.model.decoder.layers,
    }[family]()


@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize("family", ["llama", "t5", "bart"])
def test_what_is_replaced_after_loading_counts(family: str, turns: bool) -> None:
    """A layer, a head and a weight that are others now: as if the model were opened anew."""
    import torch

    from forerun.targets.transformers import TransformersTarget

    network = tiny_network(family)
    target = TransformersTarget(network)
    if turns:
        target._network.turn()

    def layer() -> None:
        layers = decoder_layers(network, family)
        layers[0] = copy.deepcopy(layers[0])
        with torch.no_grad():
            for weight in layers[0].parameters():
                weight.mul_(1.5)

    def head() -> None:
        network.lm_head = copy.deepcopy(network.lm_head)
        network.lm_head.weight = torch.nn.Parameter(2 * network.lm_head.weight)

    def weight() -> None:
        network.lm_head.weight = torch.nn.Parameter(network.lm_head.weight + 1)

    before = scored(target)
    for replace in (layer, head, weight):
        replace()
        other = TransformersTarget(network)
        if turns:
            other._network.turn()
        found, expected = scored(target), scored(other)
        for mine, new, old in zip(found, expected, before, strict=True):
            np.testing.assert_array_equal(mine, new)
            assert not np.array_equal(mine, old)
        before = found


@pytest.mark.parametrize("family", ["llama", "t5", "bart"])
def test_hooks_of_later_run_in_copies(family: str) -> None:
    """Whoever registers a hook with a layer after loading sees it called, and what it changes."""
    from forerun.targets.transformers import TransformersTarget

    network = tiny_network(family)
    target = TransformersTarget(network)
    target._network.turn()
    before = scored(target)
    called: list[Any] = []

    def hook(module: Any, given: Any, output: Any) -> Any:
        called.append(module)
        return 2 * output

    handle = network.lm_head.register_forward_hook(hook)
    for mine, old in zip(scored(target), before, strict=True):
        np.testing.assert_allclose(mine, 2 * old, rtol=1e-5, atol=1e-6)
    assert called
    handle.remove()
    np.testing.assert_array_equal(scored(target)[0], before[0])
