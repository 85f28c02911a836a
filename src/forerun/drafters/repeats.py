"""What followed a text's last tokens where they stood before, in that text itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["LENGTHS", "Repeated", "Repeats"]

LENGTHS = (1, 2, 3, 4, 6)
"""How many of the last tokens stood before, at least, for each kind of repeat."""

_KIND = [0, *(sum(length <= agreed for length in LENGTHS) for agreed in range(1, LENGTHS[-1] + 1))]
_PLACES = 64  # of a token, the last so many are looked at


class Repeated(NamedTuple):
    """Tokens that may be repeated.

    Attributes:
        ids: Distinct ids in the draft vocabulary, int64 [n].
        kinds: Of each, by its longest agreement, the index in `LENGTHS`, int64 [n].
    """

    ids: NDArray[np.int64]
    kinds: NDArray[np.int64]


class Repeats:
    """One text, indexed as it grows.

    Args:
        places: Each token's id in the draft vocabulary, or -1, int64 [vocabulary].
    """

    def __init__(self, places: NDArray[np.int64]) -> None:
        self._places = places
        self._tokens: list[int] = []
        self._at: dict[int, list[int]] = {}  # where each token stands, ascending

    def __len__(self) -> int:
        """Return how many of the text's tokens it knows."""
        return len(self._tokens)

    def push(self, token: int) -> None:
        """Learn the text's next token."""
        self._at.setdefault(token, []).append(len(self._tokens))
        self._tokens.append(token)

    def cut(self, length: int) -> None:
        """Forget all but the first `length` tokens."""
        while len(self._tokens) > length:
            self._at[self._tokens.pop()].pop()

    def copy(self) -> Repeats:
        """Return one that knows the same, and shares nothing that changes."""
        twin = Repeats(self._places)
        twin._tokens = self._tokens.copy()
        twin._at = {token: at.copy() for token, at in self._at.items()}
        return twin

    def after(self, path: Sequence[int]) -> Repeated:
        """Return what may follow the text and some guesses behind it."""
        tokens, longest = self._tokens, LENGTHS[-1]
        last = [*tokens[-longest:], *path][: -longest - 1 : -1]  # the last token first
        found: dict[int, int] = {}
        if last:
            for at in reversed(self._at.get(last[0], ())[-_PLACES:]):
                if at + 1 == len(tokens):
                    continue
                id_ = int(self._places[tokens[at + 1]])
                agreed = 1
                while agreed < min(len(last), at + 1) and tokens[at - agreed] == last[agreed]:
                    agreed += 1
                if id_ >= 0:
                    found[id_] = max(found.get(id_, 0), agreed)
        kinds = [_KIND[agreed] - 1 for agreed in found.values()]
        return Repeated(np.array(list(found), dtype=np.int64), np.array(kinds, dtype=np.int64))
