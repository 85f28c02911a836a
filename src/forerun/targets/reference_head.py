"""The reference head: one learned layer in plain numpy, float32, row-exact.

It is the slow twin of the compiled one: the text to read when one asks what a head computes. Of
EAGLE-3 (Li et al. 2025) it has the features of several layers, and a first product that reads the
token's embedding and its parent's knowledge side by side, each with a norm of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.cache.kv_slots import KVSlots
from forerun.models.head_file import HEAD, HeadFile
from forerun.models.head_shapes import EAGLE
from forerun.models.model import Model
from forerun.targets.head import HeadScores
from forerun.targets.head_checks import check_context, check_head_rows, head_inputs
from forerun.targets.pass_memory import PassMemory
from forerun.targets.protocol import Row
from forerun.targets.reference_attention import ReferenceAttention
from forerun.targets.reference_sequences import KeepsSlots, SlotSequences
from forerun.targets.reference_weights import LayerWeights, load_ends
from forerun.targets.rotary_table import RotaryTable
from forerun.targets.row_exact import RowExactProduct, rms_norm, silu_gate

__all__ = ["ReferenceHead"]

Array = NDArray[np.float32]


class ReferenceHead(KeepsSlots):
    """Guesses what a target writes, with a head's dequantised weights.

    Args:
        head: The head's file.
        model: The target, whose embedding the head shares.
        context: Positions of rows are below this; None is what the model was trained for.
        force: Take a head that was learned from another target, if its sizes fit.

    Raises:
        OptionError: The head is of another kind, or `context` is less than 1 or more than the
            model was trained for.
        OtherTargetError: The head was learned from another target, or does not fit this one.
        ModelFileError: The weights are damaged, or a file changed.
        UnsupportedModelError: A tensor's type cannot be dequantised.
    """

    def __init__(
        self, head: HeadFile, model: Model, *, context: int | None = None, force: bool = False
    ) -> None:
        head.check_kind(EAGLE)
        head.check_target(model, force=force)
        network = model.architecture
        self._file, self._network = head, network
        self._context = check_context(context, model)
        self._ends = load_ends(model.file, network)
        self._layer = _read_layer(head)
        self._fuse = RowExactProduct(head.file.tensor("fc.weight"))
        self._entry_norm = head.file.tensor("layers.0.input_layernorm.weight")
        self._norm = head.file.tensor("norm.weight")
        tokens = head.facts.tokens
        own = head.file.tensor(HEAD) if head.has_own_head else self._ends.head.weight[tokens]
        self._head = RowExactProduct(own)
        self._rotary = RotaryTable(network.rope)
        self._attention = ReferenceAttention(network)
        self._memory = PassMemory(network.cut(1))
        shape = 1, network.num_kv_heads, network.head_dim
        self._sequences = SlotSequences(lambda: KVSlots(*shape))

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
        return self._network.width

    @property
    def context_length(self) -> int:
        """Positions of a row are below this."""
        return self._context

    def open(self) -> int:
        """Start an empty sequence, and return its name."""
        return self._sequences.open()

    def score(
        self,
        rows: Sequence[Row],
        *,
        features: Array | None = None,
        given: Array | None = None,
        logits: Sequence[int] | None = None,
    ) -> HeadScores:
        """Score rows of one or many sequences in one pass; parents stand before their children.

        `Head.score` says what they are; raises what it raises.

        Raises:
            EngineError: A row names an unknown sequence or token, or a wrong parent or position,
                or stands outside of the context; or there is not what each row needs.
            NotEnoughMemoryError: So many rows need more memory than there is.
        """
        asked = range(len(rows)) if logits is None else logits
        self._memory.check(len(rows), len(asked))
        network = self._network
        lengths = self._sequences.lengths(rows)
        check_head_rows(rows, lengths, asked, network.vocab_size, self._context)
        inputs = head_inputs(self._file, len(rows), features, given)
        try:
            # Damaged weights may overflow; who reads the logits refuses what comes of it.
            with np.errstate(over="ignore", invalid="ignore"):
                outputs = self._run(rows, *inputs)
                chosen = outputs[np.asarray(asked, dtype=np.intp)]
                scored = self._head(rms_norm(chosen, self._norm, network.norm_epsilon))
        except MemoryError:
            raise self._memory.at_end(len(rows)) from None
        return HeadScores(scored, outputs)

    def _run(self, rows: Sequence[Row], features: Array, given: Array) -> Array:
        """Return each row's output, float32 [rows, width]."""
        layer, epsilon = self._layer, self._network.norm_epsilon
        stream = np.concatenate([self._fuse(features), given])
        embedded = self._ends.embedding[np.asarray([row.token for row in rows], dtype=np.intp)]
        entered = rms_norm(embedded, self._entry_norm, epsilon)
        both = np.concatenate([entered, rms_norm(stream, layer.attention_norm, epsilon)], axis=1)
        turns = self._rotary([row.position for row in rows])
        groups = self._sequences.begin(rows)
        stream = stream + layer.output(self._attention(0, layer, both, turns, groups))
        normed = rms_norm(stream, layer.inner_norm, epsilon)
        outputs: Array = stream + layer.down(silu_gate(layer.gate_up(normed)))
        return outputs


def _read_layer(head: HeadFile) -> LayerWeights:
    """Return the head's one layer; its q, k and v read twice the width."""

    def product(*names: str) -> RowExactProduct:
        parts = [head.file.tensor(f"layers.0.{name}_proj.weight") for name in names]
        return RowExactProduct(np.concatenate(parts))

    return LayerWeights(
        attention_norm=head.file.tensor("layers.0.hidden_norm.weight"),
        qkv=product(*(f"self_attn.{letter}" for letter in "qkv")),
        qkv_bias=None,
        q_norm=None,
        k_norm=None,
        output=product("self_attn.o"),
        inner_norm=head.file.tensor("layers.0.post_attention_layernorm.weight"),
        gate_up=product("mlp.gate", "mlp.up"),
        down=product("mlp.down"),
    )
