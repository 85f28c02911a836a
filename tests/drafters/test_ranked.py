"""Laws of a few tokens: ranks against the whole vocabulary's, confidence by counting hits."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drafters.loop import Text
from forerun.config import Sampling
from forerun.core.noise import Noise
from forerun.core.tree import Draft
from forerun.core.warp import State, Warp, likeliest
from forerun.drafters.protocol import DraftRequest
from forerun.drafters.ranked import Listed, Ranker
from forerun.drafters.recycle import Recycle
from forerun.drafters.table import DrafterKit
from forerun.targets.toy import ToyTarget

V = 12
LOGITS = np.array([3.0, 2.5, 1.0, 0.7, 0.5, 0.2, 0.0, -0.5, -1.0, -1.5, -2.0, -3.0], np.float32)


def asked(warp: Warp, seed: int | None = 5, text: tuple[int, ...] = (0, 1)) -> DraftRequest:
    noise = None if seed is None else Noise(seed)
    return DraftRequest(1, text, 1, 4, 3, warp, State(), 0, noise)


def listed(count: int, temperature: float) -> Listed:
    rest = float(np.exp(LOGITS[count:] - LOGITS[0]).sum())
    return Listed.of_logits(range(count), LOGITS[:count].tolist(), rest, temperature)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.7])
def test_a_law_that_names_all_is_the_warps(temperature: float) -> None:
    """Probabilities, and the order of log q + g at every position."""
    warp = Warp(Sampling(temperature=temperature), V)
    law = listed(V, temperature)
    np.testing.assert_allclose(law.q, warp.law(LOGITS, State()), rtol=1e-6)
    assert law.rest == pytest.approx(0.0, abs=1e-12)
    for seed in range(20):
        ranked = Ranker(asked(warp, seed), "it").guesses(law, 7, V)
        scores = warp.scores(LOGITS, State()) + Noise(seed).gumbel(7, V)
        assert [guess.token for guess in ranked] == likeliest(scores, V)
        assert [guess.rank for guess in ranked] == list(range(V))


def test_greedy_guesses_rank_by_probability() -> None:
    """With it as confidence, whatever the noise; and so do guesses under rules with coins."""
    law = listed(3, 0.0)
    for sampling, seed in ((Sampling(), 5), (Sampling(temperature=1.0), None)):
        guesses = Ranker(asked(Warp(sampling, V), seed), "it").guesses(law, 7, 2, 0.5)
        assert [(g.token, g.drafter, g.rank) for g in guesses] == [(0, "it", 0), (1, "it", 1)]
        assert [g.confidence for g in guesses] == pytest.approx([0.5 * q for q in law.q[:2]])


@pytest.mark.parametrize("count", [2, 5])
def test_confidence_is_the_chance_that_nothing_unlisted_wins(count: int) -> None:
    """Given q = p: over 4,000 positions, all guesses' confidences sum to the hits, within 5 sigma.

    The variance of a sum of hits with these chances is at most a quarter of their number.
    """
    warp = Warp(Sampling(temperature=1.0), V)
    law, noise = listed(count, 1.0), Noise(11)
    ranker = Ranker(replace(asked(warp), noise=noise), "it")
    said = hits = 0.0
    for position in range(4000):
        guesses = ranker.guesses(law, position, V)
        best = max(np.array(law.log_q) + noise.at(position, law.tokens))
        chance = math.exp(-law.rest * math.exp(-best))
        assert sum(guess.confidence for guess in guesses) == pytest.approx(chance)
        said += sum(guess.confidence for guess in guesses)
        hits += guesses[0].token == warp.token(LOGITS, State(), noise, position)
    assert abs(said - hits) < 5 * math.sqrt(4000 / 4)


def test_the_rest_at_another_temperature_is_that_of_tokens_like_the_last() -> None:
    """Exactly, where they are; and the law is whole."""
    for temperature in (0.5, 1.0, 2.0):
        law = Listed.of_logits([0, 1], [2.0, 1.0], 7 * math.exp(-1.0), temperature)
        whole = np.exp(np.array([2.0] + [1.0] * 8) / temperature)
        assert law.q == pytest.approx((whole / whole.sum())[:2])
        assert sum(law.q) + law.rest == pytest.approx(1.0)


@pytest.mark.parametrize("temperature", [1e-6, 1e-3, 1e3])
def test_extreme_temperatures_are_no_trouble(temperature: float) -> None:
    """Probabilities stay numbers from 0 to 1, and so do confidences."""
    law = Listed.of_logits([3, 1, 2], [900.0, 1.0, -900.0], 3.0, temperature)
    warp = Warp(Sampling(temperature=temperature), V)
    for guess in Ranker(asked(warp), "it").guesses(law, 3, 3):
        assert 0.0 <= guess.confidence <= 1.0


samplings = st.fixed_dictionaries(
    {},
    optional={
        "logit_bias": st.dictionaries(st.integers(0, V - 1), st.sampled_from([-2.0, 1.5])),
        "banned_tokens": st.lists(st.integers(1, V - 2), max_size=3),
        "repetition_penalty": st.sampled_from([0.7, 1.3]),
        "presence_penalty": st.sampled_from([0.5, -0.5]),
        "frequency_penalty": st.sampled_from([0.4]),
    },
)


@settings(max_examples=200, deadline=None)
@given(samplings, st.lists(st.integers(0, V - 1), max_size=6), st.integers(0, 4))
def test_few_tokens_are_weighed_as_all_are(
    given_sampling: dict[str, Any], output: list[int], least: int
) -> None:
    """Masks, bias, penalties and stops: for any of them what `weigh` says."""
    warp = Warp(Sampling.make(**given_sampling), V, [0, 5], least)
    state = warp.start([1, 2, 2])
    for token in output:
        state = state.advance(token)
    tokens = [7, 0, 3, 5, 1, 2]
    few = warp.weigh_few(tokens, LOGITS[tokens].tolist(), state)
    assert few == warp.weigh(LOGITS, state)[tokens].tolist()
    if warp.is_plain:
        assert few == LOGITS[tokens].tolist()


def taught(target: ToyTarget, text: Text, tokens: list[int]) -> Recycle:
    """Return a recycler that has seen the text written plainly, token by token."""
    drafter = Recycle(DrafterKit(target.vocab_size, lambda: target))
    drafter.open(text.sequence, text.tokens)
    for _ in tokens:
        drafter.observe([text.take(Draft(), 1)])
    return drafter


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_recycle_knows_what_the_target_said_of_a_pair(temperature: float) -> None:
    """Of a target that looks at two tokens, its guesses for a known pair are the target's own."""
    target = ToyTarget.random(6, 2, 4)
    text = Text(1, [0, 1], target, sampling=Sampling(temperature=temperature))
    drafter = taught(target, text, [0] * 60)
    request = text.request()
    guesses = drafter.place(request).guesses(6)
    logits = target.logits_after(text.tokens)
    token = request.warp.token(logits, text.state, text.noise, len(text.tokens))
    assert guesses[0].token == token
    law = np.exp(logits - logits.max())
    if temperature == 0.0:
        assert guesses[0].confidence == pytest.approx(0.8 * law[token] / law.sum())


def test_recycle_learns_from_rows_whose_tokens_failed() -> None:
    """A node's row counts though its token was not the target's; it stands below its parent."""
    target = ToyTarget.random(6, 2, 4)
    text = Text(1, [0, 1], target, sampling=Sampling())
    drafter = Recycle(DrafterKit(6, lambda: target))
    drafter.open(1, text.tokens)
    drafter.observe([text.take(Draft.merged([(2, 3), (4,)], "x"), 9)])
    for pair in ((0, 1), (1, 2), (2, 3), (1, 4)):
        row = drafter._memories[1].by_two[pair]
        assert row.tokens[0] == int(np.argmax(target.logits_after([0, *pair])))
    assert set(drafter._memories[1].by_one) == {1, 2, 3, 4}


def test_recycle_falls_back_to_one_token() -> None:
    """A pair not seen yet is guessed by its last token, and trusted less; a new token by none."""
    target = ToyTarget.random(6, 1, 4)
    text = Text(1, [0, 1], target, sampling=Sampling())
    drafter = Recycle(DrafterKit(6, lambda: target))
    drafter.open(1, text.tokens)
    drafter.observe([text.take(Draft(), 1)])
    known = replace(text.request(), tokens=(0, 1))
    root = drafter.place(known)
    new = root.after(1)  # the pair 1, 1
    assert [g.token for g in new.guesses(3)] == [g.token for g in root.guesses(3)]
    assert new.guesses(1)[0].confidence < root.guesses(1)[0].confidence
    unseen = next(x for x in range(6) if x not in (1,))
    assert list(root.after(unseen).guesses(3)) == []


def test_rows_learned_further_on_are_rolled_back() -> None:
    """What stays is what was learned by then."""
    target = ToyTarget.random(6, 1, 4)
    text = Text(1, [0, 1], target, sampling=Sampling(temperature=1.0))
    drafter = taught(target, text, [0] * 30)
    memory = drafter._memories[1]
    before = {key: row.learned for key, row in memory.by_two.items()}
    length = sorted(row.learned for row in memory.by_one.values())[-1] - 1  # that row is to go
    drafter.rollback(1, length)
    assert {k: r.learned for k, r in memory.by_two.items()} == {
        key: learned for key, learned in before.items() if learned <= length
    }
    assert 0 < len(memory.by_two) < len(before)
    assert all(row.learned <= length for row in memory.by_one.values())
