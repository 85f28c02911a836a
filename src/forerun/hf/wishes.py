"""What may be wished of drafts and chance where transformers asks for texts."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Wishes"]


class Wishes(NamedTuple):
    """Options of `forerun.hf.generate`, which says what each is."""

    drafter: str = "auto"
    draft_length: int | str = "auto"
    draft_width: int | str = "auto"
    draft_model: Any = None
    draft_layers: int | None = None
    seed: int | None = None
