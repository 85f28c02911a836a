"""The reference target: a Llama-type network in plain numpy, float32, row-exact.

It is the slow twin of every faster target: the text to read when one asks what a pass computes.
A row's logits depend, bit for bit, on its token, position and ancestors alone; never on the other
rows of the pass, their number or order, nor on how the prompt was split (`row_exact` says how).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.cache.kv_slots import KVSlots
from forerun.errors import OptionError
from forerun.events import LoadProgress
from forerun.models.model import Model
from forerun.targets.checks import (
    PREFILL_ROWS,
    check_asked,
    check_prompt,
    check_rows,
    check_until,
    read_prompt,
)
from forerun.targets.loading import load_weights
from forerun.targets.pass_memory import PassMemory
from forerun.targets.protocol import Capabilities, Row, Scores
from forerun.targets.reference_attention import ReferenceAttention
from forerun.targets.reference_sequences import Group, KeepsSlots, SlotSequences
from forerun.targets.reference_weights import dequantising
from forerun.targets.rotary_table import RotaryTable
from forerun.targets.row_exact import rms_norm, silu_gate

__all__ = ["ReferenceTarget"]

Array = NDArray[np.float32]


class ReferenceTarget(KeepsSlots):
    """Scores rows of many sequences with a model's dequantised weights.

    Args:
        model: Which model; one cut to its first layers shares its weights with the whole one.
        context: Most tokens a sequence may hold; None is what the model was trained for.
        progress: Called as the weights are read.

    Raises:
        OptionError: `context` is less than 1 or more than the model was trained for.
        ModelFileError: The weights are damaged, or the file changed.
        NotEnoughMemoryError: The weights need more memory than there is.
        UnsupportedModelError: A tensor's type cannot be dequantised.
    """

    def __init__(
        self,
        model: Model,
        *,
        context: int | None = None,
        progress: Callable[[LoadProgress], None] | None = None,
    ) -> None:
        architecture = model.architecture
        if context is not None and not 1 <= context <= architecture.context_length:
            what = (
                f"context = {context}: {model.name} was trained for {architecture.context_length}."
            )
            raise OptionError(what, f"Choose 1 to {architecture.context_length}.")
        self.model = model
        self._architecture = architecture
        self._context = context or architecture.context_length
        self._layers, self._ends = load_weights(model, dequantising, progress)
        self._rotary = RotaryTable(architecture.rope)
        self._attention = ReferenceAttention(architecture)
        self._memory = PassMemory(architecture)
        shape = architecture.num_layers, architecture.num_kv_heads, architecture.head_dim
        self._sequences = SlotSequences(lambda: KVSlots(*shape))

    @property
    def vocab_size(self) -> int:
        """Number of tokens; every row of logits has this many."""
        return self._architecture.vocab_size

    @property
    def context_length(self) -> int:
        """Most tokens a sequence may hold."""
        return self._context

    @property
    def weight_bytes(self) -> int:
        """Bytes of float32 weights one pass reads: all layers, the final norm and the head."""
        ends = self._ends.norm.nbytes + self._ends.head.weight.nbytes
        return ends + sum(layer.nbytes for layer in self._layers)

    @property
    def capabilities(self) -> Capabilities:
        """Trees, and bitwise exactness."""
        layers = self._architecture.num_layers
        return Capabilities(trees=True, exactness="bitwise", name="reference", layers=layers)

    def open(self, prompt: Sequence[int] = (), source: Sequence[int] | None = None) -> int:
        """Start a sequence that holds `prompt`, and return its name.

        Raises:
            PromptError: The prompt is longer than the context or holds an unknown token.
            CapabilityError: There is a source; this target has no encoder.
        """
        check_prompt(prompt, source, self.vocab_size, self.context_length)
        name = self._sequences.open()
        read_prompt(self, name, prompt, PREFILL_ROWS)
        return name

    def score(
        self,
        rows: Sequence[Row],
        *,
        logits: Sequence[int] | None = None,
        layers: Sequence[int] = (),
        until: int | None = None,
    ) -> Scores:
        """Score rows of one or many sequences in one pass; parents stand before their children.

        Raises:
            EngineError: A row names an unknown sequence or token, a wrong parent or position, or
                stands outside the context; or `logits`, `layers` or `until` name what is not
                there.
            NotEnoughMemoryError: So many rows need more memory than there is.
        """
        asked = range(len(rows)) if logits is None else logits
        self._memory.check(len(rows), len(asked))
        try:
            self._check(rows, asked, layers, until)
            # A damaged file's weights may overflow; who reads the logits refuses what comes of it.
            with np.errstate(over="ignore", invalid="ignore"):
                groups = self._sequences.begin(rows)
                stream, hidden = self._run_layers(rows, groups, layers, until)
                chosen = stream[np.asarray(asked, dtype=np.intp)]
                normed = rms_norm(chosen, self._ends.norm, self._architecture.norm_epsilon)
                if until is not None:
                    for name in {row.sequence for row in rows}:
                        self.rollback(name, self.length(name))  # drops what is pending
                return Scores(self._ends.head(normed), hidden)
        except MemoryError:
            raise self._memory.at_end(len(rows)) from None

    def _check(
        self,
        rows: Sequence[Row],
        asked: Sequence[int],
        layers: Sequence[int],
        until: int | None,
    ) -> None:
        num_layers = self._architecture.num_layers
        check_until(until, num_layers)
        check_rows(rows, self._sequences.lengths(rows), self.vocab_size, self.context_length)
        check_asked(len(rows), asked, layers, until or num_layers)

    def _run_layers(
        self,
        rows: Sequence[Row],
        groups: Sequence[Group[KVSlots]],
        wanted: Sequence[int],
        until: int | None,
    ) -> tuple[Array, Mapping[int, Array]]:
        """Return the residual stream after the last layer, and as it enters the wanted ones."""
        layers = self._layers[:until]
        epsilon, unturned = self._architecture.norm_epsilon, self._architecture.unturned_layers
        stream = self._ends.embedding[np.asarray([row.token for row in rows], dtype=np.intp)]
        turns = self._rotary([row.position for row in rows])
        hidden: dict[int, Array] = {}
        for index, weights in enumerate(layers):
            if index in wanted:
                hidden[index] = stream
            normed = rms_norm(stream, weights.attention_norm, epsilon)
            own_turns = None if index in unturned else turns
            heads = self._attention(index, weights, normed, own_turns, groups)
            stream = stream + weights.output(heads)
            normed = rms_norm(stream, weights.inner_norm, epsilon)
            stream = stream + weights.down(silu_gate(weights.gate_up(normed)))
        if len(layers) in wanted:
            hidden[len(layers)] = stream
        return stream, hidden
