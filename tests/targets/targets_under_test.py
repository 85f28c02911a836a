"""The targets that pass the conformance suite: one line a target, made when its tests begin."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from forerun.models.model import load_model
from forerun.targets.protocol import Target
from forerun.targets.reference import ReferenceTarget
from forerun.targets.toy import ToyTarget
from models.tiny_gguf import Tiny

__all__ = ["TARGETS"]


def _reference() -> Target:
    with tempfile.TemporaryDirectory() as folder:  # read at once; the file may go
        return ReferenceTarget(
            load_model(Tiny(layers=2, context=64).write(Path(folder) / "t.gguf"))
        )


# Each has at least 5 tokens of vocabulary and 40 of context, and is small: the suite runs some
# thousand passes. Order 4, so that a wrong ancestor is seen several rows later.
TARGETS: dict[str, Callable[[], Target]] = {
    "toy": lambda: ToyTarget.random(6, 4, 5, context=64),
    "reference": _reference,
}
