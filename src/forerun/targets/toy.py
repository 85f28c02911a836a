"""A tabular Markov chain of any order: a target whose exact law is known.

Small enough to enumerate, strict enough to catch an engine's mistakes: `commit`, `rollback` and
`fork` are checked like any target's, and logits depend on the row's own last tokens only.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.core.noise import Noise
from forerun.errors import EngineError, OptionError
from forerun.targets.checks import check_asked, check_prompt, check_rows, check_until
from forerun.targets.protocol import Capabilities, Row, Scores

__all__ = ["HIDDEN", "ToyTarget"]

HIDDEN = 4
"""Width of a toy's hidden states."""


class ToyTarget:
    """Scores the next token from a table over the last `order` tokens.

    It has as many layers, each of which looks one token further back.

    Args:
        table: float32 [vocabulary] * order + [vocabulary]: logits after each context. Order 0 is
            one row: the same law everywhere. Shorter contexts are filled up with token 0.
        context: Most tokens a sequence may hold.
    """

    def __init__(self, table: NDArray[np.float32], context: int = 4096) -> None:
        sizes = set(table.shape)
        if len(sizes) != 1 or not np.isfinite(table).all():
            raise OptionError(
                f"A toy's table of shape {table.shape} is no Markov chain.",
                "Give finite logits of shape [V] or [V, ..., V, V].",
            )
        self.vocab_size = table.shape[-1]
        self.context_length = context
        self.weight_bytes = table.nbytes
        layers = table.ndim - 1
        self.capabilities = Capabilities(trees=True, exactness="bitwise", name="toy", layers=layers)
        self._table = table.astype(np.float32)
        back, token, at = np.indices((layers + 1, self.vocab_size, HIDDEN))
        codes = (token * (2 * at + 3) + 7 * back + at) % 11 / (8.0 * 4.0**back)
        self._codes = codes.astype(np.float32)
        self._sequences: dict[int, list[int]] = {}
        self._pending: dict[int, tuple[Row, ...]] = {}
        self._opened = 0

    @classmethod
    def random(
        cls, vocab_size: int, order: int, seed: int, *, sharpness: float = 1.5, context: int = 4096
    ) -> ToyTarget:
        """Return a toy whose logits are `sharpness` times noise addressed by `seed`."""
        rows = [Noise(seed).gumbel(i, vocab_size) for i in range(vocab_size**order)]
        table = sharpness * np.array(rows, dtype=np.float32)
        return cls(table.reshape((vocab_size,) * (order + 1)).astype(np.float32), context)

    def open(self, prompt: Sequence[int] = (), source: Sequence[int] | None = None) -> int:
        """Start a sequence that holds `prompt`."""
        check_prompt(prompt, source, self.vocab_size, self.context_length)
        self._opened += 1
        self._sequences[self._opened] = list(prompt)
        return self._opened

    def length(self, sequence: int) -> int:
        """Return how many tokens of the sequence are committed."""
        return len(self._tokens(sequence))

    def score(
        self,
        rows: Sequence[Row],
        *,
        logits: Sequence[int] | None = None,
        layers: Sequence[int] = (),
        until: int | None = None,
    ) -> Scores:
        """Score rows. What enters layer n is a code of the row's last n + 1 tokens."""
        check_until(until, self.capabilities.layers)
        lengths = {name: len(tokens) for name, tokens in self._sequences.items()}
        check_rows(rows, lengths, self.vocab_size, self.context_length)
        wanted = range(len(rows)) if logits is None else logits
        check_asked(len(rows), wanted, layers, until or self.capabilities.layers)
        for sequence in {row.sequence for row in rows}:
            self._pending[sequence] = tuple(rows) if until is None else ()
        scored = [self.logits_after(self._text(rows, i), until) for i in wanted]
        hidden = {layer: self._hidden(rows, layer) for layer in layers}
        made = np.array(scored, dtype=np.float32).reshape(len(scored), self.vocab_size)
        return Scores(made, hidden)

    def logits_after(self, tokens: Sequence[int], until: int | None = None) -> NDArray[np.float32]:
        """Return the logits of the token after `tokens`, float32 [vocabulary].

        Args:
            tokens: The text.
            until: Only so many of its last tokens are seen; None is `order`.
        """
        order = self._table.ndim - 1
        seen = order if until is None else until
        context = [0] * (order - seen) + ([0] * seen + list(tokens))[len(tokens) :]
        row: NDArray[np.float32] = self._table[tuple(context)]
        return row

    def hidden_after(self, tokens: Sequence[int], layer: int) -> NDArray[np.float32]:
        """Return what enters a layer after `tokens`, float32 [HIDDEN]: exact sums of codes."""
        state = np.zeros(HIDDEN, np.float32)
        for back, token in enumerate(tokens[: -layer - 2 : -1]):
            state += self._codes[back, token]
        return state

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        """Keep the pending rows on `path`."""
        tokens = self._tokens(sequence)
        rows = self._pending.pop(sequence, ())
        parent = -1
        for index in path:
            fits = 0 <= index < len(rows) and rows[index].sequence == sequence
            if not fits or rows[index].parent != parent:
                raise EngineError(f"Row {index} does not continue the path {list(path)}.")
            parent = index
        tokens += [rows[index].token for index in path]

    def rollback(self, sequence: int, length: int) -> None:
        """Forget all but the first `length` committed tokens."""
        tokens = self._tokens(sequence)
        if not 0 <= length <= len(tokens):
            raise EngineError(f"Can't roll {len(tokens)} tokens back to {length}.")
        self._pending.pop(sequence, None)
        del tokens[length:]

    def fork(self, sequence: int) -> int:
        """Return a new sequence with the same committed tokens."""
        return self.open(self._tokens(sequence))

    def free(self, sequence: int) -> None:
        """Forget the sequence."""
        self._tokens(sequence)
        self._pending.pop(sequence, None)
        del self._sequences[sequence]

    def _tokens(self, sequence: int) -> list[int]:
        if sequence not in self._sequences:
            raise EngineError(f"Sequence {sequence} is not open.")
        return self._sequences[sequence]

    def _hidden(self, rows: Sequence[Row], layer: int) -> NDArray[np.float32]:
        states = [self.hidden_after(self._text(rows, i), layer) for i in range(len(rows))]
        return np.array(states, dtype=np.float32).reshape(len(rows), HIDDEN)

    def _text(self, rows: Sequence[Row], index: int) -> list[int]:
        """Return the committed tokens, then the row's ancestors and the row itself."""
        ancestors: list[int] = []
        at = index
        while at != -1:
            ancestors.append(rows[at].token)
            at = rows[at].parent
        return self._tokens(rows[index].sequence) + ancestors[::-1]
