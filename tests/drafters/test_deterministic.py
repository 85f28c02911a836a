"""Lookup against brute force, suffix and scripted by example: what exactly they guess."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drafters.loop import Text, make
from forerun.core.proposal import Point
from forerun.core.tree import Draft
from forerun.drafters.lookup import LONGEST, RECENT, SHORTEST
from forerun.drafters.protocol import DraftRequest
from forerun.drafters.table import DrafterKit, make_drafter
from forerun.errors import EngineError, OptionError
from forerun.targets.toy import ToyTarget

TARGET = ToyTarget.random(10, 1, 1)


def asked(text: list[int], length: int, width: int, prompt_length: int = 0) -> DraftRequest:
    made = Text(1, text[:prompt_length], TARGET, budget=(length, width))
    made.tokens = text
    return made.request()


def paths(draft: Draft) -> list[list[int]]:
    """Return the texts from the root to each leaf."""
    leaves = [i for i in range(len(draft)) if not draft.children(i)]
    return [[draft.nodes[n].token for n in draft.path(leaf)] for leaf in leaves]


def guess(spec: str, text: list[int], length: int, width: int = 1) -> list[list[int]]:
    drafter = make(spec, 10)
    drafter.open(1, text)
    (draft,) = drafter.draft([asked(text, length, width)])
    assert all(node.proposal == Point(node.token) for node in draft.nodes)
    return paths(draft)


def looked_up(text: list[int], length: int, width: int) -> list[list[int]]:
    """Return lookup's continuations by plain search from the text's end."""
    found: list[list[int]] = []
    for size in range(min(LONGEST, len(text)), SHORTEST - 1, -1):
        matches = [
            end
            for end in range(len(text) - 1, size - 1, -1)
            if text[end - size : end] == text[-size:]
        ]
        for end in matches[:RECENT]:
            copy = list(text)
            for i in range(length):
                copy.append(copy[end + i])  # reads what it has just written, if need be
            if copy[len(text) :] not in found:
                found.append(copy[len(text) :])
    return found[:width] if length else []


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 2), max_size=30), st.integers(0, 6), st.integers(1, 3))
def test_lookup_is_plain_search(text: list[int], length: int, width: int) -> None:
    """Longest n-gram first, most recent occurrence first, distinct continuations only."""
    assert sorted(guess("lookup", text, length, width)) == sorted(looked_up(text, length, width))
    assert guess("lookup", text, length)[:1] == looked_up(text, length, 1)


def test_lookup_prefers_the_longer_match_to_the_later_one() -> None:
    """After 1 2 3, what followed 1 2 3 beats what followed a later 3."""
    text = [1, 2, 3, 4, 9, 3, 5, 1, 2, 3]
    assert guess("lookup", text, 1) == [[4]]
    assert guess("lookup", text, 1, 2) == [[4], [5]]


@pytest.mark.parametrize("spec", ["lookup", "suffix"])
def test_a_loop_goes_on_at_any_length(spec: str) -> None:
    """A copy that runs over the text's end goes on with itself."""
    assert guess(spec, [7, 1, 2, 3, 1, 2, 3], 7) == [[1, 2, 3, 1, 2, 3, 1]]
    assert guess(spec, [4, 4], 5) == [[4] * 5]


def test_suffix_prefers_what_followed_more_often() -> None:
    """After 1 2, which was followed by 3 twice and once, later, by 4: 3; with width 2 both."""
    text = [1, 2, 3, 0, 1, 2, 3, 5, 1, 2, 4, 6, 1, 2]
    assert guess("suffix", text, 1) == [[3]]
    assert guess("suffix", text, 1, 2) == [[3], [4]]


def test_suffix_asks_shorter_matches_for_more_children() -> None:
    """Where the longest match knows one continuation, a shorter one gives the second."""
    text = [1, 2, 3, 0, 2, 4, 0, 1, 2]
    assert guess("suffix", text, 1, 2) == [[3], [4]]


def test_suffix_branches_along_the_trunk_only() -> None:
    """Every trunk node has up to `width` children; the others are leaves."""
    text = [1, 2, 3, 1, 2, 4, 1, 2, 3, 1]
    drafter = make("suffix", 10)
    drafter.open(1, text)
    (draft,) = drafter.draft([asked(text, 4, 2)])
    branching = [i for i in range(-1, len(draft)) if draft.children(i)]
    trunk = [-1]
    while draft.children(trunk[-1]):
        trunk.append(draft.children(trunk[-1])[0])
    assert branching == trunk[:-1]
    assert len(trunk) == 5


def test_scripted_guesses_its_script_at_the_outputs_offset() -> None:
    """The i-th token of output is guessed to be the script's i-th, until the script ends."""
    drafter = make("scripted", 10, script=(5, 6, 7, 8))
    assert paths(drafter.draft([asked([1, 2], 3, 1, 2)])[0]) == [[5, 6, 7]]
    assert paths(drafter.draft([asked([1, 2, 0, 6], 3, 1, 2)])[0]) == [[7, 8]]
    assert paths(drafter.draft([asked([1, 2, 5, 6, 7, 8], 3, 1, 2)])[0]) == []


def test_scripted_without_a_script_repeats_the_prompt() -> None:
    """Each text's own prompt is its script."""
    drafter = make("scripted", 10)
    assert paths(drafter.draft([asked([1, 2, 3, 1], 3, 2, 3)])[0]) == [[2, 3]]


@pytest.mark.parametrize("token", [-1, 10])
def test_a_script_of_unknown_tokens_is_refused(token: int) -> None:
    """With the offending token."""
    kit = DrafterKit(10, lambda: TARGET, (1, token))
    with pytest.raises(OptionError, match=f"token {token}"):
        make_drafter("scripted", kit)


@pytest.mark.parametrize("spec", ["suffix", "lookup", "bigram", "model"])
def test_unknown_and_doubled_texts_are_broken_promises(spec: str) -> None:
    """A text is opened once, and only an open one can be asked about."""
    drafter = make(spec, 10)
    drafter.open(1, [1, 2])
    drafter.open(2, [1, 2])
    with pytest.raises(EngineError, match="already follows text 1"):
        drafter.open(1, [])
    with pytest.raises(EngineError, match="already follows text 2"):
        drafter.fork(1, 2)
    for call in (drafter.free, lambda s: drafter.fork(s, 9), lambda s: drafter.rollback(s, 0)):
        with pytest.raises(EngineError, match="does not follow text 3"):
            call(3)
