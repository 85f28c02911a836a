"""transformers in the race, on the file's own weights in bfloat16: mode `lookup`.

It multiplies no weights of 4 bits on a CPU: a GGUF file is expanded as it loads it, a Hugging Face
folder is loaded as it is. `lookup` is its prompt lookup with the number of its own example, ten.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from pathlib import Path
from typing import Any

from forerun.bench.race.child import Clock
from forerun.bench.race.peers import PeerKit

__all__ = ["Transformers"]

_LOOKUP_TOKENS = 10


class Transformers:
    """Writes with `generate` of transformers.

    Args:
        kit: The file or folder, threads and end tokens.
        modes: `lookup`, or nothing.

    Raises:
        ImportError: transformers or torch is not installed, or accelerate, for a GGUF file.
        ValueError: It does not read the file; OSError likewise.
    """

    def __init__(self, kit: PeerKit, modes: frozenset[str]) -> None:
        self._torch: Any = importlib.import_module("torch")
        library: Any = importlib.import_module("transformers")
        self._torch.set_num_threads(kit.threads)
        path = Path(kit.path)
        if path.is_file():
            importlib.import_module("accelerate")  # it reads no GGUF file without
        where = {"gguf_file": path.name} if path.is_file() else {}
        folder = os.fspath(path.parent if path.is_file() else path)
        self._model = library.AutoModelForCausalLM.from_pretrained(
            folder, dtype=self._torch.bfloat16, local_files_only=True, **where
        ).eval()
        self._streamer: Any = importlib.import_module("transformers.generation.streamers")
        self._ends = list(kit.ends)
        self._lookup = {"prompt_lookup_num_tokens": _LOOKUP_TOKENS} if "lookup" in modes else {}
        self._about = {"file": kit.path, "weights": "bfloat16", **self._lookup}

    def describe(self) -> dict[str, Any]:
        """Return what it computes with, and versions."""
        names = ("transformers", "torch")
        versions = {name: importlib.metadata.version(name) for name in names}
        return {**self._about, "threads": self._torch.get_num_threads(), **versions}

    def write(
        self, tokens: list[int], max_tokens: int, temperature: float, seed: int
    ) -> dict[str, Any]:
        """Write one text, with its own draws at a temperature above 0."""
        ids = self._torch.tensor([tokens])
        settings: dict[str, Any] = {"do_sample": False}
        if temperature > 0:
            settings = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
            self._torch.manual_seed(seed)
        clock = Clock()
        with self._torch.inference_mode():
            if max_tokens > 0:
                self._model.generate(
                    ids,
                    attention_mask=self._torch.ones_like(ids),
                    max_new_tokens=max_tokens,
                    eos_token_id=self._ends or None,
                    pad_token_id=self._ends[0] if self._ends else 0,
                    streamer=self._listener(clock),
                    **settings,
                    **self._lookup,
                )
        return clock.answer()

    def _listener(self, clock: Clock) -> Any:
        """What `generate` tells the prompt first, then the tokens of each pass."""

        class Listener(self._streamer.BaseStreamer):  # type: ignore[misc, name-defined]
            has_heard_prompt = False

            def put(self, value: Any) -> None:
                if self.has_heard_prompt:
                    clock.note(*value.flatten().tolist())
                self.has_heard_prompt = True

            def end(self) -> None:
                """Nothing is held back."""

        return Listener()
