"""From logits to children: exact laws, ranks by plain search, and wrong versions that must fail."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from drafters.loop import every_outcome
from forerun.config import Sampling
from forerun.core.coins import Address, AddressedCoins, Coins
from forerun.core.noise import Domain, Noise
from forerun.core.proposal import Dense, Point, Proposal, Sparse
from forerun.core.warp import State, Warp, law, likeliest
from forerun.drafters.choose import choose
from forerun.drafters.protocol import DraftRequest
from forerun.errors import EngineError

Children = list[tuple[int, Proposal]]
Choose = Callable[[DraftRequest, NDArray[np.float32], State, int, int], Children]

LOGITS = np.array([0.3, 1.0, -0.5, 0.9, 0.0, -np.inf], dtype=np.float32)
V = len(LOGITS)


def asked(
    width: int, *, coins: Coins | None = None, seed: int = 5, **sampling: Any
) -> DraftRequest:
    made = Sampling.make(**{"temperature": 0.8, **sampling})
    noise = Noise(seed) if coins is None else None
    return DraftRequest(1, (0, 1, 2), 2, 4, width, Warp(made, V), State(), 6, noise, coins)


def check_law(chosen: Choose, **sampling: Any) -> None:
    """Assert that three children are drawn without replacement from q, each as it states."""
    q = law(Warp(Sampling.make(**{"temperature": 0.8, **sampling}), V).scores(LOGITS, State()))
    found: dict[tuple[int, ...], float] = {}

    def run(coins: Coins) -> Children:
        return chosen(asked(3, coins=coins, **sampling), LOGITS, State(), 1, 10)

    for probability, children in every_outcome(run):
        drawn = tuple(token for token, _ in children)
        found[drawn] = found.get(drawn, 0.0) + probability
        left = q.copy()
        for token, proposal in children:
            np.testing.assert_allclose(proposal.dense(V), left / left.sum(), atol=1e-12)
            left[token] = 0.0
    count = min(3, int(np.count_nonzero(q)))
    for drawn in itertools.permutations(map(int, np.flatnonzero(q)), count):
        expected, left = 1.0, q.copy()
        for token in drawn:
            expected *= left[token] / left.sum()
            left[token] = 0.0
        assert found.pop(drawn, 0.0) == pytest.approx(expected, abs=1e-12)
    assert not found


def check_ranks(chosen: Choose, **sampling: Any) -> None:
    """Assert that children are the first by log q + g, g the noise where they will stand."""
    for seed, depth, width in itertools.product(range(8), range(3), (1, 2, 3, V)):
        request = asked(width, seed=seed, **sampling)
        weighed = request.warp.weigh(LOGITS, State())
        g = Noise(seed).gumbel(len(request.tokens) + depth, V)
        log_q = np.log(
            law(weighed / request.warp.sampling.temperature),
            where=weighed > -np.inf,
            out=np.full(V, -np.inf),
        )
        finite = [x for x in range(V) if log_q[x] > -np.inf]
        ranked = sorted(finite, key=lambda x: (-(log_q[x] + g[x]), x))[:width]
        children = chosen(request, LOGITS, State(), depth, 10)
        assert children == [(x, Point(x)) for x in ranked]


FILTERS = [{}, {"top_k": 2}, {"top_p": 0.6}, {"min_p": 0.5}, {"banned_tokens": (1,)}, {"top_k": 1}]


@pytest.mark.parametrize("sampling", FILTERS)
def test_under_coins_children_are_drawn_without_replacement_from_the_warped_law(
    sampling: dict[str, Any],
) -> None:
    """By enumeration: joint law and stated proposals are q's without replacement, to 1e-12."""
    check_law(choose, **sampling)


@pytest.mark.parametrize("sampling", FILTERS)
def test_under_noise_children_rank_by_log_q_plus_g_without_truncation(
    sampling: dict[str, Any],
) -> None:
    """Masks count, top-k, top-p and min-p don't; -inf is never proposed."""
    check_ranks(choose, **sampling)


@pytest.mark.parametrize("coins", [None, AddressedCoins(3)])
def test_at_temperature_0_children_are_the_likeliest(coins: Coins | None) -> None:
    """Under either, points by rank of the weighed logits; chance is not asked."""
    request = asked(3, coins=coins, temperature=0.0, top_k=1, logit_bias={3: 0.5})
    assert choose(request, LOGITS, State(), 0, 0) == [(x, Point(x)) for x in (3, 1, 0)]
    level = np.zeros(V, dtype=np.float32)
    assert [x for x, _ in choose(request, level, State(), 0, 0)] == [3, 0, 1]


def test_penalties_follow_the_state_of_the_node() -> None:
    """The state given decides, not the root's."""
    request = asked(1, temperature=0.0, presence_penalty=2.0)
    start = request.warp.start([0])
    assert choose(request, LOGITS, start, 0, 0)[0][0] == 1
    assert choose(request, LOGITS, start.advance(1), 1, 1)[0][0] == 3


@pytest.mark.parametrize("coins", [None, AddressedCoins(3)])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nothing_left_after_masks_is_no_children(coins: Coins | None, temperature: float) -> None:
    """Where the drafter's only tokens are banned it has no guess."""
    logits = np.array([-np.inf, 2.0, -np.inf, 1.0, -np.inf, -np.inf], dtype=np.float32)
    request = asked(2, coins=coins, temperature=temperature, banned_tokens=(1, 3))
    assert choose(request, logits, State(), 0, 0) == []


def test_a_request_without_chance_is_refused() -> None:
    """Neither noise nor coins is a broken promise, not a silent default."""
    with pytest.raises(EngineError, match="neither noise nor coins"):
        choose(replace(asked(1), noise=None), LOGITS, State(), 0, 0)


def test_each_coin_stands_at_its_own_nodes_address() -> None:
    """Child j is drawn at (round, index + 1, draft)."""

    def run(coins: Coins) -> list[Address]:
        choose(asked(3, coins=coins), LOGITS, State(), 2, 10)
        return list(coins.addresses)  # type: ignore[attr-defined]

    for _, addresses in every_outcome(run):
        assert addresses == [Address(6, 10 + j + 1, Domain.DRAFT) for j in range(3)]


@pytest.mark.parametrize(("kept", "kind"), [(1, Sparse), (2, Dense)])
def test_a_narrow_law_is_stated_sparsely(kept: int, kind: type) -> None:
    """A law on at most a quarter of the vocabulary names its tokens; a wider one is dense."""
    request = asked(1, coins=AddressedCoins(3), top_k=kept)
    assert isinstance(choose(request, LOGITS, State(), 0, 0)[0][1], kind)


def test_a_law_that_underflows_is_still_drawn_from() -> None:
    """Tokens too unlikely for a float beside the first become likely once it is gone."""
    logits = np.array([0, -2000, -2001, -np.inf, -np.inf, -np.inf], dtype=np.float32)
    children = choose(asked(3, coins=AddressedCoins(3)), logits, State(), 0, 0)
    assert sorted(token for token, _ in children) == [0, 1, 2]
    assert children[0][0] == 0
    assert children[1][1].probability(1) == pytest.approx(1 / (1 + np.exp(-1 / 0.8)))


# Wrong versions. Each must be told from the right one by the checks above.


def truncating(
    r: DraftRequest, logits: NDArray[np.float32], s: State, depth: int, f: int
) -> Children:
    """Wrong: top-k under noise."""
    noise = Noise(r.noise.seed).gumbel(len(r.tokens) + depth, V)  # type: ignore[union-attr]
    return [(x, Point(x)) for x in likeliest(r.warp.scores(logits, s) + noise, r.width)]


def late(r: DraftRequest, logits: NDArray[np.float32], s: State, depth: int, f: int) -> Children:
    """Wrong: the noise of the position after."""
    return choose(r, logits, s, depth + 1, f)


def blind(r: DraftRequest, logits: NDArray[np.float32], s: State, depth: int, f: int) -> Children:
    """Wrong: ranks without the noise."""
    return [(x, Point(x)) for x in likeliest(r.warp.weigh(logits, s), r.width)]


def one_address(
    r: DraftRequest, logits: NDArray[np.float32], s: State, depth: int, f: int
) -> Children:
    """Wrong: all siblings drawn with the first one's number."""

    class Stuck:
        def draw(self, address: Address, weights: NDArray[np.float64]) -> int:
            assert r.coins is not None
            return r.coins.draw(Address(address.round, f + 1, address.purpose), weights)

    return choose(replace(r, coins=Stuck()), logits, s, depth, f)  # type: ignore[arg-type]


def replacing(
    r: DraftRequest, logits: NDArray[np.float32], s: State, depth: int, f: int
) -> Children:
    """Wrong: states the first child's law for all."""
    children = choose(r, logits, s, depth, f)
    return [(token, children[0][1]) for token, _ in children]


def withdrawing(
    r: DraftRequest, logits: NDArray[np.float32], s: State, depth: int, f: int
) -> Children:
    """Wrong: drops a token because it was unlikely."""
    return [(x, q) for x, q in choose(r, logits, s, depth, f) if q.probability(x) > 0.2]


@pytest.mark.parametrize("wrong", [late, blind, truncating])
def test_wrong_ranks_are_caught(wrong: Choose) -> None:
    """The check of ranks tells them from the right version."""
    with pytest.raises(AssertionError):
        check_ranks(wrong, top_k=2)


@pytest.mark.parametrize("wrong", [one_address, replacing, withdrawing])
def test_wrong_draws_are_caught(wrong: Choose) -> None:
    """The check of laws tells them from the right version."""
    with pytest.raises(AssertionError):
        check_law(wrong)


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_damaged_weights_guess_nothing(broken: float) -> None:
    """Logits that overflow are a drafter's own trouble: it drafts nothing, and the text goes on."""
    logits = LOGITS.copy()
    logits[1] = broken
    for coins in (None, AddressedCoins(5)):
        assert choose(asked(3, coins=coins), logits, State(), 1, 10) == []
