"""OpenVINO GenAI in the race, on the same GGUF file, which it reads itself: mode `lookup`.

`lookup` is its prompt lookup with the numbers of its own example: five tokens, n-grams up to three.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import Any

import numpy as np

from forerun.bench.race.child import Clock
from forerun.bench.race.peers import PeerKit

__all__ = ["OpenVino"]

_LOOKUP = {"num_assistant_tokens": 5, "max_ngram_size": 3}


class OpenVino:
    """Writes with OpenVINO's `LLMPipeline` on the CPU.

    Args:
        kit: The file, threads and end tokens.
        modes: `lookup`, or nothing.

    Raises:
        ImportError: openvino-genai is not installed.
        RuntimeError: It does not read the file.
    """

    def __init__(self, kit: PeerKit, modes: frozenset[str]) -> None:
        self._genai: Any = importlib.import_module("openvino_genai")
        self._tensor: Any = importlib.import_module("openvino").Tensor
        self._ends = set(kit.ends)
        self._lookup = _LOOKUP if "lookup" in modes else {}
        settings: dict[str, Any] = {"INFERENCE_NUM_THREADS": kit.threads}
        if self._lookup:
            settings["prompt_lookup"] = True
        scheduler = self._genai.SchedulerConfig()
        scheduler.enable_prefix_caching = False  # each text begins with nothing
        self._pipeline = self._genai.LLMPipeline(
            kit.path, "CPU", scheduler_config=scheduler, **settings
        )
        self._about = {"file": kit.path, "same_file": True, **settings, **self._lookup}

    def describe(self) -> dict[str, Any]:
        """Return its file, settings and version."""
        return {**self._about, "openvino_genai": importlib.metadata.version("openvino-genai")}

    def write(
        self, tokens: list[int], max_tokens: int, temperature: float, seed: int
    ) -> dict[str, Any]:
        """Write one text, with its own draws at a temperature above 0."""
        config = self._genai.GenerationConfig()
        config.max_new_tokens = max_tokens
        config.stop_token_ids = self._ends
        config.apply_chat_template = False
        if temperature > 0:
            config.do_sample, config.temperature, config.rng_seed = True, temperature, seed
        for name, value in self._lookup.items():
            setattr(config, name, value)
        ids = np.array([tokens], np.int64)
        prompt = self._genai.TokenizedInputs(self._tensor(ids), self._tensor(np.ones_like(ids)))
        clock = Clock()
        if max_tokens > 0:
            self._pipeline.generate(prompt, config, self._streamer(clock))
        return clock.answer()

    def _streamer(self, clock: Clock) -> Any:
        """What the pipeline tells each token, or several of one pass."""
        goes_on = self._genai.StreamingStatus.RUNNING

        class Streamer(self._genai.StreamerBase):  # type: ignore[misc, name-defined]
            def write(self, token: int | list[int]) -> Any:
                clock.note(*(token if isinstance(token, list) else [token]))
                return goes_on

            def end(self) -> None:
                """Nothing is held back."""

        return Streamer()
