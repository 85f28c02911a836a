"""Rows of several texts one behind another, so that none pays for another's.

As a batch of texts a pass has as many rows for each as the longest draft, or prompt, needs. Laid
out flat, [1, rows of all texts], every product has the rows that there are. Only attention has to
know whose they are: the modules that ask transformers for theirs are run as shallow copies that
share every weight, and get one that goes from text to text. Whether that is all is found out by
trying, as everything is.

On a processor that attention does another thing: where several heads read the same keys, a few
rows of those heads are laid one behind another instead of copying the keys for each head.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from forerun.targets.transformers_copies import copied, shallow_copy

__all__ = ["PACKED_ROWS", "Span", "Spans", "flattened"]

PACKED_ROWS = 32
"""Rows of a text up to which heads are laid one behind another."""

_NAME = "forerun_flat"


class Span(NamedTuple):
    """Where a text's rows lie in a pass.

    Attributes:
        first: The first of them.
        last: Behind the last one.
        keys: How many of the text's keys there are, its rows' own included.
    """

    first: int
    last: int
    keys: int


class Spans:
    """Whose rows the pass under way has.

    Attributes:
        texts: In the order of their keys; empty where rows are laid out as a batch.
    """

    def __init__(self) -> None:
        self.texts: Sequence[Span] = ()


class _Config:
    """A configuration that names another attention; all else is as it stands in the model's."""

    _attn_implementation = _NAME

    def __init__(self, config: Any, spans: Spans) -> None:
        self._config, self.forerun_spans = config, spans

    @property
    def forerun_own(self) -> str:
        """The attention that the model names."""
        return str(self._config._attn_implementation)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._config, name)


def flattened(model: torch.nn.Module, spans: Spans) -> Any:
    """Return a copy of a model whose attention goes from text to text.

    Args:
        model: Nothing of it is changed.
        spans: Is told whose rows each pass has.
    """
    ALL_ATTENTION_FUNCTIONS.register(_NAME, _attention)

    def other(module: torch.nn.Module) -> torch.nn.Module:
        shallow: torch.nn.Module = shallow_copy(module)
        config = module.__dict__.get("config")
        if "layer_idx" in module.__dict__ and config is not None:
            shallow.__dict__["config"] = _Config(config, spans)
        return shallow

    return copied(model, other)


def _attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **named: Any,
) -> tuple[torch.Tensor, None]:
    """Let each text's rows attend to its keys.

    Args:
        module: A copy that was made here.
        query: [1, heads, rows of all texts, size], or as a batch.
        key: [texts, heads, keys, size].
        value: Likewise.
        attention_mask: [1, 1, rows of all texts, keys], or as a batch.
        named: What else transformers' own is given.

    Returns:
        [1, rows of all texts, heads, size], or as a batch.
    """
    spans = module.config.forerun_spans.texts
    if not spans:
        return _of_one(module, query, key, value, attention_mask, **named), None
    assert attention_mask is not None, "made for every pass of several texts"
    parts = [
        _of_one(
            module,
            query[:, :, first:last],
            key[text : text + 1, :, :keys],
            value[text : text + 1, :, :keys],
            attention_mask[:, :, first:last, :keys],
            **named,
        )
        for text, (first, last, keys) in enumerate(spans)
    ]
    return torch.cat(parts, dim=1), None


def _of_one(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    **named: Any,
) -> torch.Tensor:
    """Return what rows find among keys, [texts, rows, heads, size]."""
    texts, heads, rows, size = query.shape
    fewer = key.shape[1]
    group = heads // fewer
    own = module.config.forerun_own
    is_packed = own == "sdpa" and group > 1 and 1 < rows <= PACKED_ROWS
    is_packed &= key.device.type == "cpu" and named.get("position_bias") is None
    if not is_packed or mask is None or mask.shape[1] > 1:
        found: torch.Tensor = _own(module, own)(module, query, key, value, mask, **named)[0]
        return found
    packed = query.reshape(texts, fewer, group * rows, size)
    packed = torch.nn.functional.scaled_dot_product_attention(
        packed, key, value, attn_mask=mask.repeat(1, 1, group, 1), scale=named.get("scaling")
    )
    return packed.reshape(texts, heads, rows, value.shape[-1]).transpose(1, 2).contiguous()


def _own(module: Any, name: str) -> Any:
    """Return the attention that the model names; "eager" is each family's own."""
    if name == "eager":
        return sys.modules[type(module).__module__].eager_attention_forward
    return ALL_ATTENTION_FUNCTIONS[name]
