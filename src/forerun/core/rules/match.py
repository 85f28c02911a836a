"""Rule `match`: a draft token stays if it is the token plain decoding would have written.

The target's token at a position is argmax(log p + g) with the position's own noise, so there is
nothing to correct: where no child carries the target's token, that token itself is the next one.
The text is plain decoding's, whatever the drafter did (docs/explain/exactness.md; the coupling
by shared Gumbel noise: Daliri, Musco, Suresh, 2024).
"""

from __future__ import annotations

from typing import Literal

from forerun.core.noise import Noise
from forerun.core.rules.verdict import Chance, Verdict
from forerun.core.scored import ScoredDraft
from forerun.core.tree import ROOT
from forerun.core.warp import Scores

__all__ = ["Match", "target_token"]


def target_token(scores: Scores, noise: Noise, position: int) -> int:
    """Return the target's token at `position`: argmax(log p + g), ties to the lowest id.

    Args:
        scores: Warped log-weights, float64 [vocabulary].
        noise: The text's noise.
        position: Of the token to be chosen.
    """
    return noise.draw(scores, position)


class Match:
    """Walk down the draft as long as a child carries the target's own token."""

    draws_from: Literal["noise"] = "noise"
    keeps_trees = True
    exact = True

    def verify(self, scored: ScoredDraft, chance: Chance) -> Verdict:
        """Decide."""
        draft, node = scored.draft, ROOT
        path: list[int] = []
        while True:
            line = draft.first_line(node)
            tokens = scored.along(line, chance.noise, scored.position + len(path))
            path += line[1 : len(tokens)]
            node, token = line[len(tokens) - 1], tokens[-1]
            child = draft.child(node, token)  # none of the line: the token has left it
            if child is None:
                failed = bool(draft.children(node))
                return Verdict(tuple(path), token, "corrected" if failed else "bonus")
            path.append(child)
            node = child
