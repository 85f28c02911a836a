"""Where a text ends, against the definition: take the whole text, and cut it afterwards.

The definition below looks at every prefix of the tokens, decodes it from scratch and searches all
of it. `Stop` sees one token at a time and remembers no more than it must; they have to agree on
every short sequence.
"""

from __future__ import annotations

import codecs
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.config import Ending
from forerun.core.stop import Stop

EOS = 0
LETTERS = {EOS: b"", 1: b"a", 2: b"b", 3: b"ab", 4: b"ba"}
# One letter of two bytes, split and whole, and one of three bytes, split.
BYTES = {EOS: b"", 1: b"\xc3", 2: b"\xa9", 3: "é".encode(), 4: b"\xe2\x82", 5: b"\xac\xc3"}

STOPS = [(), ("b",), ("aa",), ("ab", "ba"), ("aba",), ("abab", "ba"), ("bb", "abb", "bbb", "b" * 9)]


class Utf8:
    """Tokens as pieces of UTF-8: never half a character."""

    def __init__(self, pieces: dict[int, bytes]) -> None:
        self._pieces = pieces
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """Return the characters that this token completes."""
        return self._decoder.decode(self._pieces[token])

    def flush(self) -> str:
        """Return a replacement for an unfinished character."""
        return self._decoder.decode(b"", final=True)


class End(NamedTuple):
    """How a text ended: after how many tokens, with what text, why."""

    tokens: int
    text: str
    reason: str
    detail: str


def decoded(tokens: Sequence[int], pieces: dict[int, bytes], final: bool) -> str:
    raw = b"".join(pieces[token] for token in tokens)
    return codecs.getincrementaldecoder("utf-8")(errors="replace").decode(raw, final)


def first_stop(text: str, blind: int, strings: Sequence[str]) -> tuple[int, str] | None:
    """The earliest stop string in the whole text that ends behind its first `blind` characters."""
    return min(
        (
            (start, string)
            for string in strings
            for start in range(len(text))
            if text.startswith(string, start) and start + len(string) > blind
        ),
        default=None,
    )


def defined(
    tokens: Sequence[int], ending: Ending, pieces: dict[int, bytes], room: int = 99
) -> End | None:
    """Where the definition ends these tokens, or None if it writes on."""
    limit = min(ending.max_tokens, room)
    early = decoded(tokens[: max(0, ending.min_tokens - 1)], pieces, False)
    for n in range(1, len(tokens) + 1):
        ends = tokens[n - 1] == EOS and n > ending.min_tokens and not ending.ignore_eos
        reason, detail = ("stop", "end of text") if ends else ("", "")
        if not ends and n >= limit:
            reason, detail = "length", "max_tokens" if ending.max_tokens <= room else "context"
        for final in (False, bool(reason)):
            text = decoded(tokens[: n - ends], pieces, final)
            found = first_stop(text, len(early), ending.stop) if n >= ending.min_tokens else None
            if found:
                return End(n, text[: found[0]], "stop", found[1])
        if reason:
            return End(n, text, reason, detail)
    return None


def watched(
    tokens: Sequence[int], ending: Ending, pieces: dict[int, bytes], room: int = 99
) -> tuple[End | None, list[str]]:
    """Where `Stop` ends these tokens, and the pieces of text it let through."""
    stop = Stop(ending, [EOS], Utf8(pieces), room)
    shown: list[str] = []
    for n, token in enumerate(tokens, 1):
        pushed = stop.push(token)
        shown.append(pushed.text)
        if pushed.finished:
            return End(n, "".join(shown), pushed.finished, pushed.detail), shown
    return None, shown


def sequences(pieces: dict[int, bytes], length: int) -> Iterator[tuple[int, ...]]:
    return itertools.product(pieces, repeat=length)


@pytest.mark.parametrize("strings", STOPS)
@pytest.mark.parametrize("least", [0, 1, 3])
def test_every_short_text_ends_where_the_definition_ends_it(
    strings: tuple[str, ...], least: int
) -> None:
    """All 3,125 sequences of five tokens, with overlapping and multi-token stop strings."""
    ending = Ending.make(stop=strings, min_tokens=least, max_tokens=5)
    for tokens in sequences(LETTERS, 5):
        assert watched(tokens, ending, LETTERS)[0] == defined(tokens, ending, LETTERS), tokens


@pytest.mark.parametrize("strings", [(), ("é",), ("é€",), ("\ufffd",), ("€\ufffd", "é")])
@pytest.mark.parametrize("least", [0, 3])
def test_every_short_text_of_split_characters_ends_where_it_should(
    strings: tuple[str, ...], least: int
) -> None:
    """Stop strings of characters whose bytes lie in several tokens, or never come."""
    ending = Ending.make(stop=strings, min_tokens=least, max_tokens=4)
    for tokens in sequences(BYTES, 4):
        assert watched(tokens, ending, BYTES)[0] == defined(tokens, ending, BYTES), tokens


@pytest.mark.parametrize("strings", STOPS)
def test_streaming_shows_all_it_can_and_nothing_it_would_take_back(
    strings: tuple[str, ...],
) -> None:
    """What was shown begins the final text, and only a possible stop string is held back."""
    ending = Ending.make(stop=strings, max_tokens=99)
    for tokens in sequences(LETTERS, 5):
        end, shown = watched(tokens, ending, LETTERS)
        for n in range(1, len(shown) + 1 - (end is not None)):
            text = decoded(tokens[:n], LETTERS, False)
            open_ends = [s[:k] for s in strings for k in range(1, len(s)) if text.endswith(s[:k])]
            held = max(map(len, open_ends), default=0)
            assert "".join(shown[:n]) == text[: len(text) - held]


letters = st.lists(st.sampled_from(list(LETTERS)), max_size=12)


@given(
    letters,
    st.lists(st.text("ab", min_size=1, max_size=5), max_size=3),
    st.integers(0, 6),
    st.integers(6, 12),
    st.integers(1, 12),
    st.booleans(),
)
def test_longer_texts_end_where_the_definition_ends_them(
    tokens: list[int], strings: list[str], least: int, most: int, room: int, ignore: bool
) -> None:
    """Any stop strings, limits, room and end tokens together."""
    ending = Ending.make(stop=strings, min_tokens=least, max_tokens=most, ignore_eos=ignore)
    found, _ = watched(tokens, ending, LETTERS, room)
    assert found == defined(tokens, ending, LETTERS, room)


@given(letters, st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_an_interrupted_text_loses_nothing(tokens: list[int], strings: list[str]) -> None:
    """What was shown and what `finish` returns are the whole text, up to a stop string."""
    ending = Ending.make(stop=strings, ignore_eos=True)
    stop = Stop(ending, [EOS], Utf8(LETTERS), 99)
    text = ""
    for token in tokens:
        pushed = stop.push(token)
        text += pushed.text
        if pushed.finished:
            return
    assert text + stop.finish() == decoded(tokens, LETTERS, True)


def test_an_interruption_in_mid_character_shows_the_replacement() -> None:
    """Half a character is not lost silently."""
    stop = Stop(Ending.make(), [EOS], Utf8(BYTES), 99)
    assert stop.push(1).text == ""
    assert stop.finish() == "\ufffd"


@pytest.mark.parametrize(
    ("most", "room", "detail"), [(3, 4, "max_tokens"), (4, 3, "context"), (3, 3, "max_tokens")]
)
def test_the_limit_that_binds_is_named(most: int, room: int, detail: str) -> None:
    """Three tokens fit, whichever limit says so."""
    stop = Stop(Ending.make(max_tokens=most), [EOS], Utf8(LETTERS), room)
    assert stop.left == 3
    assert [stop.push(1).finished for _ in range(3)] == [None, None, "length"]
    assert stop.left == 0
    stop = Stop(Ending.make(max_tokens=most), [EOS], Utf8(LETTERS), room)
    assert [stop.push(1).detail for _ in range(3)] == ["", "", detail]


def test_an_end_token_at_the_limit_is_an_end_and_a_stop_string_too() -> None:
    """The text ended by itself; the limit only happened to be there."""
    for tokens, detail in (((1, EOS), "end of text"), ((1, 2), "ab")):
        end, _ = watched(tokens, Ending.make(stop=["ab"], max_tokens=2), LETTERS)
        assert end is not None
        assert (end.reason, end.detail) == ("stop", detail)


def test_every_end_token_ends_the_text() -> None:
    """A model may have several; none of them when they are to be ignored."""
    for token in (0, 2):
        assert Stop(Ending.make(), [0, 2], Utf8(LETTERS), 9).push(token).detail == "end of text"
        ignoring = Stop(Ending.make(ignore_eos=True), [0, 2], Utf8(LETTERS), 9)
        assert ignoring.push(token).finished is None


def test_a_stop_string_that_begins_early_and_ends_late_counts() -> None:
    """With min_tokens 2: "ab" of the first token is too early, "bb" across the border is not."""
    ending = Ending.make(stop=["ab", "bb"], min_tokens=2)
    assert watched((3, 2), ending, LETTERS)[0] == End(2, "a", "stop", "bb")
    assert watched((3, 1), ending, LETTERS)[0] is None


def test_a_long_stop_string_is_held_until_it_breaks() -> None:
    """Fifty tokens that might be one, and the token that shows they are not."""
    ending = Ending.make(stop=["a" * 60])
    _, shown = watched([1] * 50 + [2], ending, LETTERS)
    assert shown == [""] * 50 + ["a" * 50 + "b"]
    end, _ = watched([1] * 61, ending, LETTERS)
    assert end == End(60, "", "stop", "a" * 60)
