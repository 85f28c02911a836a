"""Operations whose rows must not feel their neighbours, over sweeps of shapes and places."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from forerun.models.architecture import Rope
from forerun.targets.rotary_table import RotaryTable
from forerun.targets.row_exact import (
    LARGEST_CALL,
    RowExactProduct,
    attend,
    rms_norm,
    rotate,
    silu_gate,
)

Array = NDArray[np.float32]
SHAPES = [(1, 1), (3, 7), (48, 32), (97, 40), (33, 64), (64, 33), (192, 576), (301, 250)]
SHAPES += [(576, 576), (1009, 250), (960, 576), (2000, 31), (5, 3000)]


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def at_offset(values: Array, offset: int) -> Array:
    """The same values at another place in memory, `offset` floats after an aligned one."""
    room = np.empty(values.size + 64, dtype=np.float32)
    start = offset + (-(room.ctypes.data // 4)) % 16
    placed = room[start : start + values.size].reshape(values.shape)
    placed[...] = values
    return placed


@pytest.mark.parametrize("shape", SHAPES)
def test_products_rows_stand_alone(shape: tuple[int, int]) -> None:
    """A row's product is bit-equal alone, first, last, and among any number of others."""
    product = RowExactProduct(normal(*shape))
    rows = normal(2 * LARGEST_CALL + 3, shape[1], seed=1)
    together = product(rows)
    np.testing.assert_allclose(together, rows.astype(float) @ product.weight.T, atol=1e-2)
    for count in [*range(1, 41), 63, 64, 65, 100, 127, 128, 255, 256, 257, 300]:
        for start in (0, 5, len(rows) - count):
            part = product(rows[start : start + count])
            np.testing.assert_array_equal(part, together[start : start + count])


def test_one_by_one_is_exact_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no number of rows is safe, each row has its own call: also right, also exact."""
    product = RowExactProduct(normal(301, 250))
    padded = product(normal(9, 250, seed=1))
    product.safe_rows = 1
    single = product(normal(9, 250, seed=1))
    np.testing.assert_allclose(single, padded, atol=1e-4)
    np.testing.assert_array_equal(product(normal(9, 250, seed=1)[4:5])[0], single[4])


def test_the_sweep_can_fail() -> None:
    """Plain products, unpadded, do depend on the number of rows: the sweep sees the difference."""
    weight, rows = normal(97, 40), normal(64, 40, seed=1)
    together = rows @ weight.T
    parts = [rows[:count] @ weight.T for count in range(1, 64)]
    if all(np.array_equal(part, together[: len(part)]) for part in parts):
        pytest.skip("this matrix library is row-exact by itself")
    product = RowExactProduct(weight)
    together = product(rows)
    for count in range(1, 64):
        np.testing.assert_array_equal(product(rows[:count]), together[:count])


@pytest.mark.parametrize("width", [1, 2, 7, 8, 33, 64, 129, 576, 1000])
def test_norms_and_gates_stand_alone(width: int) -> None:
    """RMSNorm and the gate of a row are bit-equal alone, anywhere in a pass, anywhere in memory."""
    rows, weight = 3 * normal(70, width), normal(width, seed=1)
    doubled = np.concatenate([30 * rows, rows[:, ::-1]], axis=1)

    def norm(part: Array) -> Array:
        return rms_norm(part, weight, 1e-5)

    operations: list[tuple[Callable[[Array], Array], Array]] = [(norm, rows), (silu_gate, doubled)]
    for operation, values in operations:
        together = operation(values)
        assert np.isfinite(together).all()
        for count in range(1, 20):
            for start in (0, 13, 70 - count):
                part = at_offset(values[start : start + count], count % 7)
                np.testing.assert_array_equal(operation(part), together[start : start + count])


def test_norms_and_gates_are_right() -> None:
    """Both agree with float64, also where the exponential overflows."""
    rows, weight = normal(5, 40), normal(40, seed=1)
    wide = rows.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + 1e-5) * weight
    np.testing.assert_allclose(rms_norm(rows, weight, 1e-5), expected, rtol=1e-5, atol=1e-6)
    gate_up = np.concatenate([400 * rows, rows], axis=1)
    with np.errstate(over="ignore"):
        expected = 400 * wide / (1 + np.exp(-400 * wide)) * wide
    np.testing.assert_allclose(silu_gate(gate_up), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("kv_heads", "group", "head_dim"), [(3, 3, 64), (1, 1, 2), (5, 1, 18)])
def test_attention_depends_on_no_address(kv_heads: int, group: int, head_dim: int) -> None:
    """Over any context length, wherever keys and values lie and however much room follows them."""
    query = normal(kv_heads, group, head_dim)
    for length in [*range(1, 40), 63, 64, 65, 100, 257, 700]:
        keys = normal(kv_heads, length, head_dim, seed=1)
        values = normal(kv_heads, length, head_dim, seed=2)
        expected = attend(query, keys, values)
        scores = np.einsum("kgd,kld->kgl", query.astype(float), keys)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        right = np.einsum("kgl,kld->kgd", scores / scores.sum(-1, keepdims=True), values)
        np.testing.assert_allclose(expected, right, atol=1e-4)
        for offset in (1, 3, 8):
            roomy = at_offset(np.zeros((kv_heads, length + 9 * offset, head_dim), "f4"), offset)
            more = at_offset(np.zeros_like(roomy), 2 * offset)
            roomy[:, :length], more[:, :length] = keys, values
            found = attend(at_offset(query, offset), roomy[:, :length], more[:, :length])
            np.testing.assert_array_equal(found, expected)


def test_angles_do_not_depend_on_the_pass() -> None:
    """A position's cosines and sines are bit-equal in any company, and right far out."""
    rope = Rope(interleaved=True, dimension=10, base=1e4, factors=(1.0, 1.0, 2.0, 4.0, 8.0))
    table = RotaryTable(rope)
    cosines, sines = table(range(1000))
    for position in (0, 1, 255, 256, 999):
        cosine, sine = RotaryTable(rope)([position])
        np.testing.assert_array_equal(cosine[0], cosines[position])
        np.testing.assert_array_equal(sine[0], sines[position])
    angles = 70_000 * rope.frequencies()
    np.testing.assert_allclose(table([70_000])[0][0], np.cos(angles), atol=1e-7)


@pytest.mark.parametrize("is_interleaved", [True, False])
def test_turning_keeps_length_and_counts_positions(is_interleaved: bool) -> None:
    """Turned by its position, a pair keeps its length, and products depend on distance only."""
    table = RotaryTable(Rope(is_interleaved, 6, 100.0, (1.0, 1.0, 1.0)))
    heads = np.repeat(normal(1, 2, 8), 10, axis=0)
    turned = heads.copy()
    rotate(turned, *table(range(10)), is_interleaved)
    np.testing.assert_array_equal(turned[0], heads[0])
    np.testing.assert_array_equal(turned[:, :, 6:], heads[:, :, 6:])
    lengths = np.linalg.norm(turned, axis=2)
    np.testing.assert_allclose(lengths, np.linalg.norm(heads, axis=2), rtol=1e-5)
    products = np.einsum("ihd,jhd->hij", turned, turned)
    np.testing.assert_allclose(products[:, 1:, 1:], products[:, :-1, :-1], atol=1e-4)
