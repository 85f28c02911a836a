"""What an encoder has read: run once for a text, shared by all of its rows and by its forks.

A decoder's layers attend to keys and values that they make of the encoder's states. Those are made
once, too, by a pass of one row that is dropped; the states themselves are let go. Who has run the
encoder already gives its states with the tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self
from weakref import WeakValueDictionary

import torch

from forerun.errors import UnsupportedModelError
from forerun.targets.transformers_release import Pair, cache_to, crossed_cache

__all__ = ["Crossed", "ReadTokens", "Source", "SourceReader"]


class ReadTokens(tuple[int, ...]):
    """Tokens of a source that an encoder has read already.

    Attributes:
        model: Whose encoder; to any other model they are tokens like others.
        states: What it made of them, [1, tokens, width].
        read: Of those, what each layer attends to, once a text has been opened.
    """

    model: Any
    states: torch.Tensor
    read: Source | None

    @classmethod
    def of(cls, tokens: Sequence[int], model: Any, states: torch.Tensor) -> Self:
        """Return tokens with the states that the encoder of a model made of them."""
        own = cls(tokens)
        own.model, own.states, own.read = model, states, None
        return own


class Source:
    """What each layer of the decoder attends to of one source.

    Args:
        layers: Keys and values, each [1, heads, tokens, size].
    """

    __slots__ = ("__weakref__", "layers")

    def __init__(self, layers: Sequence[Pair]) -> None:
        self.layers = layers

    @property
    def length(self) -> int:
        """Tokens that were read."""
        return self.layers[0][0].shape[2]


class Crossed(NamedTuple):
    """The sources of a pass's sequences, side by side.

    Attributes:
        layers: Keys and values, each [sequences, heads, tokens, size].
        mask: Which tokens are none, int64 [sequences, tokens] of 0 and 1; None if all are.
        states: What stands for the encoder's states, whose shape is all that is looked at.
    """

    layers: Sequence[Pair]
    mask: torch.Tensor | None
    states: torch.Tensor


class _Nowhere:
    """Where the keys and values of a pass go that is dropped."""

    past, keys = 0, 1

    def update(self, index: int, keys: torch.Tensor, values: torch.Tensor) -> Pair:
        return keys, values


class SourceReader:
    """Runs a model's encoder, and lays out what it has read.

    Args:
        model: With an encoder, in evaluation mode.
        cache_name: By which name it takes a cache.
        layers: How many its decoder has.
    """

    def __init__(self, model: Any, cache_name: str, layers: int) -> None:
        self._model, self._cache_name, self._layers = model, cache_name, layers
        self._read: WeakValueDictionary[tuple[int, ...], Source] = WeakValueDictionary()
        self._last: tuple[tuple[Source, ...], Crossed] | None = None

    def read(self, tokens: Sequence[int]) -> Source:
        """Return a source that has been read; the same as before while a text still holds it."""
        if isinstance(tokens, ReadTokens) and tokens.model is self._model:
            tokens.read = tokens.read or self._crossed(tokens.states)
            return tokens.read
        key = tuple(tokens)
        found = self._read.get(key)
        if found is None:
            found = self._read[key] = self._run(tokens)
        return found

    def together(self, sources: Sequence[Source]) -> Crossed:
        """Return sources side by side; copied once for as long as the same texts go on together."""
        key = tuple(sources)
        if self._last is None or self._last[0] != key:
            self._last = key, self._laid_out(key)
        return self._last[1]

    def let_go(self) -> None:
        """Keep nothing for the next pass."""
        self._last = None

    def _run(self, tokens: Sequence[int]) -> Source:
        device = self._model.get_input_embeddings().weight.device
        ids = torch.tensor([list(tokens)], device=device)
        with torch.no_grad():
            states = self._model.get_encoder()(input_ids=ids)[0]
        return self._crossed(states)

    def _crossed(self, states: torch.Tensor) -> Source:
        """Return what each layer makes of an encoder's states, [1, tokens, width]."""
        model = self._model
        device = model.get_input_embeddings().weight.device
        with torch.no_grad():
            cache = crossed_cache(cache_to(_Nowhere(), self._layers), [None] * self._layers)
            named = {self._cache_name: cache, "use_cache": True}
            row = torch.zeros((1, 1), dtype=torch.int64, device=device)
            model(encoder_outputs=(states,), decoder_input_ids=row, **named)
        crossed = cache.cross_attention_cache.layers
        if not all(layer.is_initialized for layer in crossed):
            what = "Some layers of this model's decoder do not attend to its encoder by its cache."
            raise UnsupportedModelError(what, "Run it by transformers itself.")
        return Source([(layer.keys, layer.values) for layer in crossed])

    def _laid_out(self, sources: Sequence[Source]) -> Crossed:
        count, first, model = len(sources), sources[0], self._model
        longest = max(each.length for each in sources)
        keys = first.layers[0][0]
        # Only their shape is looked at, unless they are made as wide as the decoder first.
        width = model.encoder.config.hidden_size if hasattr(model, "enc_to_dec_proj") else 1
        states = keys.new_zeros((1, 1, 1)).expand(count, longest, width)
        if all(each is first for each in sources):
            layers = [
                (k.expand(count, -1, -1, -1), v.expand(count, -1, -1, -1)) for k, v in first.layers
            ]
            return Crossed(layers, None, states)
        mask = torch.zeros((count, longest), dtype=torch.int64, device=states.device)
        for row, each in zip(mask, sources, strict=True):
            row[: each.length] = 1
        layers = [
            (
                _padded([each.layers[i][0] for each in sources], longest),
                _padded([each.layers[i][1] for each in sources], longest),
            )
            for i in range(self._layers)
        ]
        return Crossed(layers, None if bool(mask.all()) else mask, states)


def _padded(parts: Sequence[torch.Tensor], longest: int) -> torch.Tensor:
    """Return [1, heads, tokens, size] each as one tensor, zeros behind those that are shorter."""
    _, heads, _, size = parts[0].shape
    whole = parts[0].new_zeros((len(parts), heads, longest, size))
    for place, part in enumerate(parts):
        whole[place, :, : part.shape[2]] = part[0]
    return whole
