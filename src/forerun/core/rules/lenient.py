"""Rule `lenient`: the one rule that changes the law, and says so.

Leviathan et al. (2023), section A.5: the proposal is multiplied by a lenience l in (0, 1] before
it is compared, so no token's probability grows beyond p(x) / l. At temperature 0 a token stays if
its probability before the argmax is at least l times the likeliest's.
"""

from __future__ import annotations

from typing import Literal

from forerun.core.coins import Address
from forerun.core.noise import Domain
from forerun.core.rules.residual import residual
from forerun.core.rules.verdict import Chance, Verdict
from forerun.core.scored import ScoredDraft

__all__ = ["Lenient"]


class Lenient:
    """Accept x with probability min(1, p(x) / (l q(x)))."""

    draws_from: Literal["coins"] = "coins"
    keeps_trees = False
    exact = False

    def __init__(self, lenience: float = 1.0) -> None:
        self.lenience = lenience

    def verify(self, scored: ScoredDraft, chance: Chance) -> Verdict:
        """Decide."""
        path: list[int] = []
        for child, node in enumerate(scored.draft.nodes):
            ratio = self._ratio(scored, child)
            if not chance.coins.accept(Address(chance.round, child + 1, Domain.ACCEPT), ratio):
                left = residual(scored.law(node.parent), scored.q(child))
                place = Address(chance.round, node.parent + 1, Domain.RESIDUAL)
                return Verdict(tuple(path), chance.coins.draw(place, left), "corrected")
            path.append(child)
        end = path[-1] if path else -1
        token = chance.coins.draw(Address(chance.round, end + 1, Domain.BONUS), scored.law(end))
        return Verdict(tuple(path), token, "bonus")

    def _ratio(self, scored: ScoredDraft, child: int) -> float:
        node = scored.draft.nodes[child]
        if scored.warp.sampling.temperature == 0:
            p = scored.ungreedy_law(node.parent)
            return 1.0 if p[node.token] >= self.lenience * p.max() else 0.0
        p, q = scored.law(node.parent), scored.q(child)
        return float(p[node.token] / (self.lenience * q[node.token]))
