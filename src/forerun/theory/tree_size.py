"""How many nodes of a tree pay, if the likeliest are taken first."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from forerun.errors import OptionError
from forerun.theory import domain
from forerun.theory.speedup import PassCost, measured_speedup

__all__ = ["optimal_size", "speedup_of_tree"]


def speedup_of_tree(reached: Sequence[float], cost: float, pass_cost: PassCost) -> float:
    """The wall-time factor (1 + Σ_i r_i) / (v(n + 1) + n c) of a tree of n nodes.

    A round emits the root's own next token, and each node that is reached and right: of the
    expected number, Σ r_i, every node counts with the probability r_i that it stays in the text,
    the product of acceptances along its path (Sequoia, Chen et al., 2024, section 3.1; for a chain
    equation 1 of Leviathan et al., 2023).

    Args:
        reached: r_1 … r_n, each in [0, 1].
        cost: c, the drafter's time per node over the target's one-row pass, ≥ 0.
        pass_cost: v as a mapping or a function, v(1) = 1.

    Raises:
        OptionError: An argument outside its domain, or v has no value for 1 or n + 1 rows.
    """
    tokens = 1.0 + sum(domain.probability(f"reached[{i}]", r) for i, r in enumerate(reached))
    size = len(reached)
    # A tree of nodes that never hold is a chain of that length, in time.
    return tokens * measured_speedup(0.0, size, cost, pass_cost)


def optimal_size(reached: Sequence[float], cost: float, pass_cost: PassCost) -> int:
    """How many of the likeliest nodes to score, so that `speedup_of_tree` is largest.

    Every size is tried, since v need not be convex: a pass of 8 rows may cost hardly more than one
    of 6. Of equal factors the smallest tree wins; 0 is plain decoding.

    Args:
        reached: r_1 ≥ … ≥ r_n, each in [0, 1]. A node is never likelier than its parent, so the
            likeliest nodes always are a tree.
        cost: c, as above.
        pass_cost: v, as above.

    Raises:
        OptionError: An argument outside its domain, or `reached` rises.
    """
    if any(after > before for before, after in pairwise(reached)):
        raise OptionError(f"reached rises: {list(reached)}.", "Give the likeliest node first.")
    sizes = range(len(reached) + 1)
    return max(sizes, key=lambda size: speedup_of_tree(reached[:size], cost, pass_cost))
