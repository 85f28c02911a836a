"""Rule `block`: block verification, the longest acceptance any chain rule can reach.

Sun et al. (2025), "Block verification accelerates speculative decoding", algorithm 2.
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
from forerun.core.warp import Law

__all__ = ["Block"]


class Block:
    """Decide on the whole chain at once: a late token may save an early one."""

    draws_from: Literal["coins"] = "coins"
    keeps_trees = False
    exact = True

    def verify(self, scored: ScoredDraft, chance: Chance) -> Verdict:
        """Decide."""
        nodes = scored.draft.nodes
        reach, survivor, survivor_reach = 1.0, ROOT, 1.0  # reach is the paper's p_i, capped
        for i, node in enumerate(nodes):
            p, q = scored.law(node.parent), scored.q(i)
            reach = min(1.0, reach * float(p[node.token]) / float(q[node.token]))
            # No break at the first failure: the longest prefix whose coin holds survives.
            address = Address(chance.round, i + 1, Domain.ACCEPT)
            if chance.coins.accept(address, self._odds(scored, i, reach)):
                survivor, survivor_reach = i, reach
        path = scored.draft.path(survivor)
        p = scored.law(survivor)
        if len(path) == len(nodes):
            address = Address(chance.round, survivor + 1, Domain.BONUS)
            return Verdict(path, chance.coins.draw(address, p), "bonus")
        left = self._left(scored, survivor, survivor_reach)
        address = Address(chance.round, survivor + 1, Domain.RESIDUAL)
        # Nothing left means p = q up to rounding; then p is what must be drawn from.
        return Verdict(path, chance.coins.draw(address, left if left.any() else p), "corrected")

    def _left(self, scored: ScoredDraft, i: int, reach: float) -> Law:
        """Return max(0, a_i p_{i+1} - q_{i+1}): unnormalised."""
        return np.maximum(reach * scored.law(i) - scored.q(i + 1), 0.0)

    def _odds(self, scored: ScoredDraft, i: int, reach: float) -> float:
        """Return h_i: the chance that the prefix up to node i survives if none longer does."""
        if i + 1 == len(scored.draft):
            return reach
        return odds(float(self._left(scored, i, reach).sum()), reach)
