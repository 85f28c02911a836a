"""llama.cpp as a peer, through llama-cpp-python's low-level batch interface, in this process.

Set as its users set it for speed: the same file and threads, flash attention, a cache of 16 bits.
A pass is one `llama_decode` with logits of every row; filling the batch is not timed.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import time
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.bench.sides import Tokens
from forerun.errors import ForerunError, StartError

__all__ = ["LlamaCpp"]

_ERROR = 4  # llama.cpp's level of a line that reports an error
_MICRO_BATCH = 512  # its own default: most rows it computes at once


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
        self._lib = _library()
        self._said: list[str] = []
        # Held as long as the library may call it.
        self._listener = self._lib.llama_log_callback(self._listen)
        self._lib.llama_log_set(self._listener, None)
        self._lib.llama_backend_init()
        self._threads, self._length = threads, len(context)
        self._contexts: list[Any] = []
        self._batches: list[Any] = []
        self._model = self._open_model(path)
        self._vocab_size = self._lib.llama_vocab_n_tokens(
            self._lib.llama_model_get_vocab(self._model)
        )
        self._pass = self._open_context(len(context) + most_rows + 1)
        self._prompt = self._open_context(max(prefill, 1))
        self._batch = self._lib.llama_batch_init(max(len(context), most_rows, prefill, 1), 0, 1)
        self._batches.append(self._batch)
        self._decode(self._pass, context, 0, logits=False)

    def describe(self) -> dict[str, Any]:
        """Return its version and what it says of its build."""
        return {
            "llama_cpp_python": importlib.metadata.version("llama-cpp-python"),
            "build": self._lib.llama_print_system_info().decode().strip(" |\n"),
        }

    def time_pass(self, tokens: Tokens) -> float:
        """Score these tokens behind the context, logits of every row; seconds."""
        self._fill(tokens, self._length, logits=True)
        begun = time.perf_counter()
        self._run(self._pass)
        self._lib.llama_get_logits(self._pass)
        seconds = time.perf_counter() - begun
        self._forget(self._pass, self._length)
        return seconds

    def time_prefill(self, tokens: Tokens) -> float:
        """Read these tokens as a prompt of their own, logits of the last; seconds."""
        self._fill(tokens, 0, logits=False)
        begun = time.perf_counter()
        self._run(self._prompt)
        self._lib.llama_get_logits(self._prompt)
        seconds = time.perf_counter() - begun
        self._forget(self._prompt, 0)
        return seconds

    def time_decode(self, count: int) -> float:
        """Write so many tokens behind the context, each the likeliest, and one untimed; seconds."""
        token = self._next(0, self._length)
        begun = time.perf_counter()
        for i in range(1, count + 1):
            token = self._next(token, self._length + i)
        seconds = time.perf_counter() - begun
        self._forget(self._pass, self._length)
        return seconds

    def logits(self, tokens: Tokens) -> NDArray[np.float32]:
        """Read these tokens as a prompt of their own: logits of every row, float32 [n, vocab]."""
        self._decode(self._prompt, tokens, 0, logits=True)
        rows = [self._logits_of(self._prompt, row).copy() for row in range(len(tokens))]
        self._forget(self._prompt, 0)
        return np.stack(rows)

    def close(self) -> None:
        """Give its memory back."""
        for batch in self._batches:
            self._lib.llama_batch_free(batch)
        for context in self._contexts:
            self._lib.llama_free(context)
        if self._model:
            self._lib.llama_model_free(self._model)
        self._batches, self._contexts, self._model = [], [], None

    def _open_model(self, path: str) -> Any:
        parameters = self._lib.llama_model_default_params()
        parameters.n_gpu_layers = 0
        model = self._lib.llama_model_load_from_file(path.encode(), parameters)
        if not model:
            raise StartError(f"llama.cpp can't open {path}: {self._reason()}", "Leave it out.")
        return model

    def _open_context(self, tokens: int) -> Any:
        parameters = self._lib.llama_context_default_params()
        parameters.n_ctx = parameters.n_batch = max(tokens, 32)
        parameters.n_ubatch = min(_MICRO_BATCH, parameters.n_batch)
        parameters.n_threads = parameters.n_threads_batch = self._threads
        parameters.flash_attn_type = self._lib.LLAMA_FLASH_ATTN_TYPE_ENABLED
        parameters.offload_kqv = parameters.op_offload = False
        context = self._lib.llama_init_from_model(self._model, parameters)
        if not context:
            self.close()
            raise StartError(f"llama.cpp has no room for {tokens} tokens: {self._reason()}")
        self._contexts.append(context)
        return context

    def _next(self, token: int, position: int) -> int:
        """Decode one token and return the likeliest after it."""
        self._decode(self._pass, [token], position, logits=True)
        return int(self._logits_of(self._pass, 0).argmax())

    def _logits_of(self, context: Any, row: int) -> NDArray[np.float32]:
        """Return a row's logits, which the next pass overwrites."""
        logits = self._lib.llama_get_logits_ith(context, row)
        found: NDArray[np.float32] = np.ctypeslib.as_array(logits, shape=(self._vocab_size,))
        return found

    def _decode(self, context: Any, tokens: Tokens, start: int, *, logits: bool) -> None:
        self._fill(tokens, start, logits=logits)
        self._run(context)

    def _fill(self, tokens: Tokens, start: int, *, logits: bool) -> None:
        """Put a chain into the batch; without `logits`, those of its last row alone are asked."""
        batch, last = self._batch, len(tokens) - 1
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i] = token
            batch.pos[i] = start + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = logits or i == last

    def _run(self, context: Any) -> None:
        self._said.clear()
        code = self._lib.llama_decode(context, self._batch)
        if code != 0:
            raise ForerunError(f"llama_decode returned {code}: {self._reason()}")

    def _forget(self, context: Any, length: int) -> None:
        memory = self._lib.llama_get_memory(context)
        if not self._lib.llama_memory_seq_rm(memory, 0, length, -1):
            raise ForerunError(f"llama.cpp can't forget what follows {length} tokens.")

    def _listen(self, level: int, text: bytes, data: Any) -> None:
        if level == _ERROR:
            self._said.append(text.decode(errors="replace").strip())

    def _reason(self) -> str:
        return self._said[0] if self._said else "it does not say why."


def _library() -> ModuleType:
    try:
        return importlib.import_module("llama_cpp.llama_cpp")
    except (ImportError, OSError, RuntimeError) as error:  # missing, or built for another machine
        raise StartError(
            f"Peer llama.cpp can't be loaded: {error}.", "Install it: pip install 'forerun[peers]'."
        ) from None
