"""Forerun: exact speculative decoding. The same text, several times sooner."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forerun.api import LanguageModel, Stream, load
    from forerun.config import Generation, Loading
    from forerun.errors import ForerunError
    from forerun.events import Result, RoundEvent, Stats, TokenEvent

__all__ = [
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
    "forerun.events": ("Result", "RoundEvent", "Stats", "TokenEvent"),
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for, so that `forerun --help` is quick."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'forerun' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
