"""All that differs between transformers' releases: how a model is given its keys and values.

Models took `past_key_values`, and take `cache` now; what a cache layer is asked for its sizes was
renamed, too. Rolling back is left to `transformers_slots`: `crop`, whose argument changed its
meaning, is never called.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from transformers.cache_utils import Cache, DynamicLayer, EncoderDecoderCache

__all__ = ["Pair", "Sink", "cache_parameter", "cache_to", "crossed_cache", "decoder_config"]
__all__ += ["decoder_layers", "parameters_of", "positions_parameter"]

Pair = tuple[torch.Tensor, torch.Tensor]
"""Keys and values of a layer, each [sequences, heads, tokens, size]."""

_NAMES = ("cache", "past_key_values")


class Sink(Protocol):
    """Where a pass's keys and values go, and what a layer attends to comes from.

    Attributes:
        past: Keys that stand before the first row's, as masks count them.
        keys: Keys that each layer attends to.
    """

    past: int
    keys: int

    def update(
        self, index: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Take a layer's new keys and values, and return all that its rows attend to."""
        ...


class _Layer(DynamicLayer):
    """One layer of a pass. To the model it looks like a layer that grows and never slides."""

    def __init__(self, index: int, sink: Sink) -> None:
        super().__init__()
        self._index, self._sink = index, sink
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self._sink.update(self._index, key_states, value_states)

    def get_seq_length(self, *_: Any) -> int:
        return self._sink.past

    def get_mask_sizes(self, *_: Any) -> tuple[int, int]:
        return self._sink.keys, 0

    def get_max_length(self) -> int:
        return -1

    get_max_cache_shape = get_max_length  # its name before


def cache_to(sink: Sink, layers: int) -> Any:
    """Return a cache of so many layers for one pass, all of whose contents go to `sink`."""
    return Cache(layers=[_Layer(index, sink) for index in range(layers)])


def crossed_cache(cache: Any, crossed: Sequence[Pair | None]) -> Any:
    """Return a cache for a decoder that also attends to an encoder's states.

    Args:
        cache: Of its own rows, from `cache_to`.
        crossed: What each layer attends to of the encoder's; None makes the layer compute it from
            the states, and show it as `cross_attention_cache.layers[i].keys` and `values`.
    """
    layers = []
    for pair in crossed:
        layer = DynamicLayer()
        if pair is not None:
            layer.keys, layer.values = pair
            layer.is_initialized = True
        layers.append(layer)
    return EncoderDecoderCache(cache, Cache(layers=layers))


def parameters_of(model: Any) -> Mapping[str, inspect.Parameter]:
    """Return what the model's forward takes, by name."""
    return inspect.signature(model.forward).parameters


def cache_parameter(model: Any) -> str | None:
    """Return the name by which the model takes a cache, or None if it takes none."""
    taken = parameters_of(model)
    return next((name for name in _NAMES if name in taken), None)


def positions_parameter(model: Any) -> str | None:
    """Return the name by which the model takes positions of rows, or None if it takes none."""
    if model.config.model_type == "encoder-decoder":  # hands what is named so to its decoder
        taken = parameters_of(model.get_decoder())
        return "decoder_position_ids" if "position_ids" in taken else None
    return "position_ids" if "position_ids" in parameters_of(model) else None


def decoder_config(config: Any) -> Any:
    """Return the configuration of the network that writes text."""
    return config.get_text_config(decoder=True)


def decoder_layers(config: Any) -> int:
    """Return how many layers the network that writes text has."""
    for name in ("num_decoder_layers", "decoder_layers"):
        if config.is_encoder_decoder and getattr(config, name, None):
            return int(getattr(config, name))
    return int(decoder_config(config).num_hidden_layers)
