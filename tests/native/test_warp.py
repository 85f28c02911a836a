"""The compiled warp: its scores, laws, tokens and log-probabilities are numpy's to the bit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from forerun import native
from forerun.config import Sampling
from forerun.core.noise import Noise
from forerun.core.scored import ScoredDraft
from forerun.core.softmax import exponential
from forerun.core.tree import ROOT, Draft
from forerun.core.warp import Place, State, Warp
from forerun.errors import EngineError, OptionError
from forerun.native import NativeNoise, NativeWarp, fast_warp, load

pytestmark = pytest.mark.usefixtures("each_instruction_set")

NEVER = -np.inf
Row = NDArray[np.float32]


def complaint(warp: Warp, row: Row, state: State) -> str | None:
    """What the warp says is wrong with a row."""
    try:
        warp.token(row, state, NativeNoise(1), 0)
    except EngineError as error:
        return str(error)
    return None


def same(row: Row, options: Sampling, output: Sequence[int] = (), *, least: int = 0) -> None:
    """Both twins agree on all that can be asked of a row, after a text that ends in `output`."""
    size = len(row)
    ours, fast = (twin(options, size, [size - 1], least) for twin in (Warp, NativeWarp))
    state = ours.start([0, size // 2])
    for token in output:
        state = state.advance(token)
    before = row.tobytes()
    told = complaint(ours, row, state)
    assert complaint(fast, row, state) == told
    if told is not None:
        return
    scores = ours.scores(row, state)
    assert fast.scores(row, state).tobytes() == scores.tobytes()
    assert fast.law(row, state).tobytes() == ours.law(row, state).tobytes()
    assert fast.log_normalisers(row[None], [0]) == ours.log_normalisers(row[None], [0])
    for position in range(3):
        expected = ours.token(row, state, Noise(9), position)
        assert fast.token(row, state, NativeNoise(9), position) == expected
    assert row.tobytes() == before


# ---- any row, any settings

logits = st.one_of(
    st.integers(-3, 3).map(float),
    st.floats(-40, 40, width=32),
    st.sampled_from([NEVER, -0.0, 3e38, -3e38, 1e-45, 1.0, 1.0000001]),
)
rows = st.lists(logits, min_size=1, max_size=150).map(lambda row: np.array(row, np.float32))
signed = st.floats(-5, 5)
filters = {
    "temperature": st.sampled_from([0.0, 5e-324, 1e-300, 0.5, 1.0, 1e3]) | st.floats(1e-3, 1e3),
    "top_k": st.sampled_from([0, 1, 2, 10**30]) | st.integers(0, 160),
    "top_p": st.sampled_from([1e-300, 0.25, 0.5, 1 - 2.0**-53, 1.0]) | st.floats(1e-6, 1),
    "min_p": st.sampled_from([0.0, 5e-324, 0.5, 1.0]) | st.floats(0, 1),
}
changes = {
    "repetition_penalty": st.sampled_from([0.5, 1.0, 2.0]) | st.floats(0.1, 10),
    "presence_penalty": signed,
    "frequency_penalty": signed,
}


@given(rows, st.fixed_dictionaries({}, optional=filters))
def test_rows_as_they_come_are_numpys(row: Row, values: dict[str, object]) -> None:
    """Any logits, ties, -inf and subnormal numbers among them, under any filters."""
    same(row, Sampling.make(**values))


@given(rows, st.fixed_dictionaries({}, optional=filters | changes), st.data())
def test_rows_with_all_that_changes_them_are_numpys(
    row: Row, values: dict[str, object], data: st.DataObject
) -> None:
    """Masks, bias, penalties and the ban of stops, on top of any filters."""
    tokens = st.integers(0, len(row) - 1)
    values["logit_bias"] = data.draw(st.dictionaries(tokens, signed | st.sampled_from([1e10])))
    values["banned_tokens"] = tuple(data.draw(st.lists(tokens, max_size=3)))
    output = data.draw(st.lists(tokens, max_size=6))
    least = data.draw(st.integers(0, 8))
    try:
        options = Sampling.make(**values)
        same(row, options, output, least=least)
    except OptionError:
        pass  # nothing is left to write: refused by both alike


@given(
    st.lists(st.floats(0, 1e308) | st.floats(0, 720), min_size=1, max_size=70).map(
        lambda numbers: -np.array(numbers)
    )
)
def test_exponentials_are_numpys(x: NDArray[np.float64]) -> None:
    """Any numbers up to 0, in whole registers and after them."""
    assert load().exponentials(x).tobytes() == exponential(x).tobytes()


# ---- rows as models have them, and rows to break shortcuts

KINDS = ["model", "flat", "near", "steps", "sharp", "half", "rising", "far"]


def row_of(kind: str, size: int) -> Row:
    """A row of some kind; its shape is noise."""
    noise = Noise(99).gumbel(0, size)
    made = {
        "model": 3 * noise,
        "flat": np.zeros(size),
        "near": 1e-6 * noise,
        "steps": np.round(2 * noise) / 2,
        "sharp": 30 * noise,
        "half": np.where(noise > 0.3, noise, NEVER),
        "rising": 1e-3 * np.arange(size),
        "far": 1e37 * noise,
    }[kind]
    return np.asarray(made, np.float32)


SETTINGS: list[dict[str, object]] = [
    {"temperature": 1},
    {"temperature": 0.8, "top_k": 40, "top_p": 0.95},
    {"temperature": 1, "top_k": 1000, "min_p": 0.01},
    {"temperature": 1, "top_p": 0.95},
    {"temperature": 1.5, "top_p": 0.999, "min_p": 1e-5},
    {"temperature": 0.7, "top_p": 1 - 2.0**-53},
    {"temperature": 1, "top_p": 0.5, "repetition_penalty": 1.3, "logit_bias": {1: 0.5}},
    {"temperature": 1000, "top_k": 5},
    {"temperature": 1e-5, "min_p": 0.5},
]


@pytest.mark.parametrize("size", [63, 64, 65, 4100, 49152])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_every_kind_are_numpys(kind: str, size: int) -> None:
    """Laws from one token to all of them, at sizes around the parts a row is looked at in."""
    for values in SETTINGS if size < 49152 else SETTINGS[1::2]:
        same(row_of(kind, size), Sampling.make(**values), [1, 5, 1])


@pytest.mark.parametrize("p", [1e-9, 0.25, 0.5, 0.75, 1 - 1e-12, 1 - 2.0**-53])
@pytest.mark.parametrize("size", [200, 256, 1024, 4096])
def test_top_p_that_is_reached_exactly_is_numpys(size: int, p: float) -> None:
    """Equal tokens in powers of two reach p to the bit: there the written order must decide."""
    same(row_of("flat", size), Sampling.make(temperature=1, top_p=p))
    row = row_of("flat", size)
    row[::2] = 1
    same(row, Sampling.make(temperature=1, top_p=p))


@pytest.mark.parametrize("temperature", [1.0, 0.3, 40.0])
def test_a_token_that_wins_by_a_hair_is_found(temperature: float) -> None:
    """What leaves tokens out by their words alone never leaves out a winner, however close."""
    options, size = Sampling(temperature=temperature), 128
    ours, fast = Warp(options, size), NativeWarp(options, size)
    wins = 0
    for seed in range(400):
        noise = Noise(seed)
        g = noise.gumbel(0, size)
        token = 64 + seed % 64
        row = np.full(size, NEVER, np.float32)
        row[0] = 0.0
        if g[token] > g[0]:  # so the first token, whose weight is the highest, is the one to beat
            row[token] = np.nextafter(np.float32((g[0] - g[token]) * temperature), np.float32(0))
        expected = ours.token(row, State(), noise, 0)
        assert fast.token(row, State(), NativeNoise(seed), 0) == expected
        wins += expected == token
    assert wins > 100


@pytest.mark.parametrize("k", [1, 2, 63, 64, 65, 150, 199, 200])
def test_top_k_at_a_tie_is_numpys(k: int) -> None:
    """Scores that only division makes equal are ties too."""
    row = np.float32(1) + np.arange(200, dtype=np.float32) % 7 * np.float32(2.0**-23)
    row[150] = np.float32(16)
    for temperature in (1, 3, 1000):
        same(row, Sampling.make(temperature=temperature, top_k=k))
        same(row, Sampling.make(temperature=temperature, top_k=k, logit_bias={3: 1e10}))


@pytest.mark.parametrize("place", [0, 5, 63, 64, 99])
@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_broken_rows_are_told_as_by_numpy(place: int, broken: float) -> None:
    """NaN and infinity anywhere, even under a mask; a row that leaves nothing."""
    row = np.zeros(100, np.float32)
    row[place] = broken
    for values in ({"temperature": 0}, {"temperature": 1}, {"banned_tokens": (place,)}):
        same(row, Sampling.make(**values))
    same(np.full(100, NEVER, np.float32), Sampling.make(temperature=1))
    same(np.where(np.arange(100) == place, 0, NEVER).astype(np.float32), Sampling.make(), least=1)


def test_zeros_have_one_sign() -> None:
    """Which of 0 and -0 is the highest can't be told from scores and log-probabilities."""
    for zeros in ([-0.0], [0.0, -0.0] * 40, [-0.0, 0.0] * 40):
        row = np.array(zeros, np.float32)
        same(row, Sampling.make(temperature=1))
        same(row, Sampling.make(temperature=1, top_k=3))
        for twin in (Warp, NativeWarp):
            ((highest, _),) = twin(Sampling.make(), len(row)).log_normalisers(row[None], [0])
            assert math.copysign(1, highest) == 1


# ---- several rows


@pytest.mark.parametrize("size", [1, 63, 1000])
@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_rows_are_normalised_alike_on_any_number_of_threads(size: int, threads: int) -> None:
    """Each as by itself, in the order asked for, some of them several times."""
    rows = np.stack([row_of("model", size) * (i + 1) for i in range(6)])
    fast = NativeWarp(Sampling.make(), size, threads=threads)
    asked = [5, 0, 0, 3, 1]
    found = fast.log_normalisers(rows, asked)
    assert found == Warp(Sampling.make(), size).log_normalisers(rows, asked)
    assert fast.log_normalisers(rows, []) == []
    alone = [fast.log_normalisers(rows[i : i + 1], [0])[0] for i in asked]
    assert found == alone


LINE = [Sampling.make(), Sampling.make(temperature=1), Sampling.make(temperature=1, top_p=0.9)]


@pytest.mark.parametrize("options", LINE)
@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("fails_at", [0, 1, 4, 5])
def test_tokens_along_a_line_are_those_of_each_place(
    options: Sampling, threads: int, fails_at: int
) -> None:
    """Up to the first guess that fails; what is behind it is right or left out."""
    rows = np.stack([row_of("model", 500) * (i + 1) for i in range(5)])
    fast, noise, state = NativeWarp(options, 500, threads=threads), NativeNoise(3), State()
    order = [2, 0, 4, 4, 1]
    alone = [fast.token(rows[row], state, noise, 7 + i) for i, row in enumerate(order)]
    guesses = [t + (i == fails_at) for i, t in enumerate(alone)]
    places = [
        Place(row, state, 7 + i, guess)
        for i, (row, guess) in enumerate(zip(order, guesses, strict=True))
    ]
    found = fast.tokens(rows, places, noise)
    needed = fails_at + 1
    assert found[:needed] == alone[:needed]
    assert all(f in (a, None) for f, a in zip(found, alone, strict=True))
    assert found[needed + threads - 1 :] == [None] * len(found[needed + threads - 1 :])


@pytest.mark.parametrize("options", [*LINE, Sampling.make(temperature=1, presence_penalty=2)])
def test_a_scored_draft_gives_both_twins_tokens(options: Sampling) -> None:
    """At all nodes of a tree, first along its lines and then in any order; a broken row is told."""
    draft = Draft.merged([[1, 2, 3, 4], [1, 5], [6, 7]], "test")
    rows = np.stack([row_of("model", 40) * (1 + i % 3) for i in range(len(draft) + 1)])
    for order in (range(ROOT, len(draft)), [*reversed(range(ROOT, len(draft)))]):
        slow, fast = (
            ScoredDraft(draft, rows, warp, warp.start([3]), 9)
            for warp in (Warp(options, 40), NativeWarp(options, 40, threads=2))
        )
        for node in order:
            line = draft.first_line(node)
            for position in (9 + draft.depth(node), 0):
                expected = slow.along(line, Noise(4), position)
                assert fast.along(line, NativeNoise(4), position) == expected
    rows[0, 7] = np.nan
    with pytest.raises(EngineError, match="NaN"):
        ScoredDraft(draft, rows, NativeWarp(options, 40), State(), 9).along(
            [ROOT], NativeNoise(1), 9
        )


def test_a_line_of_rows_that_are_not_there_is_an_error() -> None:
    """Memory outside of the logits is never touched."""
    warp, noise = NativeWarp(Sampling.make(), 4), NativeNoise(0)
    for row in (2, -1):
        with pytest.raises((ValueError, TypeError)):
            warp.tokens(np.zeros((2, 4), np.float32), [Place(row, State(), 0)], noise)
    with pytest.raises(ValueError, match="wrong size"):
        warp.tokens(np.zeros((2, 5), np.float32), [Place(0, State(), 0)], noise)


def test_callers_share_the_threads_or_do_without() -> None:
    """Of many threads that ask at once, with several numbers of threads, each gets its own."""
    rows = np.stack([row_of("model", 3000) * (i + 1) for i in range(8)])
    expected = Warp(Sampling.make(), 3000).log_normalisers(rows, range(8))
    warps = [NativeWarp(Sampling.make(), 3000, threads=1 + i % 4) for i in range(40)]
    with ThreadPoolExecutor(8) as callers:
        answers = callers.map(lambda warp: warp.log_normalisers(rows, range(8)), warps)
        assert all(answer == expected for answer in answers)


def test_rows_that_are_not_there_are_an_error() -> None:
    """Memory outside of the logits is never touched."""
    for row in (2, -1):
        with pytest.raises((ValueError, TypeError)):
            NativeWarp(Sampling.make(), 4).log_normalisers(np.zeros((2, 4), np.float32), [row])


# ---- the seam


def test_noise_from_elsewhere_is_asked() -> None:
    """A noise of another kind decides, as it does with the slow twin."""

    class Upside(Noise):
        def draw(self, scores: NDArray[np.float64], position: int) -> int:
            return int(np.argmin(scores))

    row = np.array([3, 1, 2], np.float32)
    assert NativeWarp(Sampling.make(temperature=1), 3).token(row, State(), Upside(0), 0) == 1


def test_rows_of_other_layouts_are_read() -> None:
    """A row that is a column, or reversed, is chosen from like its copy."""
    warp = NativeWarp(Sampling.make(temperature=1), 50)
    wide = row_of("model", 100)
    for row in (wide[::2], wide[50:][::-1]):
        assert warp.token(row, State(), NativeNoise(2), 0) == warp.token(
            row.copy(), State(), NativeNoise(2), 0
        )
        assert warp.log_normalisers(row[None], [0]) == warp.log_normalisers(row[None].copy(), [0])


def test_rows_of_doubles_are_left_to_numpy() -> None:
    """A target that scores in float64 loses no bit to the twin."""
    row = row_of("model", 50).astype(np.float64) * np.pi
    warp, slow = (twin(Sampling.make(temperature=1, top_p=0.9), 50) for twin in (NativeWarp, Warp))
    assert row.dtype == np.float64
    assert warp.scores(row, State()).tobytes() == slow.scores(row, State()).tobytes()
    assert warp.log_normalisers(row[None], [0]) == slow.log_normalisers(row[None], [0])
    assert warp.token(row, State(), NativeNoise(2), 0) == slow.token(row, State(), Noise(2), 0)


def test_a_text_with_an_unknown_token_is_an_error() -> None:
    """Memory outside of a row is never touched."""
    warp = NativeWarp(Sampling.make(presence_penalty=1), 4)
    for state in (State(prompt=frozenset([4]), counting=True), warp.start([0]).advance(4)):
        with pytest.raises(ValueError, match="outside of the vocabulary"):
            warp.scores(np.zeros(4, np.float32), state)
    with pytest.raises(ValueError, match="wrong size"):
        warp.scores(np.zeros(3, np.float32), State())


def test_without_the_module_numpy_warps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request's warp is the fast twin where it is there, and else the slow one."""
    assert type(fast_warp(Sampling.make(), 3)) is NativeWarp
    monkeypatch.setattr(native, "is_there", lambda: False)
    assert type(fast_warp(Sampling.make(), 3)) is Warp


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("fails_at", [0, 1, 3, 4])
@pytest.mark.parametrize("options", [*LINE, Sampling.make(temperature=1, logit_bias={3: 2.0})])
def test_the_normalisers_of_a_line_are_those_of_its_rows(
    options: Sampling, fails_at: int, threads: int
) -> None:
    """Of all places up to the first guess that fails, and of no place behind; tokens as without."""
    rows = np.stack([row_of("model", 500) * (i + 1) for i in range(5)])
    fast, noise, state = NativeWarp(options, 500, threads=threads), NativeNoise(3), State()
    alone = [fast.token(row, state, noise, 7 + i) for i, row in enumerate(rows)]
    guesses = [token + (i == fails_at) for i, token in enumerate(alone)]
    places = [Place(i, state, 7 + i, guess) for i, guess in enumerate(guesses)]
    needed = Warp(options, 500).log_normalisers(rows, range(fails_at + 1))
    found = fast.choose(rows, places, noise)
    assert found.normalisers == needed
    assert found.tokens == fast.tokens(rows, places, noise)
    first = fast.choose(rows, places[:1], noise)
    assert (first.tokens, first.normalisers) == (alone[:1], needed[:1])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("alone", [True, False])
def test_no_normaliser_is_told_of_a_row_without_a_law(temperature: float, alone: bool) -> None:
    """Nor of the rows behind it: the slow twin is asked about them."""
    rows = np.stack([row_of("model", 100)] * 2)
    rows[0, 7] = np.nan
    warp = NativeWarp(Sampling.make(temperature=temperature), 100, threads=2)
    places = [Place(i, State(), 7 + i, 3) for i in range(1 if alone else 2)]
    found = warp.choose(rows, places, NativeNoise(3))
    assert found.normalisers == []
    assert found.tokens[0] is None


def test_log_probabilities_of_a_scored_draft_are_the_slow_twins() -> None:
    """Of rows that tokens were chosen from, and of others, in any order."""
    draft = Draft.merged([[1, 2, 3], [1, 5]], "test")
    rows = np.stack([row_of("model", 300) * (1 + i % 3) for i in range(len(draft) + 1)])
    options = Sampling.make(temperature=1)
    warp = NativeWarp(options, 300, threads=2)
    scored = ScoredDraft(draft, rows, warp, warp.start([3]), 9)
    scored.along(draft.first_line(ROOT), NativeNoise(4), 9)
    nodes, tokens = [2, ROOT, 0, 3, 1], [5, 6, 7, 8, 9]
    slow = Warp(options, 300).log_probabilities_of(tokens, rows, [node + 1 for node in nodes])
    assert scored.log_probabilities(nodes, tokens) == slow
