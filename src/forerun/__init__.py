"""Forerun: exact speculative decoding. The same text, several times sooner."""

from __future__ import annotations

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
