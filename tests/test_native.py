"""The compiled module: its noise and its draws are numpy's to the bit, and its absence is told."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from forerun import native
from forerun.core.noise import Noise, _gumbel, uniform
from forerun.errors import NativeModuleError, OptionError
from forerun.native import NativeNoise, fast_noise, load, use_instructions

pytestmark = pytest.mark.usefixtures("each_instruction_set")

WORD = 2**32 - 1
EXTREMES = [0, 1, 2, 255, 256, 257, 4095, 4096, 2**31 - 1, 2**31, 2**31 + 1, WORD - 1, WORD]
seeds = st.integers(0, 2**64 - 1)
words = st.integers(0, WORD) | st.sampled_from(EXTREMES)


# ---- noise


def same_noise(seed: int, sample: int, position: int, vocab_size: int) -> None:
    """Both twins' rows have the same bits."""
    ours = Noise(seed, sample).gumbel(position, vocab_size)
    native_row = NativeNoise(seed, sample).gumbel(position, vocab_size)
    assert native_row.dtype == np.float64
    assert native_row.tobytes() == ours.tobytes()


@given(seeds, words, words, st.integers(1, 70))
def test_noise_is_numpys_at_every_address(
    seed: int, sample: int, position: int, vocab_size: int
) -> None:
    """Any seed, sample, position and number of tokens: the same bits."""
    same_noise(seed, sample, position, vocab_size)


@pytest.mark.parametrize("vocab_size", [*range(1, 71), 16384, 16387, 49151, 49152])
def test_noise_is_numpys_at_every_size(vocab_size: int) -> None:
    """No lane is lost or shifted where a row ends inside of a register."""
    same_noise(0x0123456789ABCDEF, 5, 4095, vocab_size)


@pytest.mark.parametrize("seed", [0, WORD, WORD + 1, 2**64 - 1])
@pytest.mark.parametrize("place", [0, WORD])
def test_noise_is_numpys_at_the_ends_of_the_addresses(seed: int, place: int) -> None:
    """All zeros and all ones in every part of the counter and the key."""
    same_noise(seed, place, place, 333)


def of_words(high: NDArray[np.uint64], low: NDArray[np.uint64]) -> None:
    """Both twins make the same noise of these words, and none is above the bound."""
    ours = _gumbel(uniform(high, low))
    found = load().noise_of_words(high.astype(np.uint32), low.astype(np.uint32))
    assert found.tobytes() == ours.tobytes()
    bounds = np.array([load().noise_bound(int(word)) for word in high])
    assert np.all(found < bounds)


def test_noise_of_the_extreme_words_is_numpys() -> None:
    """Where u is smallest, largest and beside a power of two: the same bits, below the bound."""
    high, low = np.meshgrid(np.array(EXTREMES, np.uint64), np.array(EXTREMES, np.uint64))
    of_words(high.ravel(), low.ravel())


def test_noise_at_the_logarithms_seams_is_numpys() -> None:
    """Around every power of two, and where a mantissa is the root of a half, to both sides."""
    seams = [int(m * 2.0**e) + d for m in (1, 0.5**0.5) for e in range(53) for d in range(-3, 4)]
    # Either logarithm has its seams: of 1 - u, and of -log(1 - u).
    seams += [2**52 - seam for seam in seams]
    seams += [round(-np.expm1(-m * 2.0**-e) * 2**52) for m in (1, 0.5**0.5) for e in range(-4, 40)]
    bits = np.array([seam for seam in seams if 0 <= seam < 2**52], np.uint64) << np.uint64(12)
    of_words(bits >> np.uint64(32), bits & np.uint64(WORD))


@given(st.lists(st.tuples(words, words), min_size=1, max_size=80))
def test_noise_of_any_words_is_numpys(pairs: list[tuple[int, int]]) -> None:
    """Words that no address would bring together: the same bits, below the bound."""
    high, low = np.array(pairs, np.uint64).T
    of_words(high, low)


def test_native_noise_cannot_be_written_to() -> None:
    """As with its twin: who writes into the shared noise would change the text."""
    with pytest.raises(ValueError, match="read-only"):
        NativeNoise(0).gumbel(0, 4)[0] = 9.0


# ---- draws


def same_draw(scores: NDArray[np.float64], seed: int, position: int) -> None:
    """Both twins draw the same token, and the fast one left the scores alone."""
    before = scores.copy()
    assert NativeNoise(seed).draw(scores, position) == Noise(seed).draw(scores, position)
    assert scores.tobytes() == before.tobytes()


scores_lists = st.lists(
    st.floats(-40, 40)
    | st.sampled_from([-np.inf, 0.0, -0.0, 1.0, 1e-300, 1e17, -1e17, 1e300, np.inf]),
    min_size=1,
    max_size=150,
)


@example([-np.inf] * 40, 0, 0)
@example([1e17] * 100, 0, 0)
@example([0.0, np.inf, np.inf], 0, 0)
@given(scores_lists, seeds, st.integers(0, 9))
def test_draws_are_numpys(scores: list[float], seed: int, position: int) -> None:
    """Any scores: ties, signed zeros, impossible tokens, numbers that swallow the noise."""
    same_draw(np.array(scores), seed, position)


@pytest.mark.parametrize("vocab_size", [31, 32, 33, 1000, 49152])
@pytest.mark.parametrize("kind", ["flat", "near", "sharp", "sparse", "tied", "rising", "huge"])
def test_draws_over_whole_vocabularies_are_numpys(vocab_size: int, kind: str) -> None:
    """Rows as a model has them, and rows in which nothing or nearly everything can be pruned."""
    row = Noise(99).gumbel(0, vocab_size)
    scores = {
        "flat": np.zeros(vocab_size),
        "near": 1e-9 * row,
        "sharp": 9.0 * row,
        "sparse": np.where(row >= np.sort(row)[-min(40, vocab_size)], row, -np.inf),
        "tied": np.round(2.0 * row),
        "rising": 1e-3 * np.arange(vocab_size, dtype=np.float64),
        "huge": np.round(row) * 1e17,
    }[kind]
    for seed in range(40 if vocab_size < 49152 else 8):
        same_draw(scores, seed, seed + 3)


@pytest.mark.parametrize("size", [1, 31, 32, 33, 64, 65, 200])
def test_every_token_can_win(size: int) -> None:
    """A token far above the rest is drawn wherever it stands, in whole registers and after them."""
    for token in range(size):
        scores = np.zeros(size)
        scores[token] = 80.0
        assert NativeNoise(4).draw(scores, 2) == token


def test_a_tie_goes_to_the_lowest_token() -> None:
    """Where rounding swallows the noise, the first of the highest wins, as numpy has it."""
    for size in (2, 40, 500):
        for first in range(0, size, 7):
            scores = np.full(size, 1e17)
            scores[:first] = -1e17
            assert NativeNoise(1).draw(scores, 0) == first


def test_a_score_that_is_no_number_wins_as_in_numpy() -> None:
    """NaN is never silently passed over: both twins name its place."""
    for place in (0, 5, 63, 64, 90):
        scores = np.zeros(100)
        scores[place] = scores[95] = np.nan
        same_draw(scores, 0, 0)


def test_draws_take_scores_of_other_layouts() -> None:
    """A strided or read-only row is drawn from like its copy."""
    wide = Noise(3).gumbel(0, 400)
    assert NativeNoise(8).draw(wide[::2], 1) == Noise(8).draw(wide[::2].copy(), 1)


def test_no_scores_are_an_error() -> None:
    """An empty row has no token, in either twin."""
    for noise in (Noise(0), NativeNoise(0)):
        with pytest.raises(ValueError, match=r"."):
            noise.draw(np.zeros(0), 0)


# ---- the module


def test_an_unknown_instruction_set_is_an_error() -> None:
    """And changes nothing."""
    own = load().instruction_set()
    with pytest.raises(ValueError, match="mmx"):
        load().use_instruction_set("mmx")
    assert load().instruction_set() == own


@pytest.fixture
def undecided(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nobody has chosen an instruction set in this process; what is chosen is undone."""
    own = load().instruction_set()
    monkeypatch.setattr(native, "_chosen", [])
    yield
    load().use_instruction_set(own)


@pytest.mark.usefixtures("undecided")
def test_the_first_choice_of_instructions_stands() -> None:
    """It is used from then on; the same again is fine, and another one is refused by both names."""
    first, *others = load().instruction_sets()
    use_instructions(first)
    use_instructions(first)
    for other in others:
        with pytest.raises(OptionError, match=f"{other}.*already computes with '{first}'"):
            use_instructions(other)
    assert load().instruction_set() == first


@pytest.mark.usefixtures("undecided")
def test_instructions_that_the_machine_lacks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With those that it has; and nothing is decided by it."""
    own = load().instruction_set()
    monkeypatch.setattr(load(), "instruction_sets", lambda: ["portable", "avx2"])
    with pytest.raises(OptionError, match=r"'avx512': this machine has portable, avx2\. Choose"):
        use_instructions("avx512")
    assert load().instruction_set() == own
    use_instructions("portable")
    assert load().instruction_set() == "portable"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ModuleNotFoundError("No module named 'forerun._native'"), "is not there"),
        (ImportError("wrong ELF class"), "wrong ELF class"),
    ],
)
def test_a_missing_module_is_told_when_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, error: ImportError, told: str
) -> None:
    """Asked for, it names the way out; not asked for, numpy writes the same text."""

    def fail(name: str) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(importlib, "import_module", fail)
        native._found.cache_clear()
        assert not native.is_there()
        assert type(fast_noise(7)) is Noise
        with pytest.raises(NativeModuleError, match=told) as raised:
            NativeNoise(7)
        assert "pip install" in raised.value.way_out
    native._found.cache_clear()
    assert type(fast_noise(7)) is NativeNoise
