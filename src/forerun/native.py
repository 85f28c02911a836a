"""The compiled module, if it is there, and the noise that it makes.

A tree of sources without the compiled module works: its numpy twins give the same bits, later.
Only what is asked for by name, such as the native target, needs it, and says so.
"""

from __future__ import annotations

import importlib
import threading
from functools import cache
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from forerun.core.noise import Noise
from forerun.core.warp import Scores
from forerun.errors import NativeModuleError, OptionError

__all__ = ["NativeNoise", "fast_noise", "is_there", "load", "use_instructions"]

_choosing = threading.Lock()
_chosen: list[str] = []  # one at most: a process computes with one instruction set


@cache
def _found() -> ModuleType | ImportError:
    """The module, or why it could not be imported; tried once, as a process can't gain it later."""
    try:
        return importlib.import_module("forerun._native")
    except ImportError as error:
        return error


def is_there() -> bool:
    """Whether the compiled module is installed and can be loaded."""
    return not isinstance(_found(), ImportError)


def load() -> ModuleType:
    """Return the module `forerun._native`.

    Raises:
        NativeModuleError: It was not compiled, or not for this Python or machine.
    """
    found = _found()
    if isinstance(found, ImportError):
        missing = isinstance(found, ModuleNotFoundError)
        raise NativeModuleError(
            "The compiled module forerun._native is not there."
            if missing
            else f"The compiled module forerun._native can't be loaded: {found}.",
            "Install a C++ compiler and Python's headers (on Debian: g++ and python3-dev), then "
            "`pip install --force-reinstall .` in Forerun's sources compiles it; the reference "
            "target does without.",
        ) from found
    return found


def use_instructions(name: str) -> None:
    """Compute with one instruction set in the whole process; every one gives the same bits.

    The first choice stands, because models that are loaded share it, and so may their passes
    that are under way. Where nobody chooses, it is the fastest that the machine has.

    Args:
        name: One of `load().instruction_sets()`.

    Raises:
        OptionError: The machine lacks it, or another one was chosen before.
        NativeModuleError: There is no compiled module.
    """
    module = load()
    known: list[str] = module.instruction_sets()
    asked = f"instruction_set = {name!r}"
    if name not in known:
        what = f"{asked}: this machine has {', '.join(known)}."
        raise OptionError(what, "Choose one of them, or 'auto'.")
    with _choosing:
        if _chosen and _chosen[0] != name:
            what = f"{asked}: this process already computes with {_chosen[0]!r}."
            raise OptionError(what, "Use that one, 'auto', or another process.")
        module.use_instruction_set(name)
        _chosen[:] = [name]


class NativeNoise(Noise):
    """The compiled twin of `Noise`: the same numbers and the same draws, bit for bit.

    Raises:
        NativeModuleError: There is no compiled module.
    """

    def __init__(self, seed: int, sample: int = 0) -> None:
        super().__init__(seed, sample)
        self._native = load()

    def draw(self, scores: Scores, position: int) -> int:
        """Return argmax(scores + noise) without making the noise of tokens that can't win."""
        row = np.ascontiguousarray(scores, np.float64)
        return int(self._native.draw_token(row, self.seed, self.sample, position))

    def _make(self, position: int, vocab_size: int) -> NDArray[np.float64]:
        place = self.seed, self.sample, position
        noise: NDArray[np.float64] = self._native.make_noise(*place, vocab_size)
        noise.setflags(write=False)
        return noise


def fast_noise(seed: int, sample: int = 0) -> Noise:
    """Return the noise of one text from the fastest twin that is there: which, no text can tell."""
    return NativeNoise(seed, sample) if is_there() else Noise(seed, sample)
