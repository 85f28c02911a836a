"""The native attention: the bits of the numpy twin, and how near they are to exact attention."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from forerun.native import load
from forerun.targets import word_attention as twin

pytestmark = pytest.mark.usefixtures("each_instruction_set")

Array = NDArray[np.float32]
Exact = NDArray[np.float64]

# Around lanes of 16, pages of 32 and spans of 128.
LENGTHS = (0, 1, 15, 16, 17, 31, 32, 33, 127, 128, 129, 300)
HEAD_DIMS = (2, 18, 64, 80, 128)
CHAIN = [-1, 0, 1]


def normal(*shape: int, seed: int, scale: float = 1) -> Array:
    values = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    return values * np.float32(scale)


def case(
    committed: int, rows: int, head_dim: int, *, kv_heads: int = 1, group: int = 1, scale: float = 1
) -> list[Array]:
    """Queries, keys and values; a larger scale makes the softmax sharper."""
    positions = committed + rows
    return [
        normal(rows, kv_heads * group, head_dim, seed=positions, scale=scale),
        normal(positions, kv_heads, head_dim, seed=head_dim + 1000),
        normal(positions, kv_heads, head_dim, seed=positions + 2000),
    ]


def tree(rows: int, seed: int) -> list[int]:
    random = Random(seed)
    return [random.randrange(-1, row) for row in range(rows)]


def assert_same_bits(found: Array, expected: Array) -> None:
    """All bits agree; any NaN is like any other."""
    is_nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(found), is_nan)
    bits = found.view(np.uint32), expected.view(np.uint32)
    np.testing.assert_array_equal(bits[0][~is_nan], bits[1][~is_nan])


def check(given: list[Array], parents: list[int], kv_bits: int = 16, threads: int = 2) -> Array:
    """Assert that both twins agree, and return what they say."""
    found = load().attend(*given, parents, kv_bits, threads)
    assert_same_bits(found, twin.attend(*given, parents, kv_bits))
    return found


# The same as its twin.


@pytest.mark.parametrize("kv_bits", [16, 32])
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("committed", LENGTHS)
def test_any_length_and_width(committed: int, head_dim: int, kv_bits: int) -> None:
    """Around the ends of lanes, pages and spans, flat or sharp."""
    for scale in (1, 6):
        check(case(committed, 3, head_dim, scale=scale), CHAIN, kv_bits)


@pytest.mark.parametrize("kv_bits", [16, 32])
@pytest.mark.parametrize("group", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_any_grouping_and_number_of_threads(group: int, threads: int, kv_bits: int) -> None:
    """Heads that share keys and values are computed together, as many as the threads leave."""
    given = case(45, 5, 18, kv_heads=3, group=group)
    check(given, [-1, 0, -1, 2, 1], kv_bits, threads)


@pytest.mark.parametrize("kv_bits", [16, 32])
@pytest.mark.parametrize("committed", [0, 30, 127, 255])
@pytest.mark.parametrize("rows", [2, 17, 40])
def test_any_tree(committed: int, rows: int, kv_bits: int) -> None:
    """Rows of a pass that are no ancestors are not seen, wherever pages and spans end."""
    given = case(committed, rows, 18, kv_heads=2, group=2)
    check(given, tree(rows, seed=rows), kv_bits)


@pytest.mark.parametrize("kv_bits", [16, 32])
def test_a_context_of_which_few_heads_fit_into_a_cache(kv_bits: int) -> None:
    """The longer the context, the fewer heads go over its pages together."""
    given = case(3000, 9, 18, group=2)
    check(given, tree(9, seed=9), kv_bits, threads=1)


def test_a_chain_is_as_committed_one_by_one() -> None:
    """A row's bits are the same where its context is pending and where it is committed."""
    queries, keys, values = case(0, 150, 18)
    whole = load().attend(queries, keys, values, list(range(-1, 149)))
    for row in (0, 31, 32, 128, 149):
        alone = load().attend(queries[row : row + 1], keys[: row + 1], values[: row + 1], [-1])
        assert_same_bits(alone[0], whole[row])


# Extremes.


@pytest.mark.parametrize("kv_bits", [16, 32])
@pytest.mark.parametrize("scale", [0, 1e-40, 2.0**-101, 2.0**-99, 1e-12, 1e12, 1e19, 3e38])
@pytest.mark.parametrize("which", [0, 1, 2], ids=["queries", "keys", "values"])
def test_tiny_and_huge_numbers(which: int, scale: float, kv_bits: int) -> None:
    """Zeros, magnitudes below 2^-100, and scores that overflow."""
    given = case(40, 3, 18)
    given[which] = (given[which] / np.abs(given[which]).max() * np.float32(scale)).astype("f4")
    found = check(given, CHAIN, kv_bits)
    assert np.isfinite(found).all() or scale > 1e12


def test_one_huge_value_among_small_ones() -> None:
    """The others of its span are rounded to nothing beside it; those of other spans are not."""
    given = case(300, 3, 18)
    given[2][200] *= np.float32(1e6)
    check(given, CHAIN)


@pytest.mark.parametrize("committed", [0, 5, 128, 400])
def test_equal_scores(committed: int) -> None:
    """The result is the mean of the values, to the precision of the words."""
    queries, keys, values = case(committed, 3, 18)
    keys[:] = keys[0]
    found = check([queries, keys, values], CHAIN)
    mean = values[: committed + 1].mean(axis=0, dtype=np.float64)
    np.testing.assert_allclose(found[0], mean, atol=1e-3)


@pytest.mark.parametrize("kv_bits", [16, 32])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("which", [0, 1, 2], ids=["query", "key", "value"])
def test_what_is_not_finite_reaches_those_alone_that_see_it(
    which: int, value: float, kv_bits: int
) -> None:
    """Its row and that row's descendants; of words all components become NaN."""
    given = case(33, 4, 18)
    given[which][1 if which == 0 else 34, 0, 3] = value
    found = check(given, [-1, 0, 1, 0], kv_bits)
    sees = np.array([False, True, which > 0, False])
    assert np.isfinite(found[~sees]).all()
    if kv_bits == 16:
        assert np.isnan(found[sees]).all()
    elif np.isnan(value):
        assert np.isnan(found[sees]).any(axis=(1, 2)).all()


def test_a_committed_nan_reaches_all_rows() -> None:
    """Every row sees it."""
    given = case(33, 3, 18)
    given[1][7, 0, 0] = np.nan
    assert np.isnan(check(given, CHAIN)).all()


# How near it is to exact attention.


def exact(query: Array, keys: Array, values: Array) -> tuple[Exact, Exact]:
    """One head in float64: the result and the softmax."""
    scores = keys.astype(np.float64) @ (query.astype(np.float64) / np.sqrt(len(query)))
    weights = np.exp(scores - scores.max())
    law = weights / weights.sum()
    return law @ values.astype(np.float64), law


def error_bound(query: Array, keys: Array, values: Array) -> Exact:
    """The most that rounding can change in each component, in units of the values.

    Half a step of each word, a few last places of each float: no constant is fitted.
    """
    place = 2.0**-24
    result, law = exact(query, keys, values)
    scaled = np.abs(query.astype(np.float64)) / np.sqrt(len(query))
    query_step, key_steps = scaled.max() / 8191, np.abs(keys).max(axis=1) / 16383
    lengths = np.abs(keys).astype(np.float64).sum(axis=1)
    in_scores = key_steps / 2 * scaled.sum() + query_step / 2 * (
        lengths + len(query) * key_steps / 2
    )
    in_scores += (len(query) / 16 + 8) * place * (lengths * scaled.max())
    # Each score may be off by it, and their largest: the law by twice as much; exp by 2 places.
    shift = np.expm1(2 * in_scores.max() + (len(keys) / 16 + 100) * place)
    value_steps = np.abs(values).max(axis=1).astype(np.float64) / 16383
    words = np.abs(values) / value_steps[:, np.newaxis]
    in_weights = np.zeros_like(result)
    for first in range(0, len(keys), 128):
        span = slice(first, first + 128)
        weights = law[span] * value_steps[span] * (1 + shift)
        step = max(weights.sum() / 126000, weights.max() / 32767)
        in_weights += step / 2 * (words[span] + 0.5).sum(axis=0)
    of_values = law @ np.abs(values).astype(np.float64)
    in_floats = (len(keys) / 128 + 4) * place * of_values
    return of_values * shift + law @ value_steps / 2 * (1 + shift) + in_weights + in_floats


@pytest.mark.parametrize("scale", [0.3, 1, 4])
@pytest.mark.parametrize("length", [1, 16, 100, 128, 300, 1000])
def test_errors_are_within_what_so_many_bits_allow(length: int, scale: float) -> None:
    """At every component, of flat and of sharp attention."""
    for head_dim in (18, 64):
        queries, keys, values = case(length - 1, 1, head_dim, group=4, scale=scale)
        found = load().attend(queries, keys, values, [-1])[0]
        for head in range(4):
            arguments = queries[0, head], keys[:, 0], values[:, 0]
            error = np.abs(found[head] - exact(*arguments)[0])
            assert (error <= error_bound(*arguments)).all()


def rms(x: NDArray[np.floating]) -> float:
    return float(np.sqrt(np.mean(np.square(x, dtype=np.float64))))


@pytest.mark.parametrize("scale", [1, 4])
@pytest.mark.parametrize("length", [100, 300, 1000])
def test_words_are_no_worse_than_half_floats(length: int, scale: float) -> None:
    """Against exact attention over keys and values rounded to half floats, which sums exactly."""
    queries, keys, values = case(length - 1, 1, 64, group=32, scale=scale)
    halves = [x.astype(np.float16).astype(np.float32)[:, 0] for x in (keys, values)]
    whole = [exact(query, keys[:, 0], values[:, 0])[0] for query in queries[0]]
    rounded = [exact(query, *halves)[0] for query in queries[0]]
    found = load().attend(queries, keys, values, [-1])[0]
    assert rms(found - np.array(whole)) <= rms(np.array(rounded) - np.array(whole))


@pytest.mark.parametrize("length", [1, 100, 1000])
def test_32_bits_are_nearer(length: int) -> None:
    """And near exact attention, within float32's own rounding."""
    queries, keys, values = case(length - 1, 1, 64, group=4)
    whole = np.array([exact(query, keys[:, 0], values[:, 0])[0] for query in queries[0]])
    floats, words = (load().attend(queries, keys, values, [-1], bits)[0] for bits in (32, 16))
    assert rms(floats - whole) <= (length + 100) * 2.0**-24 * rms(values)
    assert rms(floats - whole) < rms(words - whole)


# Wrong use.


def test_what_does_not_fit_together_is_refused() -> None:
    """Shapes, parents, bits and threads."""
    queries, keys, values = case(4, 3, 18, kv_heads=2)
    for arguments in (
        (queries, keys, values[:-1], CHAIN),
        (queries[..., :-1].copy(), keys, values, CHAIN),
        (queries[:, :1].copy(), keys, values, CHAIN),
        (queries, keys[:2], values[:2], CHAIN),
        (queries, keys, values, CHAIN[:2]),
        (queries, keys, values, [-1, 2, 0]),
        (queries, keys, values, [-2, 0, 1]),
        (queries, keys, values, CHAIN, 8),
        (queries, keys, values, CHAIN, 16, 0),
    ):
        with pytest.raises(ValueError, match=r"."):
            load().attend(*arguments)
