"""The transformers target: any language model of the transformers library, on any device.

Causal ones, and those with an encoder, which reads a text's source once.

A row's logits depend on its token, position and ancestors, up to rounding: the library's kernels
sum in another order for another shape. So the promise is *same law*. On a processor it can be
*bitwise*, at a price: `bitwise` cuts passes into calls of one shape (`transformers_fixed`).

What the model can do is found out at load (`transformers_probe`): trees where masks and positions
can be given, chains elsewhere, a refusal where keys and values can't be rolled back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from forerun.errors import (
    CapabilityError,
    NotEnoughMemoryError,
    OptionError,
    UnsupportedModelError,
)
from forerun.targets.checks import (
    PREFILL_ROWS,
    check_asked,
    check_prompt,
    check_rows,
    check_source,
    check_until,
    read_prompt,
)
from forerun.targets.protocol import Capabilities, Row, Scores
from forerun.targets.reference_sequences import Group, KeepsSlots, SlotSequences
from forerun.targets.transformers_fixed import ROWS, FixedBatch, is_steady, parts_of
from forerun.targets.transformers_network import Network, bytes_read
from forerun.targets.transformers_pass import Batch, Way
from forerun.targets.transformers_probe import ALLOWED, Plain, disagreement
from forerun.targets.transformers_products import is_faster_turned
from forerun.targets.transformers_refusals import (
    check_chains,
    check_model,
    encoder_of,
    longest_context,
)
from forerun.targets.transformers_slots import (
    StoredSequence,
    TensorStore,
    is_short_of_memory,
)
from forerun.targets.transformers_source import Source

__all__ = ["TransformersTarget"]

Array = NDArray[np.float32]
Indices = NDArray[np.int64]

# What a model may answer to a mask or a cache that it is not made for.
_REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError)


class Found(NamedTuple):
    """What a model can do.

    Attributes:
        way: How its passes are laid out.
        vocab_size: Logits of a row.
        has_layers: Whether a pass may end after any layer.
    """

    way: Way
    vocab_size: int
    has_layers: bool = False


class Asked(NamedTuple):
    """What is asked of a pass: `Target.score` says what each is."""

    rows: Sequence[Row]
    logits: Sequence[int]
    layers: Sequence[int]
    until: int | None


class TransformersTarget(KeepsSlots):
    """Scores rows of many sequences with a model that transformers runs.

    The model stays the user's: nothing of it is changed, and what it is changed by later counts.

    Args:
        model: A causal language model, or one with an encoder, in evaluation mode.
        context: Most tokens a sequence may hold; None is what the model has positions for.
        bitwise: A row's bits shall depend on its token, position and ancestors alone; on a
            processor only, chains only, and each call costs what one of 8 rows does.
        name: What the model is called in errors.

    Raises:
        OptionError: `context` is out of range, or the model is being trained.
        CapabilityError: `bitwise` is asked for, and can't be had.
        UnsupportedModelError: It keeps what cannot be rolled back, or nothing, from pass to pass;
            or its passes are not what its plain forward says.
        NotEnoughMemoryError: Not even a few tokens can be scored.
    """

    def __init__(
        self, model: Any, *, context: int | None = None, bitwise: bool = False, name: str = ""
    ) -> None:
        named = name or type(model).__name__
        check_model(model, named)
        longest = longest_context(model)
        if context is not None and not 1 <= context <= longest:
            what = f"context = {context}: {named} has positions for {longest}."
            raise OptionError(what, f"Choose 1 to {longest}.")
        self.model = model
        self._encoder = encoder_of(model, named)
        self._context = context or longest
        # Not asked anew: there are thousands of parameters, and a pass asks several times.
        self._devices = tuple(sorted({str(each.device) for each in model.parameters()}))
        self._weight_bytes = bytes_read(model)
        self._setting = ""
        self._network = Network(model)
        self._store = TensorStore()
        self._sequences = SlotSequences(lambda: StoredSequence(self._store))
        self._spare = 0  # blocks of keys more than needed, to see that they make no difference
        self._found = self._find_out(named, bitwise)
        how = [self._found.way, "turned" * self._network.is_turned, "flat" * self._network.is_flat]
        threads = torch.get_num_threads()
        self._setting = " ".join([str(model.dtype), *self._devices, str(threads), *how])

    @property
    def vocab_size(self) -> int:
        """Number of tokens; every row of logits has this many."""
        return self._found.vocab_size

    @property
    def context_length(self) -> int:
        """Most tokens a sequence may hold."""
        return self._context

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights one pass reads: all but embeddings that are looked up row by row."""
        return self._weight_bytes

    @property
    def capabilities(self) -> Capabilities:
        """What was found out at load."""
        return Capabilities(
            trees=self._found.way == "in place",
            exactness="bitwise" if self._found.way == "fixed" else "same law",
            devices=self._devices,
            name="transformers",
            layers=self._network.layers if self._found.has_layers else 0,
            setting=self._setting,
            encoder=self._encoder,
            reads_beside=self._network.is_flat,
            pads=not self._network.is_flat and self._found.way != "fixed",
        )

    def open(self, prompt: Sequence[int] = (), source: Sequence[int] | None = None) -> int:
        """Start a sequence that holds `prompt`, and return its name.

        The encoder reads the source here, if there is one; equal sources of texts that are open at
        the same time are read once.

        Raises:
            PromptError: The prompt is longer than the context or holds an unknown token, or the
                source is, or does, or is empty.
            CapabilityError: There is a source, and no encoder.
            NotEnoughMemoryError: They need more memory than there is.
        """
        check_prompt(prompt, None, self.vocab_size, self.context_length)
        if source is not None:
            check_source(source, self._encoder)
        read = None if self._encoder is None else self._read(source or [0])
        name = self._sequences.open()
        self._sequences.slots(name).source = read
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

        Where the device has too little memory for all sequences at once, they are scored in parts.

        Raises:
            EngineError: A row names an unknown sequence or token, a wrong parent or position, or
                stands outside the context; or `logits`, `layers` or `until` name what is not
                there.
            CapabilityError: `until` is given, and the model's layers can't be run alone; or rows
                branch, and it scores chains only.
            NotEnoughMemoryError: One sequence's rows need more memory than there is.
        """
        asked = Asked(rows, range(len(rows)) if logits is None else logits, layers, until)
        self._check(asked)
        found = np.empty((len(asked.logits), self.vocab_size), dtype=np.float32)
        shape = len(rows), self._network.width
        hidden = {layer: np.empty(shape, dtype=np.float32) for layer in layers}
        if rows:
            try:
                self._run(self._sequences.begin(rows), asked, (found, hidden))
            except BaseException:
                self._drop(rows)
                raise
        if until is not None:
            self._drop(rows)
        return Scores(found, hidden)

    def free(self, sequence: int) -> None:
        """Give the sequence's memory back; its name is no longer known."""
        self._sequences.free(sequence).free()
        if self._network.reader is not None:
            self._network.reader.let_go()

    def _read(self, source: Sequence[int]) -> Source:
        """Have the encoder read a source."""
        reader = self._network.reader
        assert reader is not None, "asked for by an encoder alone"
        try:
            return reader.read(source)
        except (RuntimeError, MemoryError) as error:
            if not is_short_of_memory(error):
                raise
            what = f"A prompt of {len(source)} tokens needs more memory than there is."
            raise NotEnoughMemoryError(what, "Shorten the prompt.") from error

    def _check(self, asked: Asked) -> None:
        num_layers = self.capabilities.layers
        check_until(asked.until, num_layers)
        if asked.layers and not self._network.path:
            raise CapabilityError("This model's layers were not found.", "Ask for logits alone.")
        lengths = self._sequences.lengths(asked.rows)
        check_rows(asked.rows, lengths, self.vocab_size, self.context_length)
        last = asked.until or self._network.layers
        check_asked(len(asked.rows), asked.logits, asked.layers, last)
        if self._found.way != "in place":
            check_chains(asked.rows)

    def _drop(self, rows: Sequence[Row]) -> None:
        """Forget what is pending of the rows' sequences."""
        for name in {row.sequence for row in rows}:
            self.rollback(name, self.length(name))

    def _find_out(self, name: str, bitwise: bool) -> Found:
        """Return what the model can do; each way is tried, the best one first."""
        if bitwise and not self._network.may_be_fixed:
            what = f"The same bits can't be had of {name}: not on a processor with attention sdpa."
            raise CapabilityError(what, "Leave bitwise out.")
        plain = self._network.plain
        size = plain([1, 2, 3], None if self._encoder is None else [0, 1]).shape[-1]
        allowed = ALLOWED.get(str(self.model.dtype).removeprefix("torch."), 0.1)
        if not bitwise and is_faster_turned(self.model):
            self._network.turn()
        tried: list[str] = []
        ways: tuple[Way, ...] = ("fixed",) if bitwise else self._network.ways
        for way in ways:
            self._found = Found(way, size)
            try:
                gap = disagreement(self, plain)
                if gap <= allowed:
                    self._found = self._settled(name) if bitwise else self._found
                    self._try_flat(plain, allowed)
                    return self._found._replace(has_layers=self._can_end_early())
                tried.append(f"{way}: {gap:.2g} of what its logits differ by among themselves")
            except _REFUSALS as error:
                tried.append(f"{way}: {str(error)[:120]}")
        what = f"Passes of {name} are not what its plain forward says ({'; '.join(tried)})."
        raise UnsupportedModelError(what, "Run it by transformers itself.")

    def _try_flat(self, plain: Plain, allowed: float) -> None:
        """Lay rows of several texts flat from now on, if that gives the same logits."""
        if self._found.way != "in place" or not self._network.may_be_flat:
            return
        self._network.flatten(True)
        try:
            is_right = disagreement(self, plain) <= allowed
        except _REFUSALS:
            is_right = False
        if not is_right:
            self._network.flatten(False)

    def _settled(self, name: str) -> Found:
        """Check that rows have the same bits beside any others, and return what was found."""

        def spare_blocks(count: int) -> None:
            self._spare = count

        if not is_steady(self, spare_blocks):
            what = f"The same bits can't be had of {name}: its rows depend on those beside them."
            raise CapabilityError(what, "Leave bitwise out.")
        return self._found

    def _can_end_early(self) -> bool:
        """Whether the model runs with its first layer alone."""
        if not self._network.path:
            return False
        self._found = self._found._replace(has_layers=True)
        name = self.open([1, 2])
        try:
            self.score([Row(name, 3, 2, -1)], until=1)
            return True
        except _REFUSALS:
            return False
        finally:
            self.free(name)

    def _run(
        self,
        groups: Sequence[Group[StoredSequence]],
        asked: Asked,
        results: tuple[Array, Mapping[int, Array]],
    ) -> None:
        """Run the rows of some sequences; in halves, where memory is short."""
        try:
            self._run_at_once(groups, asked, results)
            return
        except (RuntimeError, MemoryError) as error:
            if not is_short_of_memory(error):
                raise
            if len(groups) == 1:
                what = f"{len(groups[0].indices)} rows need more memory than there is."
                raise NotEnoughMemoryError(what, "Score fewer at once.") from error
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        half = len(groups) // 2
        self._run(groups[:half], asked, results)
        self._run(groups[half:], asked, results)

    def _run_at_once(
        self,
        groups: Sequence[Group[StoredSequence]],
        asked: Asked,
        results: tuple[Array, Mapping[int, Array]],
    ) -> None:
        if self._found.way == "fixed":
            for group in groups:
                self._run_in_parts(group, asked, results)
            return
        is_flat = self._network.is_flat
        batch = Batch(self._store, asked.rows, groups, self._found.way, may_be_flat=is_flat)
        mine = {index for group in groups for index in group.indices}
        wanted = [at for at, index in enumerate(asked.logits) if index in mine]
        places = batch.places[np.asarray([asked.logits[at] for at in wanted], dtype=np.intp)]
        columns, which = np.unique(places[:, 1], return_inverse=True)
        scored, seen = self._network(
            batch,
            self._found.way,
            columns=columns.tolist() or [0],
            watched=asked.layers,
            until=asked.until,
        )
        logits, hidden = results
        logits[wanted] = _picked(scored, places[:, 0], which)[:, : logits.shape[1]]
        own = sorted(mine)
        for layer, states in hidden.items():
            states[own] = _picked(seen[layer], *batch.places[own].T)

    def _run_in_parts(
        self,
        group: Group[StoredSequence],
        asked: Asked,
        results: tuple[Array, Mapping[int, Array]],
    ) -> None:
        """Run a sequence's rows in calls of one shape."""
        logits, hidden = results
        sequence, indices = group.slots, group.indices
        tokens = [asked.rows[index].token for index in indices]
        for part in parts_of(sequence.length, len(indices)):
            batch = FixedBatch(self._store, sequence, tokens, part, self._spare)
            scored, seen = self._network(
                batch, "fixed", columns=range(ROWS), watched=asked.layers, until=asked.until
            )
            for place in range(part.rows):
                index, column = indices[part.first + place], part.column + place
                row = scored[0, column, : logits.shape[1]].float().numpy()
                logits[[at for at, wanted in enumerate(asked.logits) if wanted == index]] = row
                for layer, states in hidden.items():
                    states[index] = seen[layer][0, column].float().numpy()


def _picked(tensor: torch.Tensor, first: Indices, second: Indices) -> Array:
    """Return tensor[first, second] as float32; only that leaves the device."""
    at = [torch.from_numpy(each).to(tensor.device) for each in (first, second)]
    picked: Array = tensor[at[0], at[1]].float().cpu().numpy()
    return picked
