"""A text as drafters see it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.engine.text import Text

TOKENS = st.lists(st.integers(0, 9), max_size=8)
BOUND = st.none() | st.integers(-10, 10)
STEP = st.none() | st.integers(-3, 3).filter(bool)


@given(TOKENS, TOKENS, BOUND, BOUND, STEP)
def test_a_text_is_the_tuple_of_its_tokens_however_much_is_written_later(
    tokens: list[int], later: list[int], first: int | None, last: int | None, step: int | None
) -> None:
    """By length, items, slices, order, equality, hash and words."""
    written = list(tokens)
    text, known = Text(written), tuple(tokens)
    written += later
    assert len(text) == len(known)
    assert tuple(text) == known
    assert text[first:last:step] == known[first:last:step]
    assert [text[i] for i in range(-len(known), len(known))] == [*known, *known]
    assert text == known
    assert known == text
    assert hash(text) == hash(known)
    assert repr(text) == repr(known)
    assert [*reversed(text)] == [*reversed(known)]
    assert (text == (*known, 1)) is False


@pytest.mark.parametrize("at", [3, -4])
def test_no_token_is_outside(at: int) -> None:
    """Not even one that was written later."""
    written = [1, 2, 3]
    text = Text(written)
    written.append(4)
    with pytest.raises(IndexError):
        text[at]


def test_nobody_who_sees_a_text_can_write_in_it() -> None:
    """Drafters are not trusted with the engine's own list."""
    text = Text([1, 2])
    for change in ("append", "extend", "__setitem__", "__delitem__", "clear"):
        assert not hasattr(text, change)
    assert {text: 1}[text] == 1
