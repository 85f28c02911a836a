"""The toy's law is its table's, context by context."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from forerun.core.noise import Noise
from forerun.errors import OptionError
from forerun.targets.protocol import Row
from forerun.targets.toy import HIDDEN, ToyTarget


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_logits_are_the_tables_row_of_the_last_tokens(order: int) -> None:
    """For every text of up to `order` + 1 tokens; short ones are filled up with token 0."""
    table = np.arange(3 ** (order + 1), dtype=np.float32).reshape((3,) * (order + 1))
    toy = ToyTarget(table)
    for size in range(1, order + 2):
        for text in itertools.product(range(3), repeat=size):
            context = ((0,) * order + text)[size:]
            sequence = toy.open(text[:-1])
            logits = toy.score([Row(sequence, text[-1], size - 1, -1)]).logits
            np.testing.assert_array_equal(logits, [table[context]])
            np.testing.assert_array_equal(toy.logits_after(text), table[context])


def test_a_random_toy_is_its_seeds_noise() -> None:
    """Row i of the table is `sharpness` times the noise at position i; other seeds differ."""
    toy = ToyTarget.random(4, 2, 9, sharpness=2.0)
    expected = 2.0 * Noise(9).gumbel(4 * 3 + 1, 4)
    np.testing.assert_array_equal(toy.logits_after([3, 1]), expected.astype(np.float32))
    assert not np.array_equal(
        toy.logits_after([3, 1]), ToyTarget.random(4, 2, 10, sharpness=2.0).logits_after([3, 1])
    )


@pytest.mark.parametrize("shape", [(3, 4), (2, 2, 3), ()])
def test_a_table_that_is_no_chain_is_refused(shape: tuple[int, ...]) -> None:
    """All sides are as long as the vocabulary."""
    with pytest.raises(OptionError, match="no Markov chain"):
        ToyTarget(np.zeros(shape, dtype=np.float32))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_table_that_is_not_finite_is_refused(value: float) -> None:
    """No law could be made of it."""
    with pytest.raises(OptionError):
        ToyTarget(np.array([0.0, value], dtype=np.float32))


def test_what_enters_a_layer_tells_of_so_many_tokens() -> None:
    """Layer n's hidden state changes with each of the last n + 1 tokens, and with no earlier."""
    toy = ToyTarget.random(5, 2, 3)
    for layer in range(3):
        text = [1, 2, 3, 4, 0]
        state = toy.hidden_after(text, layer)
        assert state.shape == (HIDDEN,)
        for at in range(5):
            other = [*text[:at], (text[at] + 1) % 5, *text[at + 1 :]]
            same = np.array_equal(toy.hidden_after(other, layer), state)
            assert same == (at < 4 - layer)
