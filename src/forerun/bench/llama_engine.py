"""llama.cpp through llama-cpp-python's low-level batch interface.

Set as its users set it for speed: flash attention, a cache of 16 bits, logits only where asked.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.errors import ForerunError, StartError
from forerun.extras import pip_command

__all__ = ["LlamaEngine", "library"]

_ERROR = 4  # llama.cpp's level of a line that reports an error
_MICRO_BATCH = 512  # its own default: most rows it computes at once


class LlamaEngine:
    """A model in llama.cpp, with contexts that each hold one sequence.

    Args:
        path: A GGUF file.
        threads: Threads of its passes.

    Attributes:
        lib: The library's functions.
        vocab: Its handle of the vocabulary.

    Raises:
        StartError: llama-cpp-python is not installed, or it can't open the file.
    """

    def __init__(self, path: str, threads: int) -> None:
        self.lib = library()
        self._said: list[str] = []
        # Held as long as the library may call it.
        self._listener = self.lib.llama_log_callback(self._listen)
        self.lib.llama_log_set(self._listener, None)
        self.lib.llama_backend_init()
        self._threads = threads
        self._contexts: list[Any] = []
        self._batches: list[Any] = []
        self._model = self._open_model(path)
        self.vocab = self.lib.llama_model_get_vocab(self._model)
        self._vocab_size = self.lib.llama_vocab_n_tokens(self.vocab)

    def describe(self) -> dict[str, Any]:
        """Return its version and what it says of its build."""
        return {
            "llama_cpp_python": importlib.metadata.version("llama-cpp-python"),
            "build": self.lib.llama_print_system_info().decode().strip(" |\n"),
        }

    def open_context(self, tokens: int) -> Any:
        """Return a context for a sequence of so many tokens.

        Raises:
            StartError: There is no room for it.
        """
        parameters = self.lib.llama_context_default_params()
        parameters.n_ctx = parameters.n_batch = max(tokens, 32)
        parameters.n_ubatch = min(_MICRO_BATCH, parameters.n_batch)
        parameters.n_threads = parameters.n_threads_batch = self._threads
        parameters.flash_attn_type = self.lib.LLAMA_FLASH_ATTN_TYPE_ENABLED
        parameters.offload_kqv = parameters.op_offload = False
        context = self.lib.llama_init_from_model(self._model, parameters)
        if not context:
            self.close()
            raise StartError(f"llama.cpp has no room for {tokens} tokens: {self._reason()}")
        self._contexts.append(context)
        return context

    def make_batch(self, tokens: int) -> None:
        """Make room for batches of up to so many tokens."""
        self._batches.append(self.lib.llama_batch_init(tokens, 0, 1))

    def fill(self, tokens: Sequence[int], start: int, *, logits: bool) -> None:
        """Put a chain into the batch; without `logits`, those of its last row alone are asked."""
        batch, last = self._batches[-1], len(tokens) - 1
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i] = token
            batch.pos[i] = start + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = logits or i == last

    def run(self, context: Any) -> None:
        """Compute the batch.

        Raises:
            ForerunError: The library fails, with what it said.
        """
        self._said.clear()
        code = self.lib.llama_decode(context, self._batches[-1])
        if code != 0:
            raise ForerunError(f"llama_decode returned {code}: {self._reason()}")

    def decode(self, context: Any, tokens: Sequence[int], start: int, *, logits: bool) -> None:
        """Fill the batch and compute it."""
        self.fill(tokens, start, logits=logits)
        self.run(context)

    def logits_of(self, context: Any, row: int) -> NDArray[np.float32]:
        """Return a row's logits, float32 [vocabulary], which the next pass overwrites."""
        logits = self.lib.llama_get_logits_ith(context, row)
        found: NDArray[np.float32] = np.ctypeslib.as_array(logits, shape=(self._vocab_size,))
        return found

    def forget(self, context: Any, length: int) -> None:
        """Shorten a context's sequence to its first `length` tokens."""
        memory = self.lib.llama_get_memory(context)
        if not self.lib.llama_memory_seq_rm(memory, 0, length, -1):
            raise ForerunError(f"llama.cpp can't forget what follows {length} tokens.")

    def close(self) -> None:
        """Give its memory back."""
        for batch in self._batches:
            self.lib.llama_batch_free(batch)
        for context in self._contexts:
            self.lib.llama_free(context)
        if self._model:
            self.lib.llama_model_free(self._model)
        self._batches, self._contexts, self._model = [], [], None

    def _open_model(self, path: str) -> Any:
        parameters = self.lib.llama_model_default_params()
        parameters.n_gpu_layers = 0
        model = self.lib.llama_model_load_from_file(path.encode(), parameters)
        if not model:
            raise StartError(f"llama.cpp can't open {path}: {self._reason()}", "Leave it out.")
        return model

    def _listen(self, level: int, text: bytes, data: Any) -> None:
        if level == _ERROR:
            self._said.append(text.decode(errors="replace").strip())

    def _reason(self) -> str:
        return self._said[0] if self._said else "it does not say why."


def library() -> ModuleType:
    """Return the library's functions.

    Raises:
        StartError: It is missing, or built for another machine.
    """
    try:
        return importlib.import_module("llama_cpp.llama_cpp")
    except (ImportError, OSError, RuntimeError) as error:
        raise StartError(
            f"Peer llama.cpp can't be loaded: {error}.",
            f"Install it: {pip_command('forerun[peers]')}",
        ) from None
