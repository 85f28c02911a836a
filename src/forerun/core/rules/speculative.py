"""Rule `speculative`: speculative sampling, token by token.

Leviathan, Kalman, Matias (2023), algorithm 1; Chen et al. (2023), algorithm 2.
"""

from __future__ import annotations

from typing import Literal

from forerun.core.coins import Address
from forerun.core.noise import Domain
from forerun.core.rules.residual import residual
from forerun.core.rules.verdict import Chance, Verdict
from forerun.core.scored import ScoredDraft

__all__ = ["Speculative"]


class Speculative:
    """Accept x with probability min(1, p(x)/q(x)), else draw from norm(max(0, p - q))."""

    draws_from: Literal["coins"] = "coins"
    keeps_trees = False
    exact = True

    def verify(self, scored: ScoredDraft, chance: Chance) -> Verdict:
        """Decide."""
        path: list[int] = []
        for child, node in enumerate(scored.draft.nodes):
            p, q = scored.law(node.parent), scored.q(child)
            ratio = float(p[node.token] / q[node.token])
            if not chance.coins.accept(Address(chance.round, child + 1, Domain.ACCEPT), ratio):
                place = Address(chance.round, node.parent + 1, Domain.RESIDUAL)
                return Verdict(tuple(path), chance.coins.draw(place, residual(p, q)), "corrected")
            path.append(child)
        end = path[-1] if path else -1
        token = chance.coins.draw(Address(chance.round, end + 1, Domain.BONUS), scored.law(end))
        return Verdict(tuple(path), token, "bonus")
