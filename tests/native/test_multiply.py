"""The native products: the bits of the numpy twin, on every instruction set, for any rows."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from fractions import Fraction

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from forerun import _native
from forerun.targets import quantised_product as twin
from forerun.targets.stored_blocks import BLOCKS
from models.stored_weights import block_inputs, stored_weights

Array = NDArray[np.float32]

SETS = _native.instruction_sets()
QUANTISED = tuple(BLOCKS)
FLOATS = ("F32", "F16", "BF16")
TYPES = (*QUANTISED, *FLOATS)
SHAPES = ((1, 32), (16, 64), (17, 576), (40, 96), (33, 1536))
ROWS = (*range(1, 18), 24, 31, 32, 33)


@pytest.fixture(autouse=True)
def _set_is_restored() -> Iterator[None]:
    before = _native.instruction_set()
    yield
    _native.use_instruction_set(before)


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def whole_blocks(type_name: str, inputs: int) -> int:
    """The next length that rows of the type may have."""
    return -(-inputs // block_inputs(type_name)) * block_inputs(type_name)


def pair(type_name: str, data: NDArray[np.uint8], outputs: int, inputs: int):
    arguments = (type_name, data.reshape(-1), outputs, inputs)
    return _native.Matrix(*arguments), twin.Matrix(*arguments)


def random_pair(type_name: str, outputs: int, inputs: int):
    """A matrix of random weights, packed, and its twin."""
    data = stored_weights(type_name, normal(outputs, inputs))
    return pair(type_name, data, outputs, inputs)


def filled(type_name: str, byte: int, outputs: int, blocks: int) -> NDArray[np.uint8]:
    """Return stored blocks of one byte, with the scale 1, or -128 in Q6_K, and the minimum -2."""
    block = BLOCKS[type_name]
    data = np.full((outputs, blocks, block.size), byte, dtype=np.uint8)
    minimum = 2.0 if block.inputs == 256 else -2.0
    halves = np.array([1.0, minimum], dtype=np.float16).view(np.uint8)
    data[..., block.halves] = halves[: block.halves.stop - block.halves.start]
    if type_name in ("Q4_K", "Q5_K"):
        data[..., 4:12], data[..., 12:16] = 0x01, 0x11
    if type_name == "Q6_K":
        data[..., 192:208] = 0x80
    return data


def same_bits(one: Array, other: Array) -> bool:
    """Whether all bits agree; any NaN is like any other."""
    is_nan = np.isnan(one)
    return bool(
        one.shape == other.shape
        and (is_nan == np.isnan(other)).all()
        and (one.view(np.uint32) == other.view(np.uint32))[~is_nan].all()
    )


def check_all_sets(native, slow: twin.Matrix, x: Array) -> Array:
    """Assert that every instruction set gives the twin's bits, which are returned."""
    expected = twin.multiply(slow, x)
    for name in SETS:
        _native.use_instruction_set(name)
        assert same_bits(_native.multiply(native, x), expected), name
    return expected


def test_portable_code_is_always_tested() -> None:
    """Whatever the machine, the portable kernels run; the machine's best is the default."""
    assert SETS[0] == "portable"
    assert _native.instruction_set() == SETS[-1]


@pytest.mark.parametrize("type_name", TYPES)
@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_every_instruction_set_gives_the_twins_bits(
    type_name: str, outputs: int, inputs: int
) -> None:
    """Over types, shapes and numbers of rows, all kernels agree with numpy bit for bit."""
    inputs = whole_blocks(type_name, inputs)
    native, slow = random_pair(type_name, outputs, inputs)
    x = normal(max(ROWS), inputs, seed=1)
    # Magnitudes as in a network: a few inputs far larger than the others.
    x[:, ::37] *= 50
    expected = twin.multiply(slow, x)
    for name in SETS:
        _native.use_instruction_set(name)
        for rows in ROWS:
            assert same_bits(_native.multiply(native, x[:rows]), expected[:rows]), (name, rows)


@pytest.mark.parametrize("type_name", TYPES)
@pytest.mark.parametrize("name", SETS)
def test_a_row_depends_on_no_other_and_not_on_its_place(type_name: str, name: str) -> None:
    """Shuffled among rows of another scale, alone or in any number, a row keeps its bits."""
    _native.use_instruction_set(name)
    inputs = whole_blocks(type_name, 96)
    native, _ = random_pair(type_name, 21, inputs)
    x = normal(70, inputs, seed=2) * np.float32(10) ** np.arange(-35, 35, dtype=np.float32)[:, None]
    alone = np.concatenate([_native.multiply(native, row[None]) for row in x])
    random = np.random.default_rng(3)
    for rows in (*range(1, 34), 47, 64, 70):
        chosen = random.permutation(70)[:rows]
        assert same_bits(_native.multiply(native, x[chosen]), alone[chosen]), rows


@pytest.mark.parametrize("type_name", TYPES)
@pytest.mark.parametrize("name", SETS)
def test_panels_are_multiplied_apart(type_name: str, name: str) -> None:
    """Some panels alone have the bits of all together, and nothing else is written."""
    _native.use_instruction_set(name)
    inputs = whole_blocks(type_name, 64)
    native, _ = random_pair(type_name, 41, inputs)
    x = normal(19, inputs, seed=4)
    whole = _native.multiply(native, x)
    assert native.panels == 3
    for first, last in ((0, 0), (0, 1), (1, 3), (2, 3), (3, 3)):
        part = _native.multiply(native, x, first, last)
        wanted = np.zeros_like(whole)
        wanted[:, 16 * first : 16 * last] = whole[:, 16 * first : 16 * last]
        assert same_bits(part, wanted)


@pytest.mark.parametrize("type_name", TYPES)
@pytest.mark.parametrize("name", SETS)
def test_a_rows_factor_is_for_all_of_its_outputs_alone(type_name: str, name: str) -> None:
    """Each product is multiplied by its own row's factor, once and at the end; none is 1."""
    _native.use_instruction_set(name)
    inputs = whole_blocks(type_name, 64)
    native, _ = random_pair(type_name, 41, inputs)
    for rows in (*range(1, 19), 33):
        x, factors = normal(rows, inputs, seed=5), normal(rows, seed=6)
        plain = _native.multiply(native, x)
        assert same_bits(_native.multiply(native, x, factors=factors), plain * factors[:, None])
        assert same_bits(_native.multiply(native, x, factors=np.ones_like(factors)), plain)
    with pytest.raises(ValueError, match="Each row has one factor"):
        _native.multiply(native, x, factors=factors[1:])


@pytest.mark.parametrize("type_name", QUANTISED)
@pytest.mark.parametrize("byte", [0x00, 0x0F, 0x7F, 0x80, 0x81, 0xF0, 0xFF])
@pytest.mark.parametrize("sign", [-1, 1])
def test_extreme_integers_neither_saturate_nor_wrap(type_name: str, byte: int, sign: int) -> None:
    """The largest weights of either sign times the largest inputs are summed exactly."""
    inputs = whole_blocks(type_name, 96)
    data = filled(type_name, byte, 18, inputs // block_inputs(type_name))
    native, slow = pair(type_name, data, 18, inputs)
    x = np.full((5, inputs), 127 * sign, dtype=np.float32)
    x[1] = -x[0]
    x[2, ::2] = -x[0, ::2]
    result = check_all_sets(native, slow, x)
    exact = x.astype(np.float64) @ slow_weights(slow).T
    assert (result == exact).all()


def slow_weights(slow: twin.Matrix) -> NDArray[np.float64]:
    rows = [slow.dequantise_row(output) for output in range(slow.outputs)]
    return np.array(rows, dtype=np.float64)


@pytest.mark.parametrize("type_name", QUANTISED)
@given(seed=st.integers(0, 2**32), heads=st.lists(st.integers(0, 2**16 - 1), min_size=2))
def test_any_stored_bytes_give_the_twins_bits(type_name: str, seed: int, heads: list[int]) -> None:
    """Scales that are zero, tiny, huge, infinite or NaN, and any integers, follow the twin."""
    random = np.random.default_rng(seed)
    block, inputs = BLOCKS[type_name], whole_blocks(type_name, 64)
    row_bytes = inputs // block.inputs * block.size
    data = random.integers(0, 256, (20, row_bytes), dtype=np.uint8)
    scales = slice(block.halves.start, block.halves.start + 2)
    some = np.array(heads[:20], dtype=np.uint16)
    data[: len(heads), scales] = some.view(np.uint8).reshape(-1, 2)
    native, slow = pair(type_name, data, 20, inputs)
    x = normal(4, inputs, seed=seed % 1000) * np.float32(10.0 ** random.integers(-30, 30))
    check_all_sets(native, slow, x)
    for output in range(20):
        with np.errstate(all="ignore"):
            assert same_bits(native.dequantise_row(output), slow.dequantise_row(output))


def special_rows(inputs: int) -> Array:
    """Return rows [M, inputs] at the edges of the float format, finite and not."""
    x = normal(15, inputs, seed=5)
    x[0] = 0
    x[1] = -0.0
    x[2] *= np.float32(1e37)
    x[3, 5] = np.finfo(np.float32).max
    x[4] *= np.float32(2.0**-99)
    x[5] *= np.float32(2.0**-104)
    x[6] *= np.float32(1e-44)
    x[7, :32] = 0
    x[8] = np.repeat([1.0, -1.0], inputs // 2)
    x[9] = np.arange(inputs, dtype=np.float32) * 0.5 - 16
    x[10, 3] = np.inf
    x[11, 40] = -np.inf
    x[12, 0] = np.nan
    x[13, 63] = np.inf
    x[13, 62] = np.nan
    return x


@pytest.mark.parametrize("type_name", TYPES)
def test_special_inputs_give_the_twins_bits(type_name: str) -> None:
    """Zeros, subnormals, the largest floats, infinities and NaNs follow the twin on every set."""
    inputs = whole_blocks(type_name, 64)
    native, slow = random_pair(type_name, 24, inputs)
    result = check_all_sets(native, slow, special_rows(inputs))
    assert (result[:2] == 0).all() or type_name not in QUANTISED
    assert not np.isnan(result[14]).any()


@pytest.mark.parametrize("type_name", QUANTISED)
def test_a_row_with_an_infinity_or_nan_becomes_nan_and_no_other_does(type_name: str) -> None:
    """What is not finite is propagated, as NaN, to all outputs of its row and to those alone."""
    inputs = whole_blocks(type_name, 64)
    native, slow = random_pair(type_name, 24, inputs)
    x = special_rows(inputs)
    x[2:4] = 1  # their products overflow by themselves
    is_nan = np.isnan(check_all_sets(native, slow, x))
    assert (is_nan == ~np.isfinite(x).all(axis=1)[:, None]).all()


@pytest.mark.parametrize("type_name", TYPES)
def test_dequantised_rows_are_those_of_the_gguf_package(type_name: str) -> None:
    """A row as floats has the bits that gguf.dequantize gives, last and first panel alike."""
    inputs = whole_blocks(type_name, 96)
    data = stored_weights(type_name, normal(37, inputs) * np.float32(0.02))
    native, _ = pair(type_name, data, 37, inputs)
    kind = gguf.GGMLQuantizationType[type_name]
    expected = gguf.dequantize(data, kind).reshape(37, inputs)
    for output in range(37):
        assert same_bits(native.dequantise_row(output), expected[output].astype(np.float32))
    with pytest.raises(IndexError, match="no output 37"):
        native.dequantise_row(37)


@pytest.mark.parametrize("type_name", QUANTISED)
def test_the_error_is_that_of_rounding_the_inputs(type_name: str) -> None:
    """Against exact products, no output is off by more than half a step of each input."""
    inputs = whole_blocks(type_name, 576)
    native, slow = random_pair(type_name, 50, inputs)
    x = normal(8, inputs, seed=6)
    weights = slow_weights(slow)
    exact = x.astype(np.float64) @ weights.T
    steps = np.abs(x).reshape(8, -1, 32).max(axis=-1).repeat(32, axis=-1) / 127
    bound = 0.5 * steps @ np.abs(weights).T
    error = np.abs(_native.multiply(native, x) - exact)
    assert (error <= bound * 1.001 + 1e-4).all()
    # Independent roundings: a step / sqrt(12) each.
    expected = np.sqrt((steps**2) @ (weights.T**2) / 12)
    assert 0.8 < np.sqrt((error**2).mean() / (expected**2).mean()) < 1.2


@pytest.mark.parametrize("type_name", FLOATS)
@pytest.mark.parametrize("inputs", [1, 3, 31, 33, 100])
def test_float_rows_may_have_any_length(type_name: str, inputs: int) -> None:
    """Float matrices need no groups, and are as exact as float32 sums are."""
    weights = normal(19, inputs)
    kinds = {"F32": np.float32, "F16": np.float16}
    if type_name == "BF16":
        data = (weights.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8).reshape(-1)
    else:
        data = weights.astype(kinds[type_name]).view(np.uint8).reshape(-1)
    native, slow = pair(type_name, data, 19, inputs)
    x = normal(9, inputs, seed=7)
    result = check_all_sets(native, slow, x)
    exact = x.astype(np.float64) @ slow_weights(slow).T
    assert np.abs(result - exact).max() < 1e-4


def test_fused_multiply_add_is_rounded_once() -> None:
    """The twin's fma is the exact sum rounded once, where two roundings go wrong too."""
    random = np.random.default_rng(8)
    bits = random.integers(0, 2**32, (3, 4000), dtype=np.uint32).view(np.float32)
    near = normal(3, 4000, seed=9) * np.float32(2) ** random.integers(-30, 30, (3, 4000))
    near[2] = -(near[0] * near[1])
    halfway = np.array([[1 + 2**-12], [1 + 2**-12], [2.0**-70]], dtype=np.float32)
    a, b, c = np.concatenate([bits, near.astype(np.float32), halfway, -halfway], axis=1)
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    a, b, c = a[finite], b[finite], c[finite]
    with np.errstate(all="ignore"):
        result = twin.fused_multiply_add(a, b, c)
        twice = (a.astype(np.float64) * b + c).astype(np.float32)
    assert (result != twice).any()
    for x, y, z, got in zip(a, b, c, result, strict=True):
        assert got == rounded_once(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)))


def rounded_once(exact: Fraction) -> np.float32:
    """Return the float32 nearest to an exact number, ties to even."""
    with np.errstate(over="ignore"):
        guess = np.float32(float(exact)) if abs(exact) < 2**1000 else np.float32(np.inf)
        below, above = np.nextafter(guess, np.float32(-np.inf)), np.nextafter(guess, np.inf)
    largest = Fraction(float(np.finfo(np.float32).max)) + Fraction(2) ** 103
    if abs(exact) >= largest:
        return np.float32(np.inf if exact > 0 else -np.inf)
    candidates = [np.float32(f) for f in (below, guess, above) if np.isfinite(f)]
    return min(
        candidates,
        key=lambda f: (abs(Fraction(float(f)) - exact), int(f.view(np.uint32)) & 1),
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("Q4_1", 20, 1, 33), "not made of groups of 32"),
        (("Q4_1", 21, 1, 32), "21 bytes are not 1 rows of 32"),
        (("Q4_1", 40, 1, 32), "40 bytes are not 1 rows"),
        (("Q4_1", 0, 0, 32), "no empty side"),
        (("Q5_1", 20, 1, 32), "20 bytes are not 1 rows"),
        (("Q4_K", 72, 1, 128), "not made of groups of 256"),
        (("F32", 0, 1, 0), "0 bytes are not 1 rows of 0"),
        (("Q3_K", 20, 1, 32), "No tensor type is called Q3_K"),
    ],
)
def test_a_wrong_matrix_is_refused(arguments: tuple[str, int, int, int], message: str) -> None:
    """A matrix whose bytes do not fit its type and shape is never built."""
    type_name, size, outputs, inputs = arguments
    with pytest.raises(ValueError, match=message):
        _native.Matrix(type_name, np.zeros(size, dtype=np.uint8), outputs, inputs)


def test_matrices_share_memory_and_outlive_each_other() -> None:
    """Matrices of any sizes keep their weights while others come and go, and the last frees all."""
    random = np.random.default_rng(10)
    x = normal(1, 96, seed=11)
    kept: list[tuple[_native.Matrix, Array]] = []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for turn in range(400):
        outputs = int(random.integers(1, 100)) if turn % 10 else 40_000
        data = np.full(outputs * 96, turn % 50, dtype=np.float32)
        native = _native.Matrix("F32", data.view(np.uint8), outputs, 96)
        kept.append((native, _native.multiply(native, x)))
        del kept[: -int(random.integers(1, 6))]
        for matrix, product in kept:
            assert same_bits(_native.multiply(matrix, x), product)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert sys.platform != "linux" or grown < 250_000  # KiB; there came 600 MiB in all


def test_a_wrong_product_is_refused() -> None:
    """Rows of another length, other types and panels outside the matrix are refused."""
    native, _ = random_pair("Q8_0", 16, 64)
    with pytest.raises(ValueError, match="differ in length"):
        _native.multiply(native, normal(2, 32))
    with pytest.raises(TypeError):
        _native.multiply(native, normal(2, 64).astype(np.float64))
    for first, last in ((0, 2), (1, 0)):
        with pytest.raises(ValueError, match="no such panels"):
            _native.multiply(native, normal(2, 64), first, last)
    assert _native.multiply(native, normal(0, 64)).shape == (0, 16)
