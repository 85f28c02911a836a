"""SentencePiece-type merging by score, with byte fallback.

The text starts as single characters. Of all neighbours whose union is a token, the pair with the
best score is merged, the leftmost one at equal scores, until no pair is left. A character that is
no token becomes its bytes' tokens (Kudo and Richardson, "SentencePiece", 2018; byte-pair model).
The order depends on scores alone, which a list of merges cannot express when unions overlap; hence
this small implementation rather than the merges of the `tokenizers` library.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

__all__ = ["ScoreMerger"]

SPACE = "\u2581"
"""How a space is written inside tokens."""


class ScoreMerger:
    """Encodes plain text by merging the best-scored neighbours.

    Args:
        ids: Token text to id; only tokens that plain text may become.
        scores: By id; the higher the earlier merged.
        byte_ids: The token of each of the 256 bytes, or of none.
        unknown_id: What a character becomes that has neither a token nor byte tokens.
    """

    missing_bytes: frozenset[int] = frozenset()

    def __init__(
        self,
        ids: Mapping[str, int],
        scores: Sequence[float],
        byte_ids: Sequence[int],
        unknown_id: int | None,
    ) -> None:
        self._ids = ids
        self._scores = scores
        self._byte_ids = byte_ids
        self._unknown_id = unknown_id

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`, in time O(n log n)."""
        parts = list(text.replace(" ", SPACE))
        self._merge(parts)
        ids: list[int] = []
        for part in filter(None, parts):
            token = self._ids.get(part)
            if token is not None:
                ids.append(token)
            elif self._byte_ids:
                ids.extend(self._byte_ids[byte] for byte in part.encode())
            elif self._unknown_id is not None:
                ids.append(self._unknown_id)
        return ids

    def _merge(self, parts: list[str]) -> None:
        """Merge in place: the left part takes the union, the right one becomes empty."""
        size = len(parts)
        before, behind = list(range(-1, size - 1)), list(range(1, size + 1))
        queue: list[tuple[float, int, int, int]] = []

        def offer(left: int, right: int) -> None:
            if left >= 0 and right < size:
                union = parts[left] + parts[right]
                token = self._ids.get(union)
                if token is not None:
                    heapq.heappush(queue, (-self._scores[token], left, right, len(union)))

        for left in range(size - 1):
            offer(left, left + 1)
        while queue:
            _, left, right, length = heapq.heappop(queue)
            stale = not parts[left] or not parts[right]
            if stale or len(parts[left]) + len(parts[right]) != length:
                continue
            parts[left] += parts[right]
            parts[right] = ""
            behind[left] = behind[right]
            if behind[right] < size:
                before[behind[right]] = left
            offer(before[left], left)
            offer(left, behind[left])
