"""Streaming text: never half a character, never one lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.errors import PromptError
from forerun.models.detokenizer import Detokenizer

# Every byte, some pieces of several characters, a hidden token and one that opens a text.
PIECES = [bytes([byte]) for byte in range(256)] + [b" a", "é".encode(), "🤣".encode()[:2], b"<s>"]
HIDDEN, OPENS = {258}, {259}
IDS = st.lists(
    st.one_of(
        st.integers(0, len(PIECES) - 1),
        st.sampled_from([0xF0, 0x9F, 0xA4, 0xA3, 0xE2, 0x82, 0xAC, 0xC3, 0x20, 256, 258, 259]),
    )
)


def text_of(ids: list[int], opens: set[int] | None = None, after: list[int] | None = None) -> str:
    stream = Detokenizer(PIECES, hidden=HIDDEN, opens=opens, after=after or [])
    return "".join(map(stream.push, ids)) + stream.flush()


@given(ids=IDS)
def test_streaming_is_offline_decoding(ids: list[int]) -> None:
    """What is emitted token by token is what the bytes decode to at once, for all ids."""
    whole = b"".join(PIECES[token] for token in ids if token not in HIDDEN)
    assert text_of(ids) == whole.decode(errors="replace")


@given(ids=IDS, cut=st.integers(0, 30), opens=st.sampled_from([None, OPENS]))
def test_a_stream_can_begin_after_a_prompt(
    ids: list[int], cut: int, opens: set[int] | None
) -> None:
    """The text before and the text after a cut make the whole text, a cut character included."""
    stream = Detokenizer(PIECES, hidden=HIDDEN, opens=opens)
    before = "".join(map(stream.push, ids[:cut]))
    assert before + text_of(ids[cut:], opens, ids[:cut]) == text_of(ids, opens)


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_a_character_comes_whole_and_at_once(text: str) -> None:
    """Every push emits whole characters, and each as soon as its last byte is there."""
    stream = Detokenizer(PIECES)
    for character in text:
        *head, last = character.encode()
        assert [stream.push(byte) for byte in head] == [""] * len(head)
        assert stream.push(last) == character
    assert stream.flush() == ""


def test_flush_gives_back_what_was_held() -> None:
    """An unfinished character becomes U+FFFD at the end, once; the stream is fresh afterwards."""
    stream = Detokenizer(PIECES)
    assert stream.push(0xE2) + stream.push(0x82) == ""
    assert stream.flush() == "\ufffd"
    assert stream.flush() == ""
    assert stream.push(ord("a")) == "a"


def test_the_encoders_own_space_is_taken_away() -> None:
    """One space goes at the start and after what opens a text, not in the middle."""
    assert text_of([256, 256, 259, 256], OPENS) == "a a<s>a"
    assert text_of([256, 256, 259, 256]) == " a a<s> a"
    assert text_of([256], OPENS, after=[97]) == " a"
    assert text_of([256], OPENS, after=[259]) == "a"


@pytest.mark.parametrize("token", [-1, len(PIECES)])
def test_foreign_ids_are_refused(token: int) -> None:
    """An id outside the vocabulary is an error, not the last token's text."""
    with pytest.raises(PromptError, match="not in the vocabulary of 260"):
        Detokenizer(PIECES).push(token)
