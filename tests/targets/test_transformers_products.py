"""Products turned round: the same numbers, on the user's own weights, where they are faster."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from forerun.targets.protocol import Row
from targets.tiny_networks import tiny_network

pytestmark = pytest.mark.judge


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shape", [(1,), (1, 1), (3,), (2, 4), (1, 8), (9,), (0,)])
def test_a_product_is_what_torch_makes_of_it(shape: tuple[int, ...], biased: bool) -> None:
    """With and without a bias, of one row and of several, of more than are turned, and of none."""
    import torch

    from forerun.targets.transformers_products import product

    torch.manual_seed(0)
    rows, weight, bias = torch.randn(*shape, 24), torch.randn(40, 24), torch.randn(40)
    found = product(rows, weight, bias if biased else None)
    expected = torch.nn.functional.linear(rows, weight, bias if biased else None)
    assert found.shape == expected.shape
    assert found.is_contiguous()
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def scored(target: Any) -> Any:
    sequence = target.open([1, 2, 3])
    logits = target.score([Row(sequence, 4, 3, -1), Row(sequence, 5, 3, -1)]).logits
    early = target.score([Row(sequence, 4, 3, -1)], until=1).logits
    target.free(sequence)
    return logits, early


def test_a_turned_network_is_the_users_own() -> None:
    """Weights and hooks that change later count, and so do modules that are replaced."""
    import torch

    from forerun.targets.transformers import TransformersTarget
    from forerun.targets.transformers_products import turned

    network = tiny_network("qwen2")
    before = {name: type(module) for name, module in network.named_modules()}
    target = TransformersTarget(network)
    plain = scored(target)
    target._network.turn()
    for found, expected in zip(scored(target), plain, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    assert {name: type(module) for name, module in network.named_modules()} == before
    assert type(turned(network).lm_head) is not type(network.lm_head)
    with torch.no_grad():
        network.model.norm.weight.mul_(2.0)
        network.lm_head.weight = torch.nn.Parameter(network.lm_head.weight * 2)
    np.testing.assert_allclose(scored(target)[0], 4 * plain[0], atol=1e-4)
    network.lm_head = torch.nn.Linear(32, 61, bias=False)  # one of others' own making
    with torch.no_grad():
        network.lm_head.weight.zero_()
    assert not np.any(scored(target)[0])
    assert not np.any(scored(target)[1])


def test_only_what_takes_long_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small network stays as it is; of a large one the clock decides."""
    from forerun.targets import transformers_products as products

    network = tiny_network("llama")
    assert not products.is_faster_turned(network)
    monkeypatch.setattr(products, "_WORTH_TIMING", 1)
    for pace, expected in ((0.5, True), (0.99, False), (2.0, False)):
        times = {"now": 0.0}

        def turned(*_: Any, times: dict[str, float] = times, pace: float = pace) -> None:
            times["now"] += pace

        def plain(*_: Any, times: dict[str, float] = times) -> None:
            times["now"] += 1.0

        monkeypatch.setattr(products, "product", turned)
        monkeypatch.setattr("torch.nn.functional.linear", plain)
        assert products.is_faster_turned(network, lambda times=times: times["now"]) == expected


def test_a_class_of_its_own_keeps_its_product() -> None:
    """What adds to a linear layer is not turned, nor a layer whose forward was replaced."""
    import torch

    from forerun.targets.transformers_products import turned

    class Own(torch.nn.Linear):
        pass

    changed = torch.nn.Linear(2, 2)
    changed.forward = lambda rows: rows  # type: ignore[method-assign]
    copy = turned(torch.nn.Sequential(Own(2, 2), changed, torch.nn.Linear(2, 2)))
    assert [type(each) for each in copy][:2] == [Own, torch.nn.Linear]
    assert type(copy[2]) is not torch.nn.Linear


def test_modules_that_become_others_are_run_as_they_are() -> None:
    """A weight that is computed from now on, a forward that is replaced, a child that is added."""
    import torch
    from torch.nn.utils import parametrize

    from forerun.targets.transformers_copies import Structure
    from forerun.targets.transformers_products import turned

    class Twice(torch.nn.Module):
        def forward(self, weight: torch.Tensor) -> torch.Tensor:
            return 2 * weight

    def computed(model: Any) -> None:
        parametrize.register_parametrization(model[0], "weight", Twice())

    def replaced(model: Any) -> None:
        model[0].forward = lambda rows: 0 * rows

    def added(model: Any) -> None:
        model.append(torch.nn.ReLU())

    for change in (computed, replaced, added):
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
        structure = Structure(model)
        assert structure.is_current
        change(model)
        assert not structure.is_current
        rows = torch.ones(2, 4)
        torch.testing.assert_close(turned(model)(rows), model(rows))


def test_a_weight_that_is_no_plain_tensor_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a quantised one, which knows linear layers and no other product."""
    import torch

    from forerun.targets import transformers_products as products

    class Packed(torch.Tensor):
        @classmethod
        def __torch_function__(
            cls, asked: Any, kinds: Any, given: Any = (), named: Any = None
        ) -> Any:
            if asked is torch.mm:
                raise NotImplementedError
            return super().__torch_function__(asked, kinds, given, named or {})

    monkeypatch.setattr(products, "_WORTH_TIMING", 1)
    layer = torch.nn.Linear(4, 4)
    before = products.turned(torch.nn.Sequential(layer))
    layer.weight = torch.nn.Parameter(torch.ones(4, 4).as_subclass(Packed), requires_grad=False)
    model = torch.nn.Sequential(layer)
    assert not products.is_faster_turned(model)
    turned = products.turned(model)
    for each in (before, turned):
        assert each(torch.ones(2, 4)).shape == (2, 4)
