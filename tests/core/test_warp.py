"""The warp against a naive one in plain Python, its order stage by stage, and all it must refuse.

The judge below works on lists and sorts; it shares no code and no library with the warp.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from forerun.config import Sampling
from forerun.core.noise import Noise
from forerun.core.warp import State, Warp, keep_top_p, law, likeliest
from forerun.errors import EngineError, OptionError

pytestmark = pytest.mark.filterwarnings("error")  # an overflow on the way is noticed

NEVER = -math.inf
VOCAB = 6


# ---- the judge


def naive_weights(
    logits: Sequence[float], options: Sampling, prompt: Sequence[int], output: Sequence[int]
) -> list[float]:
    """Masks, bias, penalties: one token at a time, straight from their definitions."""
    result = []
    for token, logit in enumerate(logits):
        score = float(logit) + options.logit_bias.get(token, 0.0)
        if token in prompt or token in output:
            penalty = options.repetition_penalty
            score = score / penalty if score > 0 else score * penalty
        if token in output:
            score -= options.presence_penalty + options.frequency_penalty * output.count(token)
        is_allowed = options.allowed_tokens is None or token in options.allowed_tokens
        result.append(score if is_allowed and token not in options.banned_tokens else NEVER)
    return result


def naive_kept(scores: Sequence[float], options: Sampling) -> list[int]:
    """The tokens that temperature, top-k, top-p and min-p leave; assumes no near-tie at a border.

    Exact ties at a border are tested by hand below.
    """
    best_first = sorted(range(len(scores)), key=lambda token: (-scores[token], token))
    if options.temperature == 0:
        return best_first[:1]
    kept = best_first[: options.top_k] if options.top_k else best_first
    kept = [token for token in kept if scores[token] > NEVER]
    if options.top_p < 1:
        weights = [math.exp(scores[token]) for token in kept]
        reached, needed = 0.0, 0
        while needed < len(kept) and reached < options.top_p:
            reached += weights[needed] / math.fsum(weights)
            needed += 1
            assume(abs(reached - options.top_p) > 1e-12)
        kept = kept[:needed]
    if options.min_p > 0:
        relative = [scores[token] - scores[kept[0]] - math.log(options.min_p) for token in kept]
        assume(all(abs(distance) > 1e-12 or distance == 0 for distance in relative))
        kept = [t for t, distance in zip(kept, relative, strict=True) if distance >= 0]
    return kept


def naive_scores(
    logits: Sequence[float], options: Sampling, prompt: Sequence[int], output: Sequence[int]
) -> list[float]:
    weights = naive_weights(logits, options, prompt, output)
    best = max(weights)
    heat = options.temperature or 1.0
    scores = [divided(w - best, heat) for w in weights]
    kept = set(naive_kept(scores, options))
    return [score if token in kept else NEVER for token, score in enumerate(scores)]


def divided(number: float, by: float) -> float:
    return number / by if number > NEVER else NEVER


# ---- against the judge

tokens = st.integers(0, VOCAB - 1)
texts = st.lists(tokens, max_size=5)
# Small whole numbers for ties, any float32 for the rest, and what a model may rule out itself.
logit = st.one_of(
    st.integers(-2, 2).map(float), st.floats(-30, 30, width=32), st.sampled_from([NEVER, -0.0])
)
rows = st.lists(logit, min_size=VOCAB, max_size=VOCAB)
signed = st.sampled_from([0.0, -1.5, 0.25, 2.0]) | st.floats(-5, 5)
settings_ = st.fixed_dictionaries(
    {},
    optional={
        "allowed_tokens": st.lists(tokens, min_size=1).map(tuple),
        "banned_tokens": st.lists(tokens, max_size=3).map(tuple),
        "logit_bias": st.dictionaries(tokens, signed),
        "repetition_penalty": st.sampled_from([0.5, 1.0, 2.0]) | st.floats(0.1, 10),
        "presence_penalty": signed,
        "frequency_penalty": signed,
        "temperature": st.sampled_from([0.0, 1e-300, 0.5, 1.0, 1e3]) | st.floats(1e-3, 1e3),
        "top_k": st.sampled_from([0, 1, VOCAB, VOCAB + 1, 10**30]) | st.integers(0, VOCAB),
        "top_p": st.sampled_from([1e-300, 0.5, 1 - 2.0**-53, 1.0]) | st.floats(1e-6, 1),
        "min_p": st.sampled_from([0.0, 5e-324, 0.5, 1.0]) | st.floats(0, 1),
    },
)


@given(rows, settings_, texts, texts)
def test_the_warp_is_the_naive_warp(
    logits: list[float], values: dict[str, object], prompt: list[int], output: list[int]
) -> None:
    """The same tokens are left with the same scores, to the bit, under any settings and text."""
    options = Sampling.make(**values)
    weights = naive_weights(logits, options, prompt, output)
    assume(max(weights) > NEVER)
    warp = Warp(options, VOCAB)
    state = warp.start(prompt)
    for token in output:
        state = state.advance(token)
    row = np.array(logits, np.float32)
    assert warp.weigh(row, state).tolist() == weights
    scores = warp.scores(row, state)  # up to a constant
    expected = naive_scores(logits, options, prompt, output)
    assert (scores - scores.max()).tolist() == expected


@given(rows, settings_)
def test_the_law_is_a_softmax_of_what_is_left(
    logits: list[float], values: dict[str, object]
) -> None:
    """It sums to 1, orders tokens as their scores do, and is 0 exactly where nothing is left."""
    options = Sampling.make(**values)
    assume(max(naive_weights(logits, options, (), ())) > NEVER)
    warp = Warp(options, VOCAB)
    scores = warp.scores(np.array(logits, np.float32), warp.start(()))
    p = law(scores)
    assert abs(math.fsum(p) - 1) < 1e-15 * VOCAB
    assert not p[scores == NEVER].any()
    expected = [math.exp(s - max(scores)) for s in scores]
    assert p == pytest.approx([e / math.fsum(expected) for e in expected], rel=1e-13, abs=1e-300)


@given(
    st.lists(st.integers(-40, 40), min_size=VOCAB, max_size=VOCAB),
    settings_,
    texts,
    st.integers(-1000, 1000),
)
def test_a_constant_added_to_all_logits_changes_nothing(
    logits: list[int], values: dict[str, object], output: list[int], constant: int
) -> None:
    """Only the repetition penalty, which looks at the sign, may tell; whole numbers add exactly."""
    # Whole, so that no rounding hides a difference or makes one.
    whole = {name: 2.0 for name in ("presence_penalty", "frequency_penalty") if name in values}
    bias = {t: float(round(b)) for t, b in dict(values.get("logit_bias", {})).items()}  # type: ignore[call-overload]
    options = Sampling.make(**{**values, **whole, "logit_bias": bias, "repetition_penalty": 1})
    assume(max(naive_weights(logits, options, (), output)) > NEVER)
    warp = Warp(options, VOCAB)
    state = State(counting=True)
    for token in output:
        state = state.advance(token)
    row = np.array(logits, np.float32)
    shifted = row + np.float32(constant)
    assert np.array_equal(law(warp.scores(row, state)), law(warp.scores(shifted, state)))


# ---- the order, one test for each adjacent pair whose exchange can be seen


def kept(logits: Sequence[float], output: Sequence[int] = (), **values: object) -> list[int]:
    """The tokens that a warp leaves."""
    scores = scored(logits, output, **values)
    return np.flatnonzero(scores > NEVER).tolist()


def scored(logits: Sequence[float], output: Sequence[int] = (), **values: object) -> np.ndarray:
    warp = Warp(Sampling.make(**{"temperature": 1, **values}), len(logits))
    state = warp.start(())
    for token in output:
        state = state.advance(token)
    return warp.scores(np.array(logits, np.float32), state)


def logs(*law_: float) -> list[float]:
    return [math.log(p) for p in law_]


@pytest.mark.parametrize("masks", [{"banned_tokens": (1,)}, {"allowed_tokens": (0, 2)}])
def test_a_mask_holds_against_any_bias_and_penalty(masks: dict[str, object]) -> None:
    """What is banned, or not allowed, stays so however much is added to it."""
    assert kept([0, 0, 0], logit_bias={1: 1e10}, **masks) == [0, 2]
    assert kept([0, -5, 0], [1], repetition_penalty=0.01, presence_penalty=-100, **masks) == [0, 2]


def test_bias_comes_before_the_repetition_penalty() -> None:
    """(1 - 3) * 2 = -4; the other way round it were 1 / 2 - 3 = -2.5."""
    warp = Warp(Sampling.make(logit_bias={0: -3}, repetition_penalty=2), 2)
    weights = warp.weigh(np.array([1, 0], np.float32), warp.start([0]))
    assert weights.tolist() == [-4, 0]


def test_the_repetition_penalty_comes_before_the_others() -> None:
    """4 / 2 - 3 = -1; the other way round it were (4 - 3) / 2 = 0.5."""
    warp = Warp(Sampling.make(repetition_penalty=2, presence_penalty=1, frequency_penalty=2), 2)
    weights = warp.weigh(np.array([4, 0], np.float32), warp.start(()).advance(0))
    assert weights.tolist() == [-1, 0]


def test_penalties_come_before_the_temperature() -> None:
    """(2 - 1) / 2 = 0.5 above the other; the other way round they were level."""
    scores = scored([2, 0], [0], presence_penalty=1, temperature=2)
    assert scores.tolist() == [0, -0.5]


def test_top_k_does_not_care_about_the_temperature() -> None:
    """Dividing keeps the order, even where the quotient overflows: exchange cannot be seen."""
    for temperature in (1e-300, 0.1, 1, 1000):
        assert kept([0, 3, 1, 2], top_k=1, temperature=temperature) == [1]
    assert kept([0, 3, 1, 2], top_k=2, temperature=1000) == [1, 3]


def test_the_temperature_comes_before_top_p() -> None:
    """At temperature 2 the law (.64, .36) is (.57, .43): .6 of it needs both tokens."""
    assert kept(logs(0.64, 0.36), top_p=0.6, temperature=2) == [0, 1]
    assert kept(logs(0.64, 0.36), top_p=0.6) == [0]


def test_the_temperature_comes_before_min_p() -> None:
    """At temperature 2 a quarter as likely is half as likely."""
    assert kept(logs(0.8, 0.2), min_p=0.4, temperature=2) == [0, 1]
    assert kept(logs(0.8, 0.2), min_p=0.4) == [0]


@given(
    st.lists(st.sampled_from([-np.inf, -1.0, 0.0, 0.5, 2.0]), min_size=1, max_size=12),
    st.integers(1, 14),
)
def test_likeliest_is_a_stable_sort(scores: list[float], most: int) -> None:
    """Best first, ties by id, -inf never: as by sorting everything."""
    finite = [x for x in range(len(scores)) if scores[x] > -np.inf]
    assert likeliest(np.array(scores), most) == sorted(finite, key=lambda x: -scores[x])[:most]


def sorted_top_p(scores: NDArray[np.float64], p: float) -> list[int]:
    """What top-p keeps, by sorting all tokens."""
    order = np.argsort(-scores, kind="stable")
    reached = np.flatnonzero(np.cumsum(law(scores)[order]) >= p)
    return sorted((order[: reached[0] + 1] if len(reached) else order).tolist())


@pytest.mark.parametrize("p", [1e-9, 0.3, 0.9, 0.999, 1 - 1e-13, 1 - 2.0**-53])
@pytest.mark.parametrize("sharpness", [0.0, 0.01, 1.0, 6.0])
def test_top_p_keeps_what_sorting_all_tokens_keeps(p: float, sharpness: float) -> None:
    """Leaving out of the sort what cannot be kept changes nothing, ties included."""
    scores = np.round(sharpness * Noise(11).gumbel(0, 3000), 2)
    assert np.flatnonzero(keep_top_p(scores, p) > -np.inf).tolist() == sorted_top_p(scores, p)


@pytest.mark.parametrize(("size", "bits"), [(50, 47), (200, 43), (1000, 43), (2000, 42)])
def test_top_p_keeps_more_where_rounding_asks_for_it(size: int, bits: int) -> None:
    """Tokens too unlikely by a hair are kept where the others' rounded sum falls short."""
    p = 1 - 2.0**-bits
    scores = np.full(size, math.log((1 - p) / size) - 1e-3)
    scores[0] = 0.0
    assert np.flatnonzero(keep_top_p(scores, p) > -np.inf).tolist() == sorted_top_p(scores, p)


def test_top_k_comes_before_top_p() -> None:
    """Of (.4, .3, .3) top-k leaves (.57, .43), whose first token is .55; before, it was not."""
    assert kept(logs(0.4, 0.3, 0.3), top_k=2, top_p=0.55) == [0]
    assert kept(logs(0.4, 0.3, 0.3), top_p=0.55) == [0, 1]


def test_top_p_comes_before_min_p() -> None:
    """Of (.5, .3, .2) top-p .6 needs two tokens; after min-p the first alone had been .625."""
    assert kept(logs(0.5, 0.3, 0.2), top_p=0.6, min_p=0.5) == [0, 1]


# ---- ties and borders


@pytest.mark.parametrize("options", [{"temperature": 0}, {"top_k": 1}, {"top_p": 1e-300}])
def test_of_equal_logits_the_lowest_id_is_left(options: dict[str, object]) -> None:
    """All equal, equal by bias, equal at the top only: always the first."""
    assert kept([1, 1, 1], **options) == [0]
    assert kept([0, 3, 1, 3], **options) == [1]
    assert kept([0, 0, 0, 0], logit_bias={2: 1.5, 3: 1.5}, **options) == [2]
    assert kept([-0.0, 0.0], **options) == [0]


@pytest.mark.parametrize("k", range(1, 7))
def test_top_k_at_a_tie_keeps_the_lowest_ids(k: int) -> None:
    """Ordered by score, then id: 2, 0, 1, 4, 3."""
    assert kept([1, 1, 2, 0, 1], top_k=k) == sorted([2, 0, 1, 4, 3][:k])


def test_top_p_stops_where_it_is_reached_exactly() -> None:
    """Of four quarters, one half is two tokens, the lowest ids; a hair more is three."""
    assert kept([7, 7, 7, 7], top_p=0.5) == [0, 1]
    assert kept([7, 7, 7, 7], top_p=0.5 + 1e-12) == [0, 1, 2]
    assert kept([7, 7, 7, 7], top_p=1 - 2.0**-53) == [0, 1, 2, 3]
    assert kept([7, 7, 7, 7], top_p=1) == [0, 1, 2, 3]


def test_top_p_just_under_one_drops_only_what_has_no_mass() -> None:
    """A sum that rounding keeps under p keeps every token; one that reaches 1 needs no more."""
    assert kept([0, 0, -1000], top_p=1 - 2.0**-53) == [0, 1]
    tenths = kept(logs(*[0.1] * 10), top_p=1 - 2.0**-53)
    assert tenths == list(range(10))


def test_min_p_keeps_what_is_exactly_at_the_border() -> None:
    """At 1 all that equal the likeliest; at 0 everything, the impossible apart."""
    assert kept([3, 1, 3, NEVER], min_p=1) == [0, 2]
    assert kept([3, 1, -700, NEVER], min_p=0) == [0, 1, 2]
    assert kept([0, math.log(0.5)], min_p=0.5 * (1 + 1e-6)) == [0]
    assert kept([0, math.log(0.5)], min_p=0.5 * (1 - 1e-6)) == [0, 1]


def test_what_the_model_rules_out_stays_out() -> None:
    """A logit of -inf survives no setting, nor is it counted by top-k or top-p."""
    assert kept([NEVER, 0, NEVER, 1], top_k=3) == [1, 3]
    assert kept([NEVER, 0, NEVER, 1], top_p=1 - 2.0**-53, min_p=5e-324) == [1, 3]
    assert kept([NEVER, 0, NEVER, 1], logit_bias={0: 100}) == [1, 3]
    assert kept([NEVER, -9, NEVER], temperature=0) == [1]


@pytest.mark.parametrize("temperature", [5e-324, 1e-300])
def test_the_smallest_temperatures_are_nearly_zero_and_not_nan(temperature: float) -> None:
    """The likeliest token takes all; equal ones share."""
    logits = np.array([3e38, -3e38, 0, 3e38], np.float32)
    warp = Warp(Sampling.make(temperature=temperature), 4)
    assert law(warp.scores(logits, warp.start(()))).tolist() == [0.5, 0, 0, 0.5]


def test_the_largest_bias_takes_all() -> None:
    """Finite in, a law out."""
    assert law(scored([0, 0], logit_bias={0: 1e10, 1: -1e10})).tolist() == [1, 0]


# ---- the text so far


def test_presence_once_frequency_each_time_repetition_in_the_prompt_too() -> None:
    """Token 0 stands in the prompt, 1 once in the output, 2 twice, 3 nowhere."""
    options = Sampling.make(repetition_penalty=2, presence_penalty=1, frequency_penalty=0.25)
    warp = Warp(options, 4)
    state = warp.start([0, 0]).advance(2).advance(1).advance(2)
    weights = warp.weigh(np.array([8, 8, -8, 8], np.float32), state)
    assert weights.tolist() == [4, 4 - 1.25, -16 - 1.5, 8]


def test_forks_of_a_state_do_not_see_each_other() -> None:
    """Two children of a node, and the node itself, each count their own text."""
    warp = Warp(Sampling.make(presence_penalty=1), 3)
    row = np.zeros(3, np.float32)
    parent = warp.start(()).advance(0)
    one, other = parent.advance(1), parent.advance(2)
    deeper = one.advance(2)
    assert warp.weigh(row, parent).tolist() == [-1, 0, 0]
    assert warp.weigh(row, one).tolist() == [-1, -1, 0]
    assert warp.weigh(row, other).tolist() == [-1, 0, -1]
    assert warp.weigh(row, deeper).tolist() == [-1, -1, -1]
    assert [s.generated for s in (parent, one, other, deeper)] == [1, 2, 2, 3]


def test_the_warp_does_not_write_into_the_logits() -> None:
    """The rows belong to the target, which may score from the same memory again."""
    row = np.array([1, 2, 3], np.float32)
    row.setflags(write=False)
    options = Sampling.make(temperature=1, repetition_penalty=2, top_k=2, top_p=0.9, min_p=0.1)
    warp = Warp(options, 3, [2], min_tokens=1)
    warp.scores(row, warp.start([0]))
    assert row.tolist() == [1, 2, 3]


def test_no_stop_token_in_the_first_min_tokens() -> None:
    """With min_tokens 2 the first two tokens can't end the text, the third can."""
    warp = Warp(Sampling.make(), 4, stop_ids=[3, 1], min_tokens=2)
    row = np.array([0, 5, 1, 9], np.float32)
    state = warp.start(())
    left = []
    for _ in range(3):
        left.append(np.flatnonzero(warp.weigh(row, state) > NEVER).tolist())
        state = state.advance(0)
    assert left == [[0, 2], [0, 2], [0, 1, 2, 3]]


@pytest.mark.parametrize("stop_ids", [[9], [-1], [4, 2**40]])
def test_a_stop_id_outside_of_the_vocabulary_bans_nothing(stop_ids: list[int]) -> None:
    """A file may name an end token that no row scores; -1 is not the last token."""
    warp = Warp(Sampling.make(), 4, stop_ids=stop_ids, min_tokens=1)
    assert warp.weigh(np.zeros(4, np.float32), warp.start(())).tolist() == [0, 0, 0, 0]


# ---- refusals


@pytest.mark.parametrize("option", ["allowed_tokens", "banned_tokens", "logit_bias"])
@pytest.mark.parametrize("token", [-1, 4, 10**30])
def test_a_token_outside_of_the_vocabulary_is_refused(option: str, token: int) -> None:
    """By name, with the id and the range."""
    value: object = {token: 1.0} if option == "logit_bias" else (0, token)
    with pytest.raises(OptionError, match=rf"{option} names token {token}.*0 to 3"):
        Warp(Sampling.make(**{option: value}), 4)


@pytest.mark.parametrize(
    ("values", "min_tokens"),
    [
        ({"allowed_tokens": ()}, 0),
        ({"banned_tokens": (0, 1, 2, 3)}, 0),
        ({"allowed_tokens": (1, 2), "banned_tokens": (2, 1)}, 0),
        ({"allowed_tokens": (3,)}, 1),  # 3 ends the text
        ({"banned_tokens": (0, 1, 2)}, 1),
        ({"allowed_tokens": (1,), "banned_tokens": (1,), "logit_bias": {1: 100}}, 0),
    ],
)
def test_settings_that_leave_no_token_are_refused(
    values: dict[str, object], min_tokens: int
) -> None:
    """At once, not when the text reaches the place."""
    with pytest.raises(OptionError, match=r"no token to write.*Allow"):
        Warp(Sampling.make(**values), 4, stop_ids=[3], min_tokens=min_tokens)


def test_a_stop_token_may_be_all_that_is_left_later() -> None:
    """Without min_tokens the end token alone is a text, if an empty one."""
    warp = Warp(Sampling.make(allowed_tokens=(3,)), 4, stop_ids=[3])
    assert np.argmax(warp.scores(np.zeros(4, np.float32), warp.start(()))) == 3


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("broken", [math.nan, math.inf])
@pytest.mark.parametrize("banned", [(), (1,)])
def test_broken_logits_are_an_error(temperature: float, broken: float, banned: object) -> None:
    """NaN and +inf anywhere, even under a mask, never become a token."""
    warp = Warp(Sampling.make(temperature=temperature, banned_tokens=banned), 3)
    with pytest.raises(EngineError, match="NaN or infinity"):
        warp.scores(np.array([0, broken, 0], np.float32), warp.start(()))


@pytest.mark.parametrize("temperature", [0, 1])
def test_a_row_that_rules_everything_out_is_an_error(temperature: float) -> None:
    """All -inf, or all that may be written: there is no law, and token 0 is not one."""
    warp = Warp(Sampling.make(temperature=temperature, allowed_tokens=(1,)), 3, [0], 1)
    for row in ([NEVER] * 3, [5, NEVER, 5]):
        with pytest.raises(EngineError, match="no token that may be written"):
            warp.scores(np.array(row, np.float32), warp.start(()))


def test_the_boldest_options_keep_every_logit_finite() -> None:
    """An error in mid-round would end all texts that share the pass, so options can't cause one."""
    most = float(np.finfo(np.float32).max)
    for sign in (-1, 1):
        options = Sampling.make(
            logit_bias={0: sign * 1e10},
            repetition_penalty=100 if sign < 0 else 0.01,
            presence_penalty=-100 * sign,
            frequency_penalty=-100 * sign,
        )
        state = Warp(options, 2).start([0])
        for _ in range(100):
            state = state.advance(0)
        scores = Warp(options, 2).weigh(np.array([sign * most, 0], np.float32), state)
        assert np.isfinite(scores).all()


# ---- log-probabilities


def log_probabilities(logits: Sequence[float]) -> NDArray[np.float64]:
    return Warp(Sampling.make(), len(logits)).log_probabilities(np.array(logits, np.float32))


@given(st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=12))
def test_log_probabilities_are_the_log_softmax(logits: list[float]) -> None:
    """Of the logits as they came, and to the precision that these have."""
    best = max(logits)
    total = math.log(math.fsum(math.exp(x - best) for x in logits))
    found = log_probabilities(logits)
    assert found.dtype == np.float64
    assert found == pytest.approx([x - best - total for x in logits], rel=0, abs=3e-7)


def test_log_probabilities_of_far_logits_do_not_overflow() -> None:
    """Shifted before exponentiation; what the model rules out has -inf."""
    assert log_probabilities([3e38, 3e38, -3e38, NEVER]).tolist() == (
        pytest.approx([-math.log(2), -math.log(2), -6e38, NEVER], rel=1e-6)
    )


@given(st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=12), st.data())
def test_one_log_probability_is_one_of_all(logits: list[float], data: st.DataObject) -> None:
    """A token's own is, to the bit, what stands at its place in the row of all."""
    token = data.draw(st.integers(0, len(logits) - 1))
    row = np.array(logits, np.float32)
    rows = np.stack([row[::-1], row])
    one = Warp(Sampling.make(), len(logits)).log_probabilities_of([token], rows, [1])
    assert one == [log_probabilities(logits)[token]]


def test_a_token_is_drawn_from_the_warped_scores() -> None:
    """The token of a place is argmax(scores + noise) there, whatever was filtered."""
    row = np.array([0, 1, 2, 3, 2, 1], np.float32)
    warp = Warp(Sampling.make(temperature=2, top_k=3, banned_tokens=(3,)), 6)
    noise = Noise(5)
    for position in range(50):
        expected = int(np.argmax(warp.scores(row, State()) + noise.gumbel(position, 6)))
        assert warp.token(row, State(), noise, position) == expected
