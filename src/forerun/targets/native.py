"""The native target: a Llama-type network in C++, row-exact, on several threads.

`targets.reference` is its slow twin. A pass multiplies the file's own weights of 4 to 8 bits by
activations of 8 bits, one scale per 32 inputs; float weights by floats. A row's logits depend, bit
for bit, on its token, position and ancestors alone: not on the other rows of the pass, nor on how
the prompt was split, the number of threads, or which instructions the machine has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forerun.errors import EngineError, OptionError
from forerun.events import LoadProgress
from forerun.models.model import Model
from forerun.native import load
from forerun.targets.checks import (
    PREFILL_ROWS,
    check_asked,
    check_prompt,
    check_rows,
    check_until,
    read_prompt,
)
from forerun.targets.loading import load_weights
from forerun.targets.native_sequences import (
    NativeSequences,
    checked_threads,
    native_shape,
    room_for_logits,
)
from forerun.targets.native_weights import check_types, pack_head, packing
from forerun.targets.pass_memory import PassMemory
from forerun.targets.protocol import Capabilities, Row, Scores
from forerun.targets.rotary_table import RotaryTable

if TYPE_CHECKING:
    from forerun import _native

__all__ = ["NativeTarget", "Vocabulary"]

Array = NDArray[np.float32]


class Vocabulary(NamedTuple):
    """Some of the model's tokens, and the head for them.

    Attributes:
        tokens: [tokens] int64.
        head: Their rows of the head, packed.
    """

    tokens: NDArray[np.int64]
    head: _native.Head


class NativeTarget(NativeSequences):
    """Scores rows of many sequences with a model's packed weights.

    Safe to use from several Python threads, whose passes run one after the other, and in a process
    that is forked.

    Args:
        model: Which model; one cut to its first layers shares its weights with the whole one.
        context: Most tokens a sequence may hold; None is what the model was trained for.
        threads: How many threads a pass runs on; None is one for each core the process may use.
        kv_bits: 16 or 32, of each number in the keys and values; None is 16.
        progress: Called as the weights are packed.

    Raises:
        OptionError: `context`, `threads` or `kv_bits` is out of range.
        ModelFileError: The weights are damaged, or the file changed.
        NotEnoughMemoryError: The weights need more memory than there is.
        UnsupportedModelError: There are no kernels for a tensor's type.
        NativeModuleError: There is no compiled module.
    """

    def __init__(
        self,
        model: Model,
        *,
        context: int | None = None,
        threads: int | None = None,
        kv_bits: int | None = None,
        progress: Callable[[LoadProgress], None] | None = None,
    ) -> None:
        architecture = model.architecture
        trained = architecture.context_length
        if context is not None and not 1 <= context <= trained:
            what = f"context = {context}: {model.name} was trained for {trained}."
            raise OptionError(what, f"Choose 1 to {trained}.")
        count = checked_threads(threads, kv_bits)
        check_types(model.file, architecture)
        super().__init__()
        self.model = model
        self._architecture = architecture
        self._context = context or trained
        layers, ends = load_weights(model, packing, progress)
        self._weight_bytes = ends.nbytes + sum(layer.nbytes for layer in layers)
        self._row_bytes = ends.row_nbytes
        self._pass: _native.Pass = load().Pass(
            native_shape(architecture),
            layers,
            ends,
            kv_bits or 16,
            count,
        )
        self._rotary = RotaryTable(architecture.rope)
        self._memory = PassMemory(architecture)

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
        """Bytes of packed weights one pass reads: all layers, the final norm and the head."""
        return self._weight_bytes

    @property
    def row_bytes(self) -> int:
        """Bytes of weights that each row of a pass reads besides: its own embedding's, if any."""
        return self._row_bytes

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values that a pass reads for each token of a sequence."""
        return self._pass.kv_bytes_per_token

    @property
    def capabilities(self) -> Capabilities:
        """Trees, and bitwise exactness."""
        layers = self._architecture.num_layers
        return Capabilities(True, "bitwise", name="native", threads=self.threads, layers=layers)

    @property
    def threads(self) -> int:
        """How many threads a pass runs on."""
        return self._pass.threads

    def open(self, prompt: Sequence[int] = (), source: Sequence[int] | None = None) -> int:
        """Start a sequence that holds `prompt`, and return its name.

        Raises:
            PromptError: The prompt is longer than the context or holds an unknown token.
            CapabilityError: There is a source; this target has no encoder.
        """
        check_prompt(prompt, source, self.vocab_size, self.context_length)
        name = self._add(self._pass.open())
        read_prompt(self, name, prompt, PREFILL_ROWS)
        return name

    def score(
        self,
        rows: Sequence[Row],
        *,
        logits: Sequence[int] | None = None,
        layers: Sequence[int] = (),
        until: int | None = None,
        vocabulary: Vocabulary | None = None,
    ) -> Scores:
        """Score rows of one or many sequences in one pass; parents stand before their children.

        With a `vocabulary`, the logits are those of its tokens alone, in its order.

        Raises:
            EngineError: A row names an unknown sequence or token, a wrong parent or position, or
                stands outside the context; or `logits`, `layers` or `until` name what is not
                there.
            OptionError: The system refuses to start so many threads.
            NotEnoughMemoryError: So many rows need more memory than there is.
        """
        asked = len(rows) if logits is None else len(logits)
        tokens = self.vocab_size if vocabulary is None else len(vocabulary.tokens)
        with self._lock:
            self._memory.check(len(rows), asked)
            try:
                room = room_for_logits(asked * tokens)
                hidden = self._room_for(rows, layers)
                start = self._pass.score(
                    rows=rows,
                    sequences=self._sequences,
                    context=self._context,
                    turns=self._rotary.through,
                    asked=logits,
                    room=room,
                    layers=list(hidden),
                    hidden=list(hidden.values()),
                    head=None if vocabulary is None else vocabulary.head,
                    until=until,
                )
            except MemoryError:
                raise self._memory.at_end(len(rows)) from None
            except OSError as error:
                what = f"threads = {self.threads}: the system starts no more of them ({error})."
                raise OptionError(what, "Choose fewer.") from None
            if start is None:
                asked_rows = range(len(rows)) if logits is None else logits
                self._check(rows, asked_rows, layers, until)
                raise EngineError("The compiled pass refused rows that nothing is wrong with.")
        scored = room[start : start + asked * tokens].reshape(asked, tokens)
        return Scores(scored, hidden)

    def restrict(self, tokens: Sequence[int]) -> Vocabulary:
        """Pack the head for these tokens alone: passes that ask no others read less.

        Raises:
            EngineError: There is no token, or one that the model does not know.
            ModelFileError: The file changed since it was loaded.
        """
        chosen = np.asarray(tokens, dtype=np.int64)
        if not len(chosen) or chosen.min() < 0 or chosen.max() >= self.vocab_size:
            raise EngineError(f"A vocabulary of tokens 0 to {self.vocab_size - 1} is needed.")
        return Vocabulary(chosen, pack_head(self.model.file, self._architecture, chosen))

    def _check(
        self,
        rows: Sequence[Row],
        asked: Sequence[int],
        layers: Sequence[int],
        until: int | None,
    ) -> None:
        num_layers = self._architecture.num_layers
        check_until(until, num_layers)
        check_rows(rows, self._lengths(rows), self.vocab_size, self.context_length)
        check_asked(len(rows), asked, layers, until or num_layers)

    def _room_for(self, rows: Sequence[Row], layers: Sequence[int]) -> dict[int, Array]:
        """Make room for hidden states, each layer's once."""
        size = len(rows), self._architecture.width
        return {layer: np.empty(size, dtype=np.float32) for layer in layers}
