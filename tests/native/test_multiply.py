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

Array = NDArray[np.float32]

SETS = _native.instruction_sets()
QUANTISED = ("Q4_0", "Q4_1", "Q8_0")
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


def stored(type_name: str, weights: Array) -> NDArray[np.uint8]:
    kind = gguf.GGMLQuantizationType[type_name]
    return np.ascontiguousarray(gguf.quantize(weights, kind)).view(np.uint8).reshape(-1)


def pair(type_name: str, data: NDArray[np.uint8], outputs: int, inputs: int):
    arguments = (type_name, data, outputs, inputs)
    return _native.Matrix(*arguments), twin.Matrix(*arguments)


def groups_of(type_name: str, heads: list[float], values: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return stored groups: the same scale (and minimum) before each [..., 32 or 16] bytes."""
    head = np.array(heads, dtype=np.float16).view(np.uint8)
    head = np.broadcast_to(head, (*values.shape[:-1], len(head)))
    return np.concatenate([head, values], axis=-1).reshape(-1)


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
    native, slow = pair(type_name, stored(type_name, normal(outputs, inputs)), outputs, inputs)
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
    native, _ = pair(type_name, stored(type_name, normal(21, 96)), 21, 96)
    x = normal(70, 96, seed=2) * np.float32(10) ** np.arange(-35, 35, dtype=np.float32)[:, None]
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
    native, _ = pair(type_name, stored(type_name, normal(41, 64)), 41, 64)
    x = normal(19, 64, seed=4)
    whole = _native.multiply(native, x)
    assert native.panels == 3
    for first, last in ((0, 0), (0, 1), (1, 3), (2, 3), (3, 3)):
        part = _native.multiply(native, x, first, last)
        wanted = np.zeros_like(whole)
        wanted[:, 16 * first : 16 * last] = whole[:, 16 * first : 16 * last]
        assert same_bits(part, wanted)


@pytest.mark.parametrize("type_name", QUANTISED)
@pytest.mark.parametrize("byte", [0x00, 0x0F, 0x7F, 0x80, 0x81, 0xF0, 0xFF])
@pytest.mark.parametrize("sign", [-1, 1])
def test_extreme_integers_neither_saturate_nor_wrap(type_name: str, byte: int, sign: int) -> None:
    """The largest weights of either sign times the largest inputs are summed exactly."""
    size = 32 if type_name == "Q8_0" else 16
    values = np.full((18, 3, size), byte, dtype=np.uint8)
    heads = [1.0, -2.0] if type_name == "Q4_1" else [1.0]
    native, slow = pair(type_name, groups_of(type_name, heads, values), 18, 96)
    x = np.full((5, 96), 127 * sign, dtype=np.float32)
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
    row_bytes = 64 // 32 * {"Q4_0": 18, "Q4_1": 20, "Q8_0": 34}[type_name]
    data = random.integers(0, 256, (20, row_bytes), dtype=np.uint8)
    data[: len(heads), :2] = np.array(heads[:20], dtype=np.uint16).view(np.uint8).reshape(-1, 2)
    native, slow = pair(type_name, data.reshape(-1), 20, 64)
    x = normal(4, 64, seed=seed % 1000) * np.float32(10.0 ** random.integers(-30, 30))
    check_all_sets(native, slow, x)
    for output in range(20):
        with np.errstate(all="ignore"):
            assert same_bits(native.dequantise_row(output), slow.dequantise_row(output))


def special_rows() -> Array:
    """Return rows [M, 64] at the edges of the float format, finite and not."""
    x = normal(15, 64, seed=5)
    x[0] = 0
    x[1] = -0.0
    x[2] *= np.float32(1e37)
    x[3, 5] = np.finfo(np.float32).max
    x[4] *= np.float32(2.0**-99)
    x[5] *= np.float32(2.0**-104)
    x[6] *= np.float32(1e-44)
    x[7, :32] = 0
    x[8] = np.repeat([1.0, -1.0], 32)
    x[9] = np.arange(64, dtype=np.float32) * 0.5 - 16
    x[10, 3] = np.inf
    x[11, 40] = -np.inf
    x[12, 0] = np.nan
    x[13, 63] = np.inf
    x[13, 62] = np.nan
    return x


@pytest.mark.parametrize("type_name", TYPES)
def test_special_inputs_give_the_twins_bits(type_name: str) -> None:
    """Zeros, subnormals, the largest floats, infinities and NaNs follow the twin on every set."""
    native, slow = pair(type_name, stored(type_name, normal(24, 64)), 24, 64)
    result = check_all_sets(native, slow, special_rows())
    assert (result[:2] == 0).all() or type_name not in QUANTISED
    assert not np.isnan(result[14]).any()


@pytest.mark.parametrize("type_name", QUANTISED)
def test_a_row_with_an_infinity_or_nan_becomes_nan_and_no_other_does(type_name: str) -> None:
    """What is not finite is propagated, as NaN, to all outputs of its row and to those alone."""
    native, slow = pair(type_name, stored(type_name, normal(24, 64)), 24, 64)
    x = special_rows()
    x[2:4] = 1  # their products overflow by themselves
    is_nan = np.isnan(check_all_sets(native, slow, x))
    assert (is_nan == ~np.isfinite(x).all(axis=1)[:, None]).all()


@pytest.mark.parametrize("type_name", TYPES)
def test_dequantised_rows_are_those_of_the_gguf_package(type_name: str) -> None:
    """A row as floats has the bits that gguf.dequantize gives, last and first panel alike."""
    weights = normal(37, 96) * np.float32(0.02)
    data = stored(type_name, weights)
    native, _ = pair(type_name, data, 37, 96)
    kind = gguf.GGMLQuantizationType[type_name]
    if type_name == "F32":
        expected = weights
    else:
        expected = gguf.dequantize(data.reshape(37, -1), kind).reshape(37, 96)
    for output in range(37):
        assert same_bits(native.dequantise_row(output), expected[output].astype(np.float32))
    with pytest.raises(IndexError, match="no output 37"):
        native.dequantise_row(37)


@pytest.mark.parametrize("type_name", QUANTISED)
def test_the_error_is_that_of_rounding_the_inputs(type_name: str) -> None:
    """Against exact products, no output is off by more than half a step of each input."""
    native, slow = pair(type_name, stored(type_name, normal(50, 576)), 50, 576)
    x = normal(8, 576, seed=6)
    weights = slow_weights(slow)
    exact = x.astype(np.float64) @ weights.T
    steps = np.abs(x).reshape(8, 18, 32).max(axis=-1).repeat(32, axis=-1) / 127
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
    native, _ = pair("Q8_0", stored("Q8_0", normal(16, 64)), 16, 64)
    with pytest.raises(ValueError, match="differ in length"):
        _native.multiply(native, normal(2, 32))
    with pytest.raises(TypeError):
        _native.multiply(native, normal(2, 64).astype(np.float64))
    for first, last in ((0, 2), (1, 0)):
        with pytest.raises(ValueError, match="no such panels"):
            _native.multiply(native, normal(2, 64), first, last)
    assert _native.multiply(native, normal(0, 64)).shape == (0, 16)
