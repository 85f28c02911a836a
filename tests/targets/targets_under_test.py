"""The targets that pass the conformance suite: one line a target, made when its tests begin."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forerun.models.model import Model, load_model
from forerun.targets.native import NativeTarget
from forerun.targets.protocol import Target
from forerun.targets.reference import ReferenceTarget
from forerun.targets.toy import ToyTarget
from models.tiny_gguf import Tiny

__all__ = ["ELSEWHERE", "TARGETS"]


def _of_tiny(kind: Callable[[Model], Target], **changes: Any) -> Target:
    with tempfile.TemporaryDirectory() as folder:  # read at once; the file may go
        tiny = Tiny(layers=2, context=64, **changes)
        return kind(load_model(tiny.write(Path(folder) / "t.gguf")))


# Each has at least 5 tokens of vocabulary and 40 of context, and is small: the suite runs some
# thousand passes. Order 4, so that a wrong ancestor is seen several rows later.
TARGETS: dict[str, Callable[[], Target]] = {
    "toy": lambda: ToyTarget.random(6, 4, 5, context=64),
    "reference": lambda: _of_tiny(ReferenceTarget),
    "native": lambda: _of_tiny(NativeTarget, width=64, inner=96, quantisation="Q4_1"),
}

# Those whose suite needs a library that the package does not: the file that runs it for them.
ELSEWHERE: dict[str, str] = {"transformers": "test_transformers_conformance.py"}
