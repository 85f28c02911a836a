"""The reference target: a Llama-type network in plain numpy, float32, row-exact.

It is the slow twin of every faster target: the text to read when one asks what a pass computes.
A row's logits depend, bit for bit, on its token, position and ancestors alone; never on the other
rows of the pass, their number or order, nor on how the prompt was split (`row_exact` says how).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forerun.cache.kv_slots import KVSlots
from forerun.errors import EngineError, OptionError
from forerun.events import LoadProgress
from forerun.models.model import Model
from forerun.targets.checks import (
    check_asked,
    check_prompt,
    check_rows,
    check_until,
    read_prompt,
)
from forerun.targets.loading import load_weights
from forerun.targets.pass_memory import PassMemory
from forerun.targets.protocol import Capabilities, Row, Scores
from forerun.targets.reference_weights import LayerWeights, dequantising
from forerun.targets.rotary_table import RotaryTable
from forerun.targets.row_exact import attend, rms_norm, rotate, silu_gate

__all__ = ["ReferenceTarget"]

Array = NDArray[np.float32]
_PREFILL_ROWS = 256


class _Group(NamedTuple):
    """The rows of one sequence in a pass: row i of the slots is row indices[i] of the pass."""

    slots: KVSlots
    indices: list[int]


class _Sequence:
    """One sequence: its slots, and where its rows stood in the last pass that had any."""

    def __init__(self, slots: KVSlots) -> None:
        self.slots = slots
        self.pending: dict[int, int] = {}


class ReferenceTarget:
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
        self._memory = PassMemory(architecture)
        self._sequences: dict[int, _Sequence] = {}
        self._next_name = 0

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
        name = self._add(self._new_slots())
        read_prompt(self, name, prompt, _PREFILL_ROWS)
        return name

    def length(self, sequence: int) -> int:
        """Return how many tokens of the sequence are committed."""
        return self._known(sequence).slots.length

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
                groups = self._begin(rows)
                stream, hidden = self._run_layers(rows, groups, layers, until)
                chosen = stream[np.asarray(asked, dtype=np.intp)]
                normed = rms_norm(chosen, self._ends.norm, self._architecture.norm_epsilon)
                if until is not None:
                    for name in {row.sequence for row in rows}:
                        self.rollback(name, self.length(name))  # drops what is pending
                return Scores(self._ends.head(normed), hidden)
        except MemoryError:
            raise self._memory.at_end(len(rows)) from None

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        """Keep the rows of the last pass on `path` (indices, first to last) and drop the others.

        Raises:
            EngineError: The rows are not a path from the sequence's committed end.
        """
        known = self._known(sequence)
        try:
            local = [known.pending[index] for index in path]
        except KeyError as error:
            raise EngineError(f"Row {error} is no pending row of sequence {sequence}.") from None
        known.slots.commit(local)
        known.pending = {}

    def rollback(self, sequence: int, length: int) -> None:
        """Forget all but the first `length` committed tokens."""
        known = self._known(sequence)
        known.slots.rollback(length)
        known.pending = {}

    def fork(self, sequence: int) -> int:
        """Return a new sequence with the same committed tokens; neither sees the other's future."""
        return self._add(self._known(sequence).slots.fork())

    def free(self, sequence: int) -> None:
        """Give the sequence's memory back; its name is no longer known."""
        self._known(sequence)
        del self._sequences[sequence]

    def _new_slots(self) -> KVSlots:
        shape = self._architecture
        return KVSlots(shape.num_layers, shape.num_kv_heads, shape.head_dim)

    def _add(self, slots: KVSlots) -> int:
        name = self._next_name
        self._next_name += 1
        self._sequences[name] = _Sequence(slots)
        return name

    def _known(self, sequence: int) -> _Sequence:
        try:
            return self._sequences[sequence]
        except KeyError:
            raise EngineError(f"Sequence {sequence} is not open.") from None

    def _check(
        self,
        rows: Sequence[Row],
        asked: Sequence[int],
        layers: Sequence[int],
        until: int | None,
    ) -> None:
        num_layers = self._architecture.num_layers
        check_until(until, num_layers)
        named = {row.sequence for row in rows} & self._sequences.keys()
        lengths = {name: self._sequences[name].slots.length for name in named}
        check_rows(rows, lengths, self.vocab_size, self.context_length)
        check_asked(len(rows), asked, layers, until or num_layers)

    def _begin(self, rows: Sequence[Row]) -> list[_Group]:
        """Tell each sequence its rows, with parents in its own numbering."""
        indices: dict[int, list[int]] = {}
        local: list[int] = []
        for index, row in enumerate(rows):
            group = indices.setdefault(row.sequence, [])
            local.append(len(group))
            group.append(index)
        groups = []
        for name, group in indices.items():
            known = self._sequences[name]
            parents = [rows[index].parent for index in group]
            known.slots.begin([-1 if parent < 0 else local[parent] for parent in parents])
            known.pending = {index: local[index] for index in group}
            groups.append(_Group(known.slots, group))
        return groups

    def _run_layers(
        self,
        rows: Sequence[Row],
        groups: Sequence[_Group],
        wanted: Sequence[int],
        until: int | None,
    ) -> tuple[Array, Mapping[int, Array]]:
        """Return the residual stream after the last layer, and as it enters the wanted ones."""
        layers = self._layers[:until]
        epsilon = self._architecture.norm_epsilon
        stream = self._ends.embedding[np.asarray([row.token for row in rows], dtype=np.intp)]
        turns = self._rotary([row.position for row in rows])
        hidden: dict[int, Array] = {}
        for index, weights in enumerate(layers):
            if index in wanted:
                hidden[index] = stream
            normed = rms_norm(stream, weights.attention_norm, epsilon)
            heads = self._attention(index, weights, normed, turns, groups)
            stream = stream + weights.output(heads)
            normed = rms_norm(stream, weights.inner_norm, epsilon)
            stream = stream + weights.down(silu_gate(weights.gate_up(normed)))
        if len(layers) in wanted:
            hidden[len(layers)] = stream
        return stream, hidden

    def _attention(
        self,
        index: int,
        weights: LayerWeights,
        normed: Array,
        turns: tuple[Array, Array],
        groups: Sequence[_Group],
    ) -> Array:
        """Return the heads' outputs side by side, float32 [M, num_heads × head_dim]."""
        shape = self._architecture
        queries, keys, values = self._project(weights, normed)
        if index not in shape.unturned_layers:
            rotate(queries, *turns, shape.rope.interleaved)
            rotate(keys, *turns, shape.rope.interleaved)
        queries *= np.float32(shape.head_dim**-0.5)
        # Query heads that share a key-value head are neighbours, and attend in one product.
        group = shape.num_heads // shape.num_kv_heads
        queries = queries.reshape(len(normed), shape.num_kv_heads, group, shape.head_dim)
        result = np.empty_like(queries)
        for slots, indices in groups:
            slots.put(index, keys[indices], values[indices])
            for row, place in enumerate(indices):
                result[place] = attend(queries[place], *slots.context(index, row))
        return result.reshape(len(normed), shape.num_heads * shape.head_dim)

    def _project(self, weights: LayerWeights, normed: Array) -> tuple[Array, Array, Array]:
        """Return queries, keys and values, each float32 [M, heads, head_dim]."""
        shape = self._architecture
        heads = weights.qkv(normed)
        if weights.qkv_bias is not None:
            heads = heads + weights.qkv_bias
        heads = heads.reshape(len(normed), heads.shape[1] // shape.head_dim, shape.head_dim)
        first, second = shape.num_heads, shape.num_heads + shape.num_kv_heads
        queries, keys, values = np.split(heads, (first, second), axis=1)
        queries, keys = np.ascontiguousarray(queries), np.ascontiguousarray(keys)
        if weights.q_norm is not None and weights.k_norm is not None:
            queries = rms_norm(queries, weights.q_norm, shape.norm_epsilon)
            keys = rms_norm(keys, weights.k_norm, shape.norm_epsilon)
        return queries, keys, values
