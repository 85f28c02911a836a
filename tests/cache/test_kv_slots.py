"""A sequence's slots against a plain dictionary of paths."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from forerun.cache.kv_slots import KVSlots
from forerun.errors import EngineError

Array = NDArray[np.float32]
LAYERS, HEADS, WIDTH = 2, 3, 4


def stamped(random: Random, count: int) -> tuple[Array, Array]:
    """Keys and values that no other row has."""
    keys = np.empty((count, HEADS, WIDTH), dtype=np.float32)
    for row in range(count):
        keys[row] = random.random()
    return keys, keys + np.float32(1)


@pytest.mark.parametrize("seed", range(40))
def test_contexts_are_the_paths(seed: int) -> None:
    """In any tree, over many passes, commits and rollbacks, a row's context is its path."""
    random = Random(seed)
    slots = KVSlots(LAYERS, HEADS, WIDTH)
    kept: list[list[Array]] = [[] for _ in range(LAYERS)]
    for _ in range(12):
        count = random.randrange(1, 30)
        parents = [max(-1, i - random.choice((1, 1, 1, 2, 5))) for i in range(count)]
        slots.begin(parents)
        keys = []
        for layer in range(LAYERS):
            own, values = stamped(random, count)
            keys.append(own)
            slots.put(layer, own, values)
            for row in range(count):
                path = [row]
                while parents[path[0]] >= 0:
                    path.insert(0, parents[path[0]])
                expected = np.stack([*kept[layer], *(own[step] for step in path)], axis=1)
                seen_keys, seen_values = slots.context(layer, row)
                np.testing.assert_array_equal(seen_keys, expected)
                np.testing.assert_array_equal(seen_values, expected + np.float32(1))
                assert seen_keys.strides[1:] == (4 * WIDTH, 4)
        path = path[: random.randrange(len(path) + 1)]
        slots.commit(path)
        for layer in range(LAYERS):
            kept[layer] += [keys[layer][step] for step in path]
        if random.random() < 0.3:
            length = random.randrange(slots.length + 1)
            slots.rollback(length)
            kept = [layer_kept[:length] for layer_kept in kept]
        if random.random() < 0.3:
            slots, other = slots.fork(), slots
            other.rollback(0)
        assert slots.length == len(kept[0])


def test_a_chain_moves_once() -> None:
    """A chain of any length is copied into place by its first row, whatever branches follow."""
    slots = KVSlots(1, HEADS, WIDTH)
    slots.begin([*range(-1, 49), 10])
    moved = [len(move.path) for move in slots._moves]
    assert moved == [50, *[0] * 49, 1]


def test_forks_are_apart() -> None:
    """What one sequence writes after a fork, the other never sees."""
    slots = KVSlots(LAYERS, HEADS, WIDTH)
    first, values = stamped(Random(0), 1)
    for layer in range(LAYERS):
        if layer == 0:
            slots.begin([-1])
        slots.put(layer, first, values)
    slots.commit([0])
    fork = slots.fork()
    second, values = stamped(Random(1), 1)
    slots.begin([-1])
    for layer in range(LAYERS):
        slots.put(layer, second, values)
    slots.commit([0])
    fork.begin([-1])
    third, values = stamped(Random(2), 1)
    fork.put(0, third, values)
    np.testing.assert_array_equal(fork.context(0, 0)[0], np.stack([first[0], third[0]], axis=1))
    assert (slots.length, fork.length) == (2, 1)


def test_wrong_paths_are_refused() -> None:
    """Only a path from the committed end can be committed, once."""
    slots = KVSlots(1, 1, 1)
    slots.begin([-1, 0, 0])
    for path in ([1], [0, 0], [1, 2], [3], [-1]):
        with pytest.raises(EngineError, match="no path from the committed end"):
            slots.commit(path)
    slots.commit([0, 2])
    with pytest.raises(EngineError):
        slots.commit([0])
    with pytest.raises(EngineError, match="Rollback to 3 of 2"):
        slots.rollback(3)


def test_room_grows_with_use() -> None:
    """An empty sequence takes no memory; a long one at most twice what it holds."""
    slots = KVSlots(1, 1, 8)
    assert slots.nbytes == 0
    slots.begin(range(-1, 999))
    slots.commit(range(1000))
    assert slots.nbytes <= 2 * 2 * 1000 * 8 * 4
