"""Folders whose networks Forerun's own engines do not run: their numbers, for transformers to run.

Only what the rest of Forerun asks of every model is read here, and the weights are left alone.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from forerun.errors import UnsupportedModelError
from forerun.models.architecture import Architecture, Rope
from forerun.models.facts import Facts
from forerun.models.plain_file import FileIdentity

__all__ = ["ForeignWeights", "foreign_architecture", "has_safetensors"]

_UNLIMITED = 1 << 20  # tokens of a model that counts no positions

# The same number under the names that transformers' families have for it.
_WIDTH = ("hidden_size", "n_embd", "d_model")
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
_HEADS = ("num_attention_heads", "n_head", "num_heads", "n_heads")
_INNER = ("intermediate_size", "n_inner", "ffn_dim", "d_ff")
_CONTEXT = ("max_position_embeddings", "n_positions")
_OF_DECODER = {  # where there is an encoder, too; T5 has n_positions, and does not count them
    _LAYERS: ("num_decoder_layers", "decoder_layers"),
    _HEADS: ("decoder_attention_heads",),
    _INNER: ("decoder_ffn_dim",),
    _CONTEXT: ("max_decoder_position_embeddings", "max_position_embeddings"),
}


class _Config(Facts):
    """The contents of config.json, or those of the part that writes text."""

    def __init__(self, path: Path, config: Mapping[str, object]) -> None:
        super().__init__(path / "config.json")
        inner = config.get("text_config") or config.get("decoder")
        self._config = {**config, **inner} if isinstance(inner, dict) else config

    def get(self, key: str, default: object = None) -> object:
        value = self._config.get(key)
        return default if value is None else value

    def first(self, keys: tuple[str, ...], default: int | None = None) -> int:
        """Return the number that stands under one of these names."""
        if self.get("is_encoder_decoder") is True:
            own = _OF_DECODER.get(keys, ())
            keys = own if keys == _CONTEXT else (*own, *keys)
        there = [key for key in keys if self.get(key) is not None]
        return self.whole(there[0] if there else keys[0], default)


def foreign_architecture(path: Path, config: Mapping[str, object]) -> Architecture:
    """Return the numbers of a network that transformers runs; the rest of it are ones.

    Raises:
        ModelFileError: A number is missing or impossible.
    """
    facts = _Config(path, config)
    width = facts.first(_WIDTH)
    return Architecture(
        name=str(facts.get("model_type", "")),
        vocab_size=facts.whole("vocab_size"),
        width=width,
        num_layers=facts.first(_LAYERS),
        num_heads=facts.first(_HEADS, 1),
        num_kv_heads=1,
        head_dim=1,
        inner_width=facts.first(_INNER, width),
        context_length=facts.first(_CONTEXT, _UNLIMITED),
        norm_epsilon=1.0,
        rope=Rope(False, 0, 1.0, ()),
        has_qkv_bias=False,
        has_qk_norm=False,
        is_tied=False,
    )


def has_safetensors(path: Path) -> bool:
    """Whether the folder's weights are in a format that runs no code as it is read."""
    names = ("model.safetensors", "model.safetensors.index.json")
    return any(os.path.exists(path / name) for name in names)


@dataclass(frozen=True, slots=True)
class ForeignWeights:
    """The weights of such a folder: where they are, and why no tensor of them is asked for.

    Attributes:
        path: The folder, absolute.
        reason: What Forerun's own engines lack for it.
        way_out: What can be done.
    """

    path: Path
    reason: str
    way_out: str

    @property
    def identity(self) -> Hashable:
        """The files as they are."""
        return self.files

    @property
    def files(self) -> tuple[FileIdentity, ...]:
        """The files as they are, in the order of their names."""
        found = sorted(self.path.glob("*.safetensors"))
        status = [(file, file.stat()) for file in found]
        return tuple(FileIdentity(str(f), s.st_size, s.st_mtime_ns) for f, s in status)

    @property
    def file_bytes(self) -> int:
        """Size of all files of weights."""
        return sum(file.size for file in self.files)

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """Nothing: transformers reads them."""
        return ()

    def __contains__(self, name: object) -> bool:
        return False

    def own_name(self, name: str) -> str:
        """Return the name."""
        return name

    def tensor_shape(self, name: str) -> tuple[int, ...]:
        """Raise UnsupportedModelError."""
        self._refuse()

    def tensor_type(self, name: str) -> str:
        """Raise UnsupportedModelError."""
        self._refuse()

    def nbytes(self, name: str) -> int:
        """Raise UnsupportedModelError."""
        self._refuse()

    def raw(self, name: str) -> NDArray[np.uint8]:
        """Raise UnsupportedModelError."""
        self._refuse()

    def tensor(self, name: str) -> NDArray[np.float32]:
        """Raise UnsupportedModelError."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UnsupportedModelError(self.reason, self.way_out)
