"""The compiled module, if it is there, and core's twins that use it: the noise and the warp.

A tree of sources without the compiled module works: its numpy twins give the same bits, later.
Only what is asked for by name, such as the native target, needs it, and says so.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Collection, Sequence
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from forerun.config import Sampling
from forerun.core.likeliest import Likeliest, likeliest_of_rows
from forerun.core.noise import Noise
from forerun.core.warp import Chosen, Law, Place, Scores, State, Warp
from forerun.errors import NativeModuleError, OptionError
from forerun.fork_lock import fork_lock

if TYPE_CHECKING:
    from forerun import _native

__all__ = [
    "NativeNoise",
    "NativeWarp",
    "fast_likeliest",
    "fast_noise",
    "fast_warp",
    "is_there",
    "load",
    "use_instructions",
]

_FLOATS = np.dtype(np.float32)

_choosing = fork_lock(2)
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

    def at(self, position: int, tokens: Sequence[int]) -> list[float]:
        """Return the noise of some tokens at `position`."""
        noise: list[float] = self._native.noise_at(self.seed, self.sample, position, tokens)
        return noise

    def among(self, position: int, tokens: NDArray[np.uint32]) -> NDArray[np.float64]:
        """Return the noise of many tokens at `position`."""
        place = self.seed, self.sample, position
        noise: NDArray[np.float64] = self._native.noise_among(*place, tokens)
        return noise

    def ranked(
        self,
        position: int,
        tokens: NDArray[np.uint32],
        logits: NDArray[np.float32],
        temperature: float,
        most: int,
    ) -> list[tuple[int, float]]:
        """Return the best tokens without making the noise of those that can't be among them."""
        place = self.seed, self.sample, position
        ranked: list[tuple[int, float]] = self._native.rank_tokens(
            *place, np.ascontiguousarray(logits), tokens, temperature, most
        )
        return ranked

    def _make(self, position: int, vocab_size: int) -> NDArray[np.float64]:
        place = self.seed, self.sample, position
        noise: NDArray[np.float64] = self._native.make_noise(*place, vocab_size)
        noise.setflags(write=False)
        return noise


def fast_noise(seed: int, sample: int = 0) -> Noise:
    """Return the noise of one text from the fastest twin that is there: which, no text can tell."""
    return NativeNoise(seed, sample) if is_there() else Noise(seed, sample)


class NativeWarp(Warp):
    """The compiled twin of `Warp`: the same scores, tokens and log-probabilities, bit for bit.

    Rows that hold no law are left to the slow twin, which says what is wrong with them; so are rows
    of other than float32.

    Args:
        sampling, vocab_size, stop_ids, min_tokens: As of `Warp`.
        threads: Most that may work on several rows at once.

    Raises:
        OptionError: As `Warp`.
        NativeModuleError: There is no compiled module.
    """

    def __init__(
        self,
        sampling: Sampling,
        vocab_size: int,
        stop_ids: Collection[int] = (),
        min_tokens: int = 0,
        threads: int = 1,
    ) -> None:
        super().__init__(sampling, vocab_size, stop_ids, min_tokens)
        self._threads = threads
        self._native = load()
        self._warp: _native.Warp = self._native.Warp(
            vocab_size=vocab_size,
            temperature=sampling.temperature,
            top_k=min(sampling.top_k, vocab_size),
            top_p=sampling.top_p,
            least_score=math.log(sampling.min_p) if sampling.min_p > 0 else -math.inf,
            penalties=(
                sampling.repetition_penalty,
                sampling.presence_penalty,
                sampling.frequency_penalty,
            ),
            shift=self._shift if self._shift.any() else None,
            stops=self._stops.tolist(),
        )
        # Every state of a text shares its prompt's set: the ids in order are made once.
        self._prompt: frozenset[int] = frozenset()
        self._prompt_ids = np.empty(0, np.uint32)

    def tokens(
        self, logits: NDArray[np.float32], places: Sequence[Place], noise: Noise
    ) -> list[int | None]:
        """Return the target's tokens without warping, or making noise for, what can't win."""
        return self._choose(logits, places, noise, normalises=False).tokens

    def choose(self, logits: NDArray[np.float32], places: Sequence[Place], noise: Noise) -> Chosen:
        """Return what `tokens` does, and their rows' normalisers."""
        return self._choose(logits, places, noise, normalises=True)

    def _choose(
        self,
        logits: NDArray[np.float32],
        places: Sequence[Place],
        noise: Noise,
        *,
        normalises: bool,
    ) -> Chosen:
        # Numbers from elsewhere, as in the audit, are the slow twin's.
        if type(noise) is not NativeNoise or logits.dtype != _FLOATS or not places:
            return Chosen([None] * len(places), [])
        prompt, least = self._prompt_of(places[0].state), self.min_tokens
        asked = [
            (row, state.counts, state.generated < least, position, -1 if guess is None else guess)
            for row, state, position, guess in places
        ]
        rows = np.ascontiguousarray(logits)
        return Chosen(
            *self._warp.choose(
                rows, asked, prompt, noise.seed, noise.sample, normalises, self._threads
            )
        )

    def scores(self, logits: NDArray[np.float32], state: State) -> Scores:
        """Return the log-weights of the law of the next token."""
        scores = None
        if logits.dtype == _FLOATS:
            scores = self._warp.scores(np.ascontiguousarray(logits), *self._text(state))
        return super().scores(logits, state) if scores is None else scores

    def law(self, logits: NDArray[np.float32], state: State) -> Law:
        """Return p, float64 [vocabulary]."""
        law: Law = self._native.softmax(self.scores(logits, state))
        return law

    def log_normalisers(
        self, logits: NDArray[np.float32], rows: Sequence[int]
    ) -> list[tuple[float, float]]:
        """Return what turns some rows of logits into the model's own log-probabilities."""
        if logits.dtype != _FLOATS:
            return super().log_normalisers(logits, rows)
        found: list[tuple[float, float]] = self._native.log_normalisers(
            np.ascontiguousarray(logits), rows, self._threads
        )
        return found

    def _text(self, state: State) -> tuple[NDArray[np.uint32], dict[int, int], bool]:
        """Return what the compiled warp must know of the text: nothing that can't matter."""
        return self._prompt_of(state), state.counts, state.generated < self.min_tokens

    def _prompt_of(self, state: State) -> NDArray[np.uint32]:
        if state.prompt is not self._prompt:
            self._prompt, self._prompt_ids = state.prompt, np.array(sorted(state.prompt), np.uint32)
        return self._prompt_ids


def fast_warp(
    sampling: Sampling,
    vocab_size: int,
    stop_ids: Collection[int] = (),
    min_tokens: int = 0,
    threads: int = 1,
) -> Warp:
    """Return the warp of one request from the fastest twin: which, no text can tell."""
    if not is_there():
        return Warp(sampling, vocab_size, stop_ids, min_tokens)
    return NativeWarp(sampling, vocab_size, stop_ids, min_tokens, threads)


def fast_likeliest(logits: NDArray[np.float32], most: int, threads: int = 1) -> Likeliest:
    """Return the likeliest tokens of rows from the fastest twin: which, no caller can tell."""
    if not is_there():
        return likeliest_of_rows(logits, most)
    return Likeliest(*load().likeliest(np.ascontiguousarray(logits), most, threads))
