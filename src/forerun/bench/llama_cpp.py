"""llama.cpp as a peer of `bench pass`, in this process, on the same file and threads.

A pass is one `llama_decode` with logits of every row; filling the batch is not timed.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.bench.llama_engine import LlamaEngine
from forerun.bench.sides import Tokens

__all__ = ["LlamaCpp"]


class LlamaCpp:
    """A model in llama.cpp with the context in its cache.

    Args:
        path: A GGUF file.
        threads: Threads of its passes.
        context: Tokens each pass attends to.
        most_rows: The longest pass, or text written, behind the context.
        prefill: The longest prompt to be timed.

    Raises:
        StartError: llama-cpp-python is not installed, or it can't open the file.
    """

    name = "llama.cpp"

    def __init__(
        self, path: str, threads: int, context: Tokens, most_rows: int, prefill: int
    ) -> None:
        self._engine = engine = LlamaEngine(path, threads)
        self._length = len(context)
        self._pass = engine.open_context(len(context) + most_rows + 1)
        self._prompt = engine.open_context(max(prefill, 1))
        engine.make_batch(max(len(context), most_rows, prefill, 1))
        engine.decode(self._pass, context, 0, logits=False)

    def describe(self) -> dict[str, Any]:
        """Return its version and what it says of its build."""
        return self._engine.describe()

    def time_pass(self, tokens: Tokens) -> float:
        """Score these tokens behind the context, logits of every row; seconds."""
        engine = self._engine
        engine.fill(tokens, self._length, logits=True)
        begun = time.perf_counter()
        engine.run(self._pass)
        engine.lib.llama_get_logits(self._pass)
        seconds = time.perf_counter() - begun
        engine.forget(self._pass, self._length)
        return seconds

    def time_prefill(self, tokens: Tokens) -> float:
        """Read these tokens as a prompt of their own, logits of the last; seconds."""
        engine = self._engine
        engine.fill(tokens, 0, logits=False)
        begun = time.perf_counter()
        engine.run(self._prompt)
        engine.lib.llama_get_logits(self._prompt)
        seconds = time.perf_counter() - begun
        engine.forget(self._prompt, 0)
        return seconds

    def time_decode(self, count: int) -> float:
        """Write so many tokens behind the context, each the likeliest, and one untimed; seconds."""
        token = self._next(0, self._length)
        begun = time.perf_counter()
        for i in range(1, count + 1):
            token = self._next(token, self._length + i)
        seconds = time.perf_counter() - begun
        self._engine.forget(self._pass, self._length)
        return seconds

    def logits(self, tokens: Tokens) -> NDArray[np.float32]:
        """Read these tokens as a prompt of their own: logits of every row, float32 [n, vocab]."""
        engine = self._engine
        engine.decode(self._prompt, tokens, 0, logits=True)
        rows = [engine.logits_of(self._prompt, row).copy() for row in range(len(tokens))]
        engine.forget(self._prompt, 0)
        return np.stack(rows)

    def close(self) -> None:
        """Give its memory back."""
        self._engine.close()

    def _next(self, token: int, position: int) -> int:
        """Decode one token and return the likeliest after it."""
        self._engine.decode(self._pass, [token], position, logits=True)
        return int(self._engine.logits_of(self._pass, 0).argmax())
