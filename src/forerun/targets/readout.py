"""What reads guesses out of one hidden state, and remembers nothing: heads without attention.

A *readout* is a small network learned from one target. It is given what some layer of the target
makes of a token, and says what may follow: for kind `medusa` the token after the next, the one
after that, and so on, each by a head of its own (Cai et al. 2024); for kind `exit` the next one
(Kangaroo, Liu et al. 2024, though its adapter attends as well).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from forerun.errors import EngineError
from forerun.models.head_file import HeadFile
from forerun.models.head_shapes import EXIT, MEDUSA, MedusaShape
from forerun.models.model import Model
from forerun.targets.row_exact import rms_norm, silu_gate

__all__ = ["FileReadout", "Product", "Readout"]

Array = NDArray[np.float32]
Product = Callable[[Array], Array]
"""Rows float32 [M, inputs] times a fixed matrix: float32 [M, outputs]."""


@runtime_checkable
class Readout(Protocol):
    """Guesses what a target writes from its hidden states."""

    @property
    def layer(self) -> int:
        """Whose hidden states, as `Scores.hidden` counts them."""
        ...

    @property
    def tokens(self) -> NDArray[np.int64]:
        """The draft vocabulary: the target's token of each of the logits, ascending."""
        ...

    @property
    def guesses(self) -> int:
        """How many tokens in a row it guesses from one state."""
        ...

    def read(self, hidden: Array) -> Array:
        """Return what may follow each of some tokens, float32 [rows, guesses, draft vocabulary].

        Args:
            hidden: float32 [rows, width]. A row's result depends on no other row.

        Raises:
            EngineError: It is of another shape.
        """
        ...


class FileReadout:
    """A readout whose weights are a head's file; who inherits says how it multiplies.

    Args:
        head: The file.
        model: The target, whose norm and head it shares.
        force: Take a head that was learned from another target, if its sizes fit.

    Raises:
        OptionError: The file's head is of another kind.
        OtherTargetError: The head was learned from another target, or does not fit this one.
        ModelFileError: The weights are damaged, or a file changed.
        UnsupportedModelError: A tensor's type cannot be read.
    """

    def __init__(self, head: HeadFile, model: Model, *, force: bool = False) -> None:
        head.check_kind(MEDUSA, EXIT)
        head.check_target(model, force=force)
        self._file, self._epsilon = head, model.architecture.norm_epsilon
        own = head.own_heads
        self._heads = [self.product(name) for name in own] or [self.targets_head(model)]
        if isinstance(head.shape, MedusaShape):
            places = range(head.shape.guesses)
            self._norm = model.file.tensor("output_norm.weight")
            self._first = self.product(*(f"{place}.0.linear.weight" for place in places))
            biases = [head.file.tensor(f"{place}.0.linear.bias") for place in places]
            self._bias = np.stack(biases)
        else:
            self._norm = head.file.tensor("input_layernorm.weight")
            self._first = self.product("mlp.gate_proj.weight", "mlp.up_proj.weight")
            self._down = self.product("mlp.down_proj.weight")
            self._last_norm = head.file.tensor("norm.weight")

    def product(self, *names: str) -> Product:
        """Return the product with some of the head's matrices, one below the other."""
        raise NotImplementedError

    def targets_head(self, model: Model) -> Product:
        """Return the product with the target's own rows of the draft vocabulary."""
        raise NotImplementedError

    @property
    def layer(self) -> int:
        """Whose hidden states it reads."""
        return self._file.facts.layers[0]

    @property
    def tokens(self) -> NDArray[np.int64]:
        """The draft vocabulary: the target's token of each of the logits, ascending."""
        return self._file.facts.tokens

    @property
    def guesses(self) -> int:
        """How many tokens in a row it guesses from one state."""
        shape = self._file.shape
        return shape.guesses if isinstance(shape, MedusaShape) else 1

    def read(self, hidden: Array) -> Array:
        """Return what may follow each of some tokens; `Readout.read` says more."""
        width = self._file.shape.width
        if hidden.ndim != 2 or hidden.shape[1] != width:
            raise EngineError(f"Hidden states are {hidden.shape}, not [rows, {width}].")
        rows = np.ascontiguousarray(hidden, dtype=np.float32)
        # Damaged weights may overflow; who reads the logits refuses what comes of it.
        with np.errstate(over="ignore", invalid="ignore"):
            if self._file.kind == MEDUSA:
                return self._logits(self._parallel(rows))
            return self._logits(self._fed_forward(rows)[:, None])

    def _parallel(self, rows: Array) -> Array:
        """Return what each head multiplies its rows with, [rows, guesses, width]."""
        x = rms_norm(rows, self._norm, self._epsilon)[:, None]
        u = self._first(x[:, 0]).reshape(len(rows), self.guesses, rows.shape[1]) + self._bias
        made: Array = x + u / (np.exp(-u) + np.float32(1))
        return made

    def _fed_forward(self, rows: Array) -> Array:
        normed = rms_norm(rows, self._norm, self._epsilon)
        made = rows + self._down(silu_gate(self._first(normed)))
        return rms_norm(made, self._last_norm, self._epsilon)

    def _logits(self, made: Array) -> Array:
        count, guesses, width = made.shape
        if len(self._heads) == 1:
            flat = self._heads[0](np.ascontiguousarray(made).reshape(count * guesses, width))
            return flat.reshape(count, guesses, len(self.tokens))
        each = [head(made[:, place]) for place, head in enumerate(self._heads)]
        return np.stack(each, axis=1)
