"""A tiny target, and text captured from it: what the tests of this room learn from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from forerun.models.model import Model, load_model
from forerun.targets.protocol import Target
from forerun.targets.reference import ReferenceTarget
from forerun.train.capture import CaptureNews, capture
from forerun.train.options import Capturing
from models.tiny_gguf import Tiny

__all__ = ["OPTIONS", "captured", "tiny_model"]

TEMPLATE = (
    "{% for message in messages %}<|endoftext|>{{ message['content'] }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|endoftext|>{% endif %}"
)
OPTIONS: dict[str, Any] = {
    "tokens": 1500,
    "prompt_tokens": 12,
    "long_prompts": 0.25,
    "long_prompt_tokens": 40,
    "answer_tokens": 24,
    "top": 20,
    "sequences": 5,
    "temperatures": (1.0, 0.0),
}


def tiny_model(folder: Path, **changes: Any) -> Model:
    """A random model with a chat template; `changes` are of `Tiny`."""
    metadata = {"tokenizer.chat_template": TEMPLATE}
    tiny = Tiny(**{"layers": 3, "metadata": metadata, "width": 64, "heads": 4, **changes})
    return load_model(tiny.write(folder / "tiny.gguf"))


def captured(
    model: Model, folder: Path, target: Target | None = None, **changes: Any
) -> CaptureNews:
    """Capture text of the model into a folder."""
    return capture(
        model,
        target or ReferenceTarget(model),
        folder,
        Capturing(**{**OPTIONS, **changes}),
        report=lambda news: None,
        is_over=lambda: False,
    )
