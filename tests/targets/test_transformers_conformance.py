"""The conformance suite of targets on networks that transformers runs, laid out both ways."""

from __future__ import annotations

from typing import Any

import pytest

from forerun.targets.protocol import Target
from targets import test_conformance as suite
from targets.tiny_networks import tiny_network

pytestmark = pytest.mark.judge

CASES: dict[str, dict[str, Any]] = {
    "gemma3": {"attn_implementation": "eager", "sliding_window": 3},  # two kinds of layers
    "bloom": {},  # no positions: aligned, chains only
    "bart": {},  # behind an encoder, positions told to its tables
}
# Lengths that leave a rest in every vector of a processor, and the same bits nevertheless.
BITWISE: dict[str, Any] = {"hidden_size": 40, "head_dim": 10, "intermediate_size": 45}

# Every test of the suite, and the fixtures it stands on but the targets themselves.
for _name in dir(suite):
    if _name.startswith("test_") or _name in ("trees", "depths"):
        globals()[_name] = getattr(suite, _name)


@pytest.fixture(scope="module", params=[*sorted(CASES), "bitwise"])
def target(request: pytest.FixtureRequest) -> Target:
    """A small vocabulary, as the suite's own targets have."""
    from forerun.targets.transformers import TransformersTarget

    if request.param == "bitwise":
        network = tiny_network("llama", vocab_size=7, **BITWISE)
        return TransformersTarget(network, context=64, bitwise=True)
    network = tiny_network(request.param, vocab_size=7, **CASES[request.param])
    return TransformersTarget(network, context=64)
