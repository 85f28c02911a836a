"""Where a text ends, as the stopping criteria of transformers say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from forerun.core.stop import Pushed

__all__ = ["CriteriaStop"]


class CriteriaStop:
    """Watches one text; as `forerun.core.stop.Stop`.

    Args:
        criteria: Each called with what is written, [1, tokens], padding included, after each token.
        padded: The prompt's row, [1, tokens].
        longest: Most tokens of a row, its padding included.

    Attributes:
        ends: Tokens that end the text, as far as the criteria tell; for drafters to know.
    """

    def __init__(self, criteria: Sequence[Any], padded: torch.Tensor, longest: int | None) -> None:
        limits = [getattr(each, "max_length", None) for each in criteria]
        known = [limit for limit in (*limits, longest) if limit is not None]
        self._longest = min(known, default=padded.shape[1])
        # Nothing to ask there that counting does not tell.
        self._criteria = [each for each in criteria if type(each).__name__ != "MaxLengthCriteria"]
        self._written = padded.new_zeros((1, max(self._longest, padded.shape[1])))
        self._count = padded.shape[1]
        self._written[:, : self._count] = padded
        self.ends = _ends(criteria)

    @property
    def left(self) -> int:
        """How many tokens may still be written."""
        return self._longest - self._count

    def push(self, token: int) -> Pushed:
        """Take the next token of the text."""
        self._written[0, self._count] = token
        self._count += 1
        written = self._written[:, : self._count]
        met = [each for each in self._criteria if _is_met(each(written, None))]
        if met:
            return Pushed("", "stop", type(met[0]).__name__)
        if self.left <= 0:
            return Pushed("", "length", "max_length")
        return Pushed("")

    def finish(self) -> str:
        """Return nothing: no text is held back."""
        return ""


def _is_met(answer: Any) -> bool:
    return bool(answer.all()) if isinstance(answer, torch.Tensor) else bool(answer)


def _ends(criteria: Sequence[Any]) -> tuple[int, ...]:
    ends: set[int] = set()
    for each in criteria:
        named = getattr(each, "eos_token_id", None)
        if named is not None:
            ends |= set(torch.as_tensor(named).reshape(-1).tolist())
    return tuple(sorted(ends))
