"""What the encoder of a model has read for `generate` of transformers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from forerun.errors import PromptError
from forerun.targets.transformers_source import ReadTokens

__all__ = ["is_known", "read_sources"]

_UNKNOWN = (0,)  # nothing to copy from


def read_sources(model: Any, count: int, given: Mapping[str, Any]) -> list[ReadTokens]:
    """Return each text's source, with the states that are prepared for it, padding left out.

    Equal sources are one.

    Args:
        model: With an encoder.
        count: How many texts there are.
        given: For the model's passes: the encoder's states and mask; and its tokens, where they
            are known.

    Raises:
        PromptError: A row holds nothing, or the mask is of another shape.
    """
    states = given["encoder_outputs"][0]
    mask = given.get("attention_mask")
    mask = torch.ones(states.shape[:2], dtype=torch.bool) if mask is None else mask.cpu() != 0
    if mask.shape != states.shape[:2] or len(states) != count:
        what = f"The attention mask is {list(mask.shape)} for what the encoder has made of "
        what += f"{count} texts, {list(states.shape)}."
        raise PromptError(what, "Give one row a text, and a mask of the same shape.")
    tokens = _tokens(given.get("inputs_tensor"), states)
    found: list[ReadTokens] = []
    for row, held in enumerate(mask):
        if not held.any():
            raise PromptError(f"Row {row} has nothing for the encoder.", "Give at least one token.")
        read = states[row : row + 1, held.to(states.device)]
        known = _UNKNOWN if tokens is None else tokens[row][held].tolist()
        own = ReadTokens.of(known, model, read)
        found.append(next((each for each in found if _is_same(each, own)), own))
    return found


def is_known(sources: Sequence[ReadTokens]) -> bool:
    """Return whether the tokens that were read are known, and not their states alone."""
    return all(len(each) == each.states.shape[1] for each in sources)


def _is_same(one: ReadTokens, other: ReadTokens) -> bool:
    return one == other and torch.equal(one.states, other.states)


def _tokens(inputs: torch.Tensor | None, states: torch.Tensor) -> torch.Tensor | None:
    """Return the encoder's tokens, a row for each text; None if there are none such."""
    if inputs is None or inputs.ndim != 2 or inputs.is_floating_point() or bool((inputs < 0).any()):
        return None
    rows = inputs.cpu().repeat_interleave(len(states) // len(inputs), dim=0)
    return rows if rows.shape == states.shape[:2] else None
