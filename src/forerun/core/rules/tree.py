"""Rule `tree`: the general exact recursion over draft trees.

Each child was drawn from its proposal given its earlier siblings: with or without replacement, or
deterministically (a point proposal). Children are judged before their parent, so that a whole
subtree may save a node (Traversal Verification, Weng et al., 2025); on a chain this is block
verification. Proof sketch: a child is kept with probability min(Q, aP); what it leaves to the
target has mass S = sum max(0, aP - Q), what it leaves to be rejected S + 1 - a.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from forerun.core.coins import Address
from forerun.core.noise import Domain
from forerun.core.rules.residual import odds
from forerun.core.rules.verdict import Chance, Verdict
from forerun.core.scored import ScoredDraft
from forerun.core.tree import ROOT

__all__ = ["Tree"]


class Tree:
    """Accept leaf to root; what siblings leave of the target's law goes to the next."""

    draws_from: Literal["coins"] = "coins"
    keeps_trees = True
    exact = True

    def verify(self, scored: ScoredDraft, chance: Chance) -> Verdict:
        """Decide."""
        verdict = self._visit(ROOT, 1.0, scored, chance)
        assert verdict is not None, "the root is reached with certainty"
        return verdict

    def _visit(
        self, node: int, reach: float, scored: ScoredDraft, chance: Chance
    ) -> Verdict | None:
        """Return the verdict if it lies in this subtree, which must hold it with chance `reach`."""
        p = scored.law(node)
        children = scored.draft.children(node)
        for child in children:
            q, token = scored.q(child), scored.draft.nodes[child].token
            kept = min(1.0, reach * float(p[token]) / float(q[token]))
            verdict = self._visit(child, kept, scored, chance)
            if verdict is not None:
                return verdict
            left = np.maximum(reach * p - q, 0.0)
            total = float(left.sum())
            reach = odds(total, reach)
            p = left / total if total > 0 else p
        if not chance.coins.accept(Address(chance.round, node + 1, Domain.ACCEPT), reach):
            return None
        purpose = Domain.RESIDUAL if children else Domain.BONUS
        token = chance.coins.draw(Address(chance.round, node + 1, purpose), p)
        return Verdict(scored.draft.path(node), token, "corrected" if children else "bonus")
