"""Forerun: exact speculative decoding. The same text, in fewer passes of the model.

Example:
    lm = forerun.load("smollm2")                       # a name, or a GGUF file
    result = lm.generate("Write a haiku about the sea.", max_tokens=40)
    print(result.text, result.stats.tokens_per_pass)
    for token in lm.stream("And one about the moon.", temperature=0.8, seed=7):
        print(token.text, end="", flush=True)

`load` gives a `LanguageModel`: `generate`, `generate_batch`, `stream`, and `beam_search`. What they
take is `Generation`, what `load` takes is `Loading`; `Result`, `TokenEvent` and `BeamResult` are
what comes back. All that goes wrong on purpose is a `ForerunError`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forerun.api import LanguageModel, Stream, load
    from forerun.config import Generation, Loading
    from forerun.errors import ForerunError
    from forerun.events import BeamResult, Result, RoundEvent, Stats, TokenEvent

__all__ = [
    "BeamResult",
    "ForerunError",
    "Generation",
    "LanguageModel",
    "Loading",
    "Result",
    "RoundEvent",
    "Stats",
    "Stream",
    "TokenEvent",
    "__version__",
    "load",
]

__version__ = "0.1.0"

_HOMES = {
    "forerun.api": ("LanguageModel", "Stream", "load"),
    "forerun.config": ("Generation", "Loading"),
    "forerun.errors": ("ForerunError",),
    "forerun.events": ("BeamResult", "Result", "RoundEvent", "Stats", "TokenEvent"),
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for, so that `forerun --help` is quick."""
    if name == "hf":  # needs torch and transformers
        return importlib.import_module("forerun.hf")
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    hint = ""
    if name in ("generate", "generate_batch", "stream", "beam_search"):
        hint = f"; a loaded model has: forerun.load(...).{name}(...)"
    raise AttributeError(f"module 'forerun' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return list(__all__)
