"""The native head: one learned layer in C++, row-exact, on the threads of the target's pass.

`targets.reference_head` is its slow twin. It multiplies as the native target does, to the same bits
on any number of threads and any instruction set, and shares the target's packed embedding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from forerun.errors import EngineError, NotEnoughMemoryError, OptionError
from forerun.models.head_file import HEAD, HeadFile
from forerun.models.head_shapes import EAGLE
from forerun.models.model import Model
from forerun.native import load
from forerun.targets.head import HeadScores
from forerun.targets.head_checks import check_context, check_head_rows, head_inputs
from forerun.targets.native_sequences import (
    NativeSequences,
    checked_threads,
    native_shape,
    room_for_logits,
)
from forerun.targets.native_weights import check_kinds, pack_ends, stored_part, vocabulary_part
from forerun.targets.pass_memory import PassMemory
from forerun.targets.protocol import Row
from forerun.targets.rotary_table import RotaryTable

if TYPE_CHECKING:
    from forerun import _native

__all__ = ["NativeHead"]

Array = NDArray[np.float32]
_WAY_OUT = "Choose a smaller model, or end other programs."


class NativeHead(NativeSequences):
    """Guesses what a target writes, with a head's packed weights.

    Safe to use from several Python threads, whose passes run one after the other, and in a process
    that is forked.

    Args:
        head: The head's file.
        model: The target, whose embedding the head shares with every live native target of it.
        context: Positions of rows are below this; None is what the model was trained for.
        threads: How many threads a pass runs on; None is one for each core the process may use.
        kv_bits: 16 or 32, of each number in the keys and values; None is 16.
        force: Take a head that was learned from another target, if its sizes fit.

    Raises:
        OptionError: The head is of another kind, or `context`, `threads` or `kv_bits` is out of
            range.
        OtherTargetError: The head was learned from another target, or does not fit this one.
        ModelFileError: The weights are damaged, or a file changed.
        NotEnoughMemoryError: The weights need more memory than there is.
        UnsupportedModelError: There are no kernels for a tensor's type.
        NativeModuleError: There is no compiled module.
    """

    def __init__(
        self,
        head: HeadFile,
        model: Model,
        *,
        context: int | None = None,
        threads: int | None = None,
        kv_bits: int | None = None,
        force: bool = False,
    ) -> None:
        super().__init__()
        head.check_kind(EAGLE)
        head.check_target(model, force=force)
        self._context = check_context(context, model)
        count = checked_threads(threads, kv_bits)
        check_kinds(head.file, head.file.tensor_names)
        network = model.architecture
        self._file, self._vocab_size = head, network.vocab_size
        try:
            entry, layer, ends = _pack_entry(head), _pack_layer(head), _pack_ends(head, model)
        except MemoryError:
            what = f"{head.file.path} needs more memory than the system gives."
            raise NotEnoughMemoryError(what, _WAY_OUT) from None
        self._weight_bytes = layer.nbytes + ends.nbytes
        self._pass: _native.Pass = load().Pass(
            native_shape(network), [layer], ends, kv_bits or 16, count, entry
        )
        self._rotary = RotaryTable(network.rope)
        self._memory = PassMemory(network.cut(1))

    @property
    def layers(self) -> tuple[int, ...]:
        """The target's layers whose hidden states are a position's features, in this order."""
        return self._file.facts.layers

    @property
    def tokens(self) -> NDArray[np.int64]:
        """The draft vocabulary: the target's token of each of the logits, ascending."""
        return self._file.facts.tokens

    @property
    def width(self) -> int:
        """Floats of a hidden state, and of a row's output."""
        return self._file.shape.width

    @property
    def context_length(self) -> int:
        """Positions of a row are below this."""
        return self._context

    @property
    def threads(self) -> int:
        """How many threads a pass runs on."""
        return self._pass.threads

    @property
    def weight_bytes(self) -> int:
        """Bytes of packed weights that a pass reads whose rows are all given what they know."""
        return self._weight_bytes

    def open(self) -> int:
        """Start an empty sequence, and return its name."""
        return self._add(self._pass.open())

    def score(
        self,
        rows: Sequence[Row],
        *,
        features: Array | None = None,
        given: Array | None = None,
        logits: Sequence[int] | None = None,
    ) -> HeadScores:
        """Score rows of one or many sequences in one pass; parents stand before their children.

        `Head.score` says what they are.

        Raises:
            EngineError: A row names an unknown sequence or token, or a wrong parent or position,
                or stands outside of the context; or there is not what each row needs.
            OptionError: The system refuses to start so many threads.
            NotEnoughMemoryError: So many rows need more memory than there is.
        """
        asked = len(rows) if logits is None else len(logits)
        known, others = head_inputs(self._file, len(rows), features, given)
        size = len(self.tokens)
        with self._lock:
            self._memory.check(len(rows), asked)
            try:
                room = room_for_logits(asked * size)
                outputs = np.empty((len(rows), self.width), dtype=np.float32)
                start = self._pass.score(
                    rows=rows,
                    sequences=self._sequences,
                    context=self._context,
                    turns=self._rotary.through,
                    asked=logits,
                    room=room,
                    layers=(1,),
                    hidden=(outputs,),
                    features=known,
                    given=others,
                )
            except MemoryError:
                raise self._memory.at_end(len(rows)) from None
            except OSError as error:
                what = f"threads = {self.threads}: the system starts no more of them ({error})."
                raise OptionError(what, "Choose fewer.") from None
            if start is None:
                every = range(len(rows)) if logits is None else logits
                lengths = self._lengths(rows)
                check_head_rows(rows, lengths, every, self._vocab_size, self._context)
                raise EngineError("The compiled pass refused rows that nothing is wrong with.")
        return HeadScores(room[start : start + asked * size].reshape(asked, size), outputs)


def _pack_entry(head: HeadFile) -> _native.EntryWeights:
    norm = head.file.tensor("layers.0.input_layernorm.weight")
    features = [stored_part(head.file, "fc.weight")]
    weights: _native.EntryWeights = load().EntryWeights(
        {"token_norm": norm}, {"features": features}
    )
    return weights


def _pack_layer(head: HeadFile) -> _native.LayerWeights:
    vectors = {
        "attention_norm": head.file.tensor("layers.0.hidden_norm.weight"),
        "inner_norm": head.file.tensor("layers.0.post_attention_layernorm.weight"),
    }
    names = {
        "qkv": ("self_attn.q", "self_attn.k", "self_attn.v"),
        "output": ("self_attn.o",),
        "gate_up": ("mlp.gate", "mlp.up"),
        "down": ("mlp.down",),
    }
    products = {
        product: [stored_part(head.file, f"layers.0.{part}_proj.weight") for part in parts]
        for product, parts in names.items()
    }
    weights: _native.LayerWeights = load().LayerWeights(vectors, products)
    return weights


def _pack_ends(head: HeadFile, model: Model) -> _native.EndWeights:
    """Return the target's embedding, and the head's own norm and rows of the vocabulary."""
    own = (
        stored_part(head.file, HEAD)
        if head.has_own_head
        else vocabulary_part(model.file, model.architecture, head.facts.tokens)
    )
    shared = pack_ends(model.file, model.architecture)
    weights: _native.EndWeights = load().EndWeights(
        {"norm": head.file.tensor("norm.weight")}, {"head": [own]}, shared
    )
    return weights
