"""What every target can do: score rows of many sequences in one pass, and keep only what held.

A pass scores *rows*. A row is one token at one position of one sequence; its parent is another row
of the same pass, or the sequence's committed end. Rows with one parent are siblings: a draft tree
is scored in one pass, each row seeing the sequence's committed tokens and its own ancestors only.
Nothing scored is kept until `commit` names the rows that stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

__all__ = ["Capabilities", "Encoder", "Row", "Scores", "Target"]


class Row(NamedTuple):
    """One token position to be scored.

    Attributes:
        sequence: Which sequence, as `Target.open` named it.
        token: The token at this position.
        position: 0-based; one more than the parent's.
        parent: Index in the same pass of the row before, or -1: the sequence's committed end.
    """

    sequence: int
    token: int
    position: int
    parent: int


@dataclass(frozen=True, slots=True)
class Scores:
    """What a pass returns.

    Attributes:
        logits: float32 [rows asked for, vocabulary]; row i scores the token *after* that row.
        hidden: For each layer asked for, float32 [rows of the pass, width]: the residual stream
            that enters the layer; layer index `num_layers` is what enters the final norm.
    """

    logits: NDArray[np.float32]
    hidden: Mapping[int, NDArray[np.float32]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Encoder:
    """What reads a prompt, where the target's texts are answers to it and don't go on from it.

    Attributes:
        context_length: Most tokens of a source.
        vocab_size: Tokens of a source are in [0, vocab_size).
        start: The tokens that every text begins with.
        banned: Tokens that the model never writes.
    """

    context_length: int
    vocab_size: int
    start: tuple[int, ...]
    banned: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a target can do, and what it promises.

    Attributes:
        trees: Sibling rows are allowed; otherwise chains only.
        exactness: "bitwise": a row's result never depends on the other rows of the pass.
        devices: Where it runs.
        name: What users choose it by, such as "native".
        threads: How many a pass runs on; what is done to its logits may use as many.
        layers: How many there are, each of which a pass may end after; 0: passes are whole.
        setting: All else that a pass's time depends on, in words.
        encoder: What reads a source, if anything does.
        reads_beside: Prompts are best read by passes that score other texts' rows, too: no row
            costs more for what stands beside it.
        pads: In a pass of several sequences each costs as many rows as the one that has most.
    """

    trees: bool
    exactness: Literal["bitwise", "same law"]
    devices: tuple[str, ...] = ("cpu",)
    name: str = ""
    threads: int = 1
    layers: int = 0
    setting: str = ""
    encoder: Encoder | None = None
    reads_beside: bool = False
    pads: bool = False


@runtime_checkable
class Target(Protocol):
    """The model whose output must be kept.

    Sequences are named by small integers. Between `score` and `commit` a sequence's scored rows
    are pending; the next `score`, `rollback` or `free` of that sequence drops them.
    """

    @property
    def vocab_size(self) -> int:
        """Number of tokens; every row of logits has this many."""
        ...

    @property
    def context_length(self) -> int:
        """Most tokens a sequence may hold."""
        ...

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights one pass reads."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What this target can do, and what it promises."""
        ...

    def open(self, prompt: Sequence[int] = (), source: Sequence[int] | None = None) -> int:
        """Start a sequence that holds `prompt`, and return its name.

        Args:
            prompt: Tokens scored and committed at once; may be empty.
            source: The encoder's input, for targets that have an encoder; None is the shortest
                there is, for passes that mean nothing.

        Raises:
            PromptError: The prompt is longer than the context or holds an unknown token, or the
                source is, or does, or is empty.
            CapabilityError: A source for a target without an encoder.
        """
        ...

    def length(self, sequence: int) -> int:
        """Return how many tokens of the sequence are committed."""
        ...

    def score(
        self,
        rows: Sequence[Row],
        *,
        logits: Sequence[int] | None = None,
        layers: Sequence[int] = (),
        until: int | None = None,
    ) -> Scores:
        """Score rows of one or many sequences in one pass; parents stand before their children.

        Args:
            rows: What to score.
            logits: Indices of the rows whose logits are wanted, in that order; None is all.
            layers: Layers whose hidden states are wanted.
            until: Run the first so many layers alone, then the final norm and the head: a guess
                at the logits, and cheap. Nothing of such a pass can be committed. None is all
                layers.

        Raises:
            EngineError: A row names an unknown sequence or token, or a wrong parent or position,
                or stands outside of the context; or there are not so many layers.
            CapabilityError: `until` is given, and this target's passes are whole.
        """
        ...

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        """Keep the rows of the last pass on `path` (indices, first to last) and drop the others.

        Raises:
            EngineError: The rows are not a path from the sequence's committed end.
        """
        ...

    def rollback(self, sequence: int, length: int) -> None:
        """Forget all but the first `length` committed tokens, and what is pending.

        Raises:
            EngineError: The sequence is not open, or holds fewer tokens.
        """
        ...

    def fork(self, sequence: int) -> int:
        """Return a new sequence with the same committed tokens; neither sees the other's future.

        Raises:
            EngineError: The sequence is not open.
        """
        ...

    def free(self, sequence: int) -> None:
        """Give the sequence's memory back; its name is no longer known.

        Raises:
            EngineError: The sequence is not open.
        """
        ...
