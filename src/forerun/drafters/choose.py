"""From a drafter's logits to a node's children: the one place where drafters meet chance.

Two ways, by what the request gives:

- noise (rule match): the tokens that rank highest in log q + g. The truncation filters stay out:
  a rank is no probability, and what top-k would drop from q the target may still keep in p. They
  propose points, for nothing is drawn: the same request always has the same children.
- coins (the other rules): drawn from q without replacement, q after the *whole* warp. Child j is
  drawn from q without its earlier siblings, renormalised, and that is the proposal it carries
  (Sequoia, Chen et al., 2024, on drawing without replacement). A token once drawn stays.

At temperature 0 nothing is drawn either way: the children are the likeliest tokens, as points.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from forerun.core.coins import Address, Coins
from forerun.core.noise import Domain
from forerun.core.proposal import Dense, Point, Proposal, Sparse
from forerun.core.warp import Scores, State, Warp, law, likeliest
from forerun.drafters.protocol import DraftRequest
from forerun.errors import EngineError

__all__ = ["choose"]

_SPARSE = 4  # a law on at most a 4th of the vocabulary is smaller as tokens and probabilities


def choose(
    request: DraftRequest, logits: NDArray[np.float32], state: State, depth: int, first: int
) -> list[tuple[int, Proposal]]:
    """Return the children of one node, at most `request.width` of them, in the order drawn.

    Args:
        request: Whose draft it is.
        logits: The drafter's, after the node, float32 [vocabulary]; -inf is never proposed.
        state: The warp's state at the node.
        depth: Drafted tokens that lead to the node; 0 at the root.
        first: Index that the first child will have in the draft; part of a coin's address.

    Returns:
        Distinct tokens, each with the law it was drawn from given those before it; none where the
        masks leave none of the drafter's tokens, or where the logits hold NaN or infinity.

    Raises:
        EngineError: The request has neither noise nor coins.
    """
    if not logits.max() < np.inf or _nothing_left(request.warp, logits, state):
        return []  # nor does one guess whose weights are damaged and overflow
    weighed = request.warp.weigh(logits, state)
    temperature = request.warp.sampling.temperature
    if temperature == 0:
        return _points(weighed, request.width)
    if request.noise is not None:
        noise = request.noise.gumbel(len(request.tokens) + depth, len(weighed))
        with np.errstate(over="ignore"):  # what falls to -inf at a tiny temperature can't rank
            log_q = (weighed - weighed.max()) / temperature
        return _points(log_q + noise, request.width)
    if request.coins is None:
        raise EngineError("A draft's request has neither noise nor coins.")
    addresses = [Address(request.round, first + j + 1, Domain.DRAFT) for j in range(request.width)]
    return _drawn(request.warp.scores(logits, state), request.coins, addresses)


def _nothing_left(warp: Warp, logits: NDArray[np.float32], state: State) -> bool:
    """Return whether no token is both known to the drafter and allowed by the masks.

    A target in this state is broken, and the warp says so; a drafter just has no guess.
    """
    known = ~np.isneginf(logits)
    if known.all():
        return False  # masks alone always leave something
    allowed = warp.weigh(np.zeros_like(logits), state) > -np.inf
    return not (known & allowed).any()


def _points(scores: Scores, width: int) -> list[tuple[int, Proposal]]:
    return [(token, Point(token)) for token in likeliest(scores, width)]


def _drawn(scores: Scores, coins: Coins, addresses: list[Address]) -> list[tuple[int, Proposal]]:
    """Return tokens drawn without replacement from exp(scores), one at each address."""
    left = np.flatnonzero(scores > -np.inf)
    children: list[tuple[int, Proposal]] = []
    for address in addresses[: len(left)]:
        probabilities = law(scores[left])
        index = coins.draw(address, probabilities)
        children.append((int(left[index]), _proposal(left, probabilities, len(scores))))
        left = np.delete(left, index)
    return children


def _proposal(
    tokens: NDArray[np.int64], probabilities: NDArray[np.float64], vocab_size: int
) -> Proposal:
    if len(tokens) * _SPARSE <= vocab_size:
        return Sparse(tokens, probabilities)
    dense = np.zeros(vocab_size)
    dense[tokens] = probabilities
    return Dense(dense)
