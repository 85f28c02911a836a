"""llama.cpp in the race, on the same GGUF file: modes `lookup` and `q4_0`.

Plain, it is llama-cpp-python's low-level interface in the shortest loop, which is faster than its
own `generate`. `lookup` adds its `LlamaPromptLookupDecoding` at the two tokens that its README
recommends on a CPU, verified as its `generate` does. `q4_0` is the type that is fastest here: a
file that was given, or one that llama.cpp makes of the model's own.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from forerun.bench.llama_engine import LlamaEngine, library
from forerun.bench.race.child import Clock
from forerun.bench.race.peers import PeerKit
from forerun.errors import StartError

__all__ = ["LlamaCpp", "requantised"]

_LOOKUP_TOKENS = 2
_NO_DRAFT: list[int] = []


class LlamaCpp:
    """Writes with llama.cpp.

    Args:
        kit: The file, threads and context.
        modes: `lookup`, `q4_0`, both or neither.

    Raises:
        StartError: It is not installed, or can't open the file.
    """

    def __init__(self, kit: PeerKit, modes: frozenset[str]) -> None:
        path = kit.path
        if "q4_0" in modes:
            path = kit.q4_0 or requantised(kit.path, kit.cache, kit.threads)
        self._engine = engine = LlamaEngine(path, kit.threads)
        room = kit.context + _LOOKUP_TOKENS + 1
        self._context = engine.open_context(room)
        engine.make_batch(room)
        self._about = {"file": path, "same_file": path == kit.path, "threads": kit.threads}
        self._lookup: Callable[[Any], Any] | None = None
        if "lookup" in modes:
            module = importlib.import_module("llama_cpp.llama_speculative")
            self._lookup = module.LlamaPromptLookupDecoding(num_pred_tokens=_LOOKUP_TOKENS)
            self._about["num_pred_tokens"] = _LOOKUP_TOKENS

    def describe(self) -> dict[str, Any]:
        """Return its file, settings and version."""
        return {**self._about, **self._engine.describe()}

    def write(
        self, tokens: list[int], max_tokens: int, temperature: float, seed: int
    ) -> dict[str, Any]:
        """Write one text, with its own draws at a temperature above 0."""
        clock, engine = Clock(), self._engine
        text, drafts, passes = list(tokens), [], 0
        chosen = self._chooser(temperature, seed)
        engine.forget(self._context, 0)
        draft, rows, start = _NO_DRAFT, tokens, 0
        while len(clock.token_ids) < max_tokens:
            engine.decode(self._context, rows, start, logits=passes > 0)
            passes += 1
            root = len(rows) - 1 - len(draft)
            accepted = 0
            for row in range(root, len(rows)):
                token = chosen(row)
                text.append(token)
                clock.note(token)
                held = row < len(rows) - 1 and token == draft[accepted]
                if self._ends(token) or len(clock.token_ids) == max_tokens or not held:
                    break
                accepted += 1
            if draft:
                drafts.append([len(draft), accepted])
                engine.forget(self._context, len(text) - 1)
            if self._ends(text[-1]):
                break
            draft = self._draft(text)[: max_tokens - len(clock.token_ids) - 1]
            rows, start = [text[-1], *draft], len(text) - 1
        return clock.answer(passes=passes, drafts=drafts)

    def _draft(self, text: list[int]) -> list[int]:
        if self._lookup is None:
            return _NO_DRAFT
        found: list[int] = self._lookup(np.array(text, np.intc)).tolist()
        return found

    def _ends(self, token: int) -> bool:
        return bool(self._engine.lib.llama_vocab_is_eog(self._engine.vocab, token))

    def _chooser(self, temperature: float, seed: int) -> Callable[[int], int]:
        """What chooses the token of a row: the likeliest, or llama.cpp's own draw."""
        engine, context = self._engine, self._context
        if temperature == 0:
            return lambda row: int(engine.logits_of(context, row).argmax())
        lib = engine.lib
        chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_temp(temperature))
        lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_dist(seed))
        return _Draw(lib, chain, context)


class _Draw:
    """A chain of llama.cpp's samplers, given back when nobody draws from it any more."""

    def __init__(self, lib: Any, chain: Any, context: Any) -> None:
        self._lib, self._chain, self._context = lib, chain, context

    def __call__(self, row: int) -> int:
        return int(self._lib.llama_sampler_sample(self._chain, self._context, row))

    def __del__(self) -> None:
        self._lib.llama_sampler_free(self._chain)


def requantised(path: str, cache: str, threads: int) -> str:
    """Return a Q4_0 file of a model, made by llama.cpp and kept.

    Raises:
        StartError: llama.cpp is not installed, or refuses the file, or there is no cache.
    """
    if not cache:
        raise StartError("There is no cache for a Q4_0 file.", "Set FORERUN_CACHE to a folder.")
    lib = library()
    about = os.stat(path)
    address = f"{os.path.realpath(path)} {about.st_size} {about.st_mtime_ns}"
    made = Path(cache) / f"{hashlib.sha256(address.encode()).hexdigest()[:16]}-Q4_0.gguf"
    if made.exists():
        return str(made)
    made.parent.mkdir(parents=True, exist_ok=True)
    parameters = lib.llama_model_quantize_default_params()
    parameters.ftype = lib.LLAMA_FTYPE_MOSTLY_Q4_0
    parameters.allow_requantize = True
    parameters.nthread = threads
    part = made.with_suffix(f".{os.getpid()}.part")
    code = lib.llama_model_quantize(path.encode(), str(part).encode(), ctypes.byref(parameters))
    if code != 0:
        part.unlink(missing_ok=True)
        raise StartError(f"llama.cpp can't make a Q4_0 file of {path}: code {code}.")
    part.replace(made)
    return str(made)
