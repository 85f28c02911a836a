"""A head in a GGUF file: a small network, learned from a target, that guesses what it will write.

`models.head_shapes` has the kinds of heads, `docs/explain/head.md` what each computes. Tensors are
named as other engines name them. The target's embedding is not in the file, nor is the head over
the vocabulary unless it is the file's own.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import quantize
from numpy.typing import NDArray

from forerun.errors import ModelFileError, OptionError, OtherTargetError, UnsupportedModelError
from forerun.models.gguf_file import GGUFFile
from forerun.models.gguf_writing import write_gguf
from forerun.models.head_shapes import EAGLE, EXIT, HEAD, MEDUSA, SHAPES, HeadShape, Shape
from forerun.models.model import Model
from forerun.models.plain_file import parse_json
from forerun.models.target_checksum import target_checksum

__all__ = ["HEAD", "VERSION", "HeadFacts", "HeadFile", "HeadShape", "write_head"]

Array = NDArray[np.float32]

VERSION = 1
_ARCHITECTURE = "forerun-"  # before the kind
_PREFIX = "forerun.head."
_MOST_LAYERS = 16
_MOST_CARD = 1 << 20
_AWAY = "Name a head that `forerun train` wrote, or train it again."
_OF_ONE_LAYER = (MEDUSA, EXIT)
_FIT = "Train a head for this target, or name the target that the head was trained for."


class HeadFacts(NamedTuple):
    """What a head's file says of it, weights aside.

    Attributes:
        target: Checksum of the target, as `target_checksum` tells it.
        target_name: What the target was called.
        layers: The target's layers whose hidden states are the features, ascending: several for
            kind `eagle3`, for the others one.
        tokens: The draft vocabulary: the target's id of each draft id, ascending, int64 [R].
        card: How the head was made and what it is worth: an object of JSON.
        kind: Of head: a key of `SHAPES`.
    """

    target: str
    target_name: str
    layers: tuple[int, ...]
    tokens: NDArray[np.int64]
    card: Mapping[str, object]
    kind: str = EAGLE


@dataclass(frozen=True, slots=True, eq=False)
class HeadFile:
    """A head's file whose header has been read and checked; weights are read when asked for.

    Attributes:
        file: The weights. Values that are not finite are an error when they are read.
        facts: What it says of itself.
        shape: Its sizes.
    """

    file: GGUFFile
    facts: HeadFacts
    shape: Shape

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> HeadFile:
        """Read and check a head's header.

        Raises:
            ModelNotFoundError: There is no such file.
            ModelFileError: It is no head, truncated or damaged, or contradicts itself.
            UnsupportedModelError: It has another version, or a tensor of an unknown type.
        """
        file = GGUFFile.open(path)
        facts = _read_facts(file.path, file.metadata)
        shape = _read_shape(file.path, {n: file.tensor_shape(n) for n in file.tensor_names}, facts)
        for name in file.tensor_names:
            if file.nbytes(name) < 0:
                what = f"{file.path}: the tensor {name!r} has the unknown {file.tensor_type(name)}."
                raise UnsupportedModelError(what, _AWAY)
        return cls(file, facts, shape)

    @property
    def kind(self) -> str:
        """What it is: a key of `SHAPES`."""
        return self.facts.kind

    @property
    def own_heads(self) -> tuple[str, ...]:
        """The tensors of the file's own rows over the draft vocabulary; none: the target's."""
        return self.shape.own_heads(self.file.tensor_names)

    @property
    def has_own_head(self) -> bool:
        """Whether the head over the draft vocabulary is the file's; else it is the target's."""
        return bool(self.own_heads)

    def check_kind(self, *kinds: str) -> None:
        """Check that the head is of one of these kinds.

        Raises:
            OptionError: It is another one.
        """
        if self.kind not in kinds:
            what = f"{self.file.path} is a head of kind {self.kind!r}, not {' or '.join(kinds)}."
            raise OptionError(what, "Name a head of that kind, or choose the drafter of this one.")

    def check_target(self, model: Model, *, force: bool = False) -> None:
        """Check that the head can draft for a model, and was learned from it.

        Args:
            model: The target.
            force: Take a head that was learned from another target, if its sizes fit. It guesses
                worse; what the target writes stays the same.

        Raises:
            OtherTargetError: It was learned from another target, or does not fit this one.
            ModelFileError: The model's file changed or cannot be read.
        """
        network, facts = model.architecture, self.facts
        expected = self.shape.fitting(network)
        for name, own, theirs in zip(self.shape._fields, self.shape, expected, strict=True):
            if own != theirs:
                self._refuse(model, f"its {name.replace('_', ' ')} is {own}, not {theirs}")
        if facts.layers[-1] > network.num_layers:
            self._refuse(model, f"it wants layer {facts.layers[-1]} of {network.num_layers}")
        if facts.tokens[-1] >= network.vocab_size:
            self._refuse(model, f"it names token {facts.tokens[-1]} of {network.vocab_size}")
        if not force and facts.target != target_checksum(model):
            raise OtherTargetError(
                f"{self.file.path} was learned from another target ({facts.target_name!r:.80}) "
                f"than {model.name}.",
                f"{_FIT} A head that is forced guesses worse, and changes no text.",
            )

    def _refuse(self, model: Model, why: str) -> None:
        raise OtherTargetError(f"{self.file.path} does not fit {model.name}: {why}.", _FIT)


def write_head(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Array],
    facts: HeadFacts,
    kind: str = "Q4_1",
) -> None:
    """Write a head's file; it is either the old or the new one, whatever happens.

    Args:
        path: Of the file.
        tensors: Every tensor of the kind's shape, and its `own_heads` if they are the file's own;
            float32.
        facts: What the file says besides.
        kind: GGML's name of the type of matrices; those whose rows are no whole blocks of it, such
            as Q4_1 in a width that is no multiple of 32, are F16. Vectors are F32. Four bits cost
            a head next to nothing of its acceptance (docs/explain/head.md).

    Raises:
        ModelFileError: A fact, a shape or a value cannot be, or the file cannot be written.
        OptionError: There is no such type, or none that can be written.
    """
    path = Path(os.path.abspath(path))
    metadata: dict[str, object] = {
        "general.architecture": _ARCHITECTURE + facts.kind,
        f"{_PREFIX}version": VERSION,
        f"{_PREFIX}target": facts.target,
        f"{_PREFIX}target_name": facts.target_name,
        f"{_PREFIX}layers": [int(layer) for layer in facts.layers],
        f"{_PREFIX}tokens": [int(token) for token in facts.tokens],
        f"{_PREFIX}card": json.dumps(facts.card),
    }
    _read_facts(path, metadata)
    _read_shape(path, {name: values.shape for name, values in tensors.items()}, facts)
    _check_writable(kind)
    write_gguf(path, metadata, tensors, kind)


def _read_facts(path: Path, metadata: Mapping[str, object]) -> HeadFacts:
    """Read what a file says of its head; each error says what is wrong with it."""
    named, version = metadata.get("general.architecture"), metadata.get(f"{_PREFIX}version")
    kind = next((kind for kind in SHAPES if named == _ARCHITECTURE + kind), None)
    if kind is None:
        raise ModelFileError(f"{path} is no head: its architecture is {named!r:.80}.", _AWAY)
    if type(version) is not int or version != VERSION:
        what = f"{path} is a head of version {version!r:.80}; this Forerun reads {VERSION}."
        raise UnsupportedModelError(what, _AWAY)

    def damaged(key: str, why: str) -> ModelFileError:
        return ModelFileError(f"{path}: {_PREFIX}{key} {why}.", _AWAY)

    def text(key: str, most: int) -> str:
        value = metadata.get(f"{_PREFIX}{key}")
        if not isinstance(value, str) or len(value) > most:
            raise damaged(key, f"is no text of up to {most} characters")
        return value

    def ascending(key: str) -> list[int]:
        value = metadata.get(f"{_PREFIX}{key}")
        if not isinstance(value, list) or not value or {type(each) for each in value} != {int}:
            raise damaged(key, "is no list of whole numbers")
        if value[0] < 0 or value[-1] >= 1 << 31 or not _ascends(value):
            raise damaged(key, "does not ascend from 0 or more")
        return value

    target, layers = text("target", 64), ascending("layers")
    if not re.fullmatch("[0-9a-f]{64}", target):
        raise damaged("target", f"is {target!r}, which is no checksum")
    if len(layers) > _MOST_LAYERS:
        raise damaged("layers", f"names {len(layers)} layers; {_MOST_LAYERS} is the limit")
    if kind in _OF_ONE_LAYER and len(layers) > 1:
        raise damaged("layers", f"names {len(layers)} layers; kind {kind!r} reads one")
    try:
        card = parse_json(text("card", _MOST_CARD))
    except ValueError as error:
        raise damaged("card", str(error)) from None
    tokens = np.array(ascending("tokens"), dtype=np.int64)
    return HeadFacts(target, text("target_name", 1000), tuple(layers), tokens, card, kind)


def _ascends(numbers: Sequence[int]) -> bool:
    return all(low < high for low, high in pairwise(numbers))


def _read_shape(path: Path, shapes: Mapping[str, tuple[int, ...]], facts: HeadFacts) -> Shape:
    """Return the sizes that all tensors agree on."""

    def rows(name: str) -> int:
        found = shapes.get(name, ())
        if not found:
            raise ModelFileError(f"{path} lacks the tensor {name!r}.", _AWAY)
        return found[0]

    shape: Shape = SHAPES[facts.kind].read(rows, shapes)
    expected = shape.tensors(len(facts.layers))
    expected |= dict.fromkeys(shape.own_heads(shapes), (len(facts.tokens), shape.width))
    for name, size in expected.items():
        rows(name)
        if shapes[name] != size:
            what = f"{path}: the tensor {name!r} is {shapes[name]}, not {size}."
            raise ModelFileError(what, _AWAY)
    extra = next((name for name in shapes if name not in expected), None)
    if extra is not None:
        what = f"{path} has the tensor {extra!r:.80}, which a head lacks."
        raise UnsupportedModelError(what, _AWAY)
    return shape


def _check_writable(kind: str) -> None:
    """Check that matrices can be turned into a type."""
    try:
        code = GGMLQuantizationType[kind]
        quantize(np.zeros((1, GGML_QUANT_SIZES[code][0]), dtype=np.float32), code)
    except (KeyError, NotImplementedError):
        what = f"Matrices can't be written in the type {kind!r:.80}."
        raise OptionError(what, "Choose Q8_0, F16 or F32.") from None
