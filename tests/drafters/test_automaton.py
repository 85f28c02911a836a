"""The suffix automaton against brute force over all substrings."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.drafters.automaton import CEILING, CONTEXTS, ROOT, SuffixAutomaton, discount

texts = st.one_of(
    st.lists(st.integers(0, 2), max_size=40),
    st.lists(st.integers(0, 6), max_size=40),
    # Runs and loops, where suffix automata get deep.
    st.builds(lambda unit, times, end: unit * times + end,
              st.lists(st.integers(0, 2), min_size=1, max_size=4), st.integers(1, 24),
              st.lists(st.integers(0, 2), max_size=4)),
)  # fmt: skip


def built(text: list[int]) -> SuffixAutomaton:
    automaton = SuffixAutomaton()
    for token in text:
        automaton.push(token)
    return automaton


def ends(text: list[int], part: list[int]) -> list[int]:
    """Return where `part` ends in `text`."""
    size = len(part)
    return [e for e in range(size, len(text) + 1) if text[e - size : e] == part]


def longest_match(text: list[int]) -> int:
    """Return the length of the longest suffix that also ends before the text's end."""
    sizes = range(len(text) - 1, 0, -1)
    return next((n for n in sizes if len(ends(text, text[-n:])) > 1), 0)


def widened(text: list[int], part: list[int]) -> list[int]:
    """Return the longest string that ends in the same places: what a state stands for."""
    while part:
        before = {text[e - len(part) - 1] if e > len(part) else None for e in ends(text, part)}
        if len(before) > 1 or None in before:
            break
        part = [*before, *part]  # type: ignore[list-item]
    return part


def weighed(text: list[int], context: list[int]) -> dict[int, float]:
    """Return the confidence of what followed the context, by plain search and the formula."""
    found: dict[int, float] = {}
    left, classes = 1.0, 0
    last: list[int] = []
    for size in range(len(context), 0, -1):
        places = ends(text, context[-size:])
        if places == last or classes == CONTEXTS or left < 0.02:
            continue
        last, classes = places, classes + 1
        after = [text[e] for e in places if e < len(text)]
        counts = {t: min(after.count(t), CEILING) for t in reversed(dict.fromkeys(after))}
        total = sum(counts.values())
        for token, times in counts.items():
            share = left * (times - discount(size)) / total
            found[token] = found.get(token, 0.0) + share
        if counts:
            left *= discount(size) * len(counts) / total
    return found


@settings(max_examples=300, deadline=None)
@given(texts)
def test_the_match_is_the_longest_earlier_suffix(text: list[int]) -> None:
    """After every token, as by trying all lengths."""
    automaton = SuffixAutomaton()
    for i, token in enumerate(text):
        automaton.push(token)
        assert automaton.length(automaton.match) == longest_match(text[: i + 1])


@settings(max_examples=300, deadline=None)
@given(texts, st.integers(1, 4), st.lists(st.integers(0, 2), max_size=5))
def test_continuations_are_weighed_by_count_and_length(
    text: list[int], most: int, steps: list[int]
) -> None:
    """At the match, and wherever tokens lead from there, as by counting occurrences."""
    automaton = built(text)
    state = automaton.match
    context = widened(text, text[len(text) - longest_match(text) :])
    for token in [*steps, None]:
        assert automaton.length(state) == len(context)
        expected = weighed(text, context)
        shown = automaton.continuations(state, most)
        assert dict(shown) == pytest.approx({t: expected[t] for t, _ in shown})
        best = sorted(expected, key=lambda t: -expected[t])
        assert [t for t, _ in shown] == best[:most]
        assert sum(expected.values()) <= 1.0
        if token is not None:
            state = automaton.follow(state, token)
            context = [*context, token]
            while context and not ends(text, context):
                context = context[1:]
            context = widened(text, context)


@settings(max_examples=100, deadline=None)
@given(texts, st.data(), texts)
def test_cut_and_copy_are_as_built_anew(
    text: list[int], data: st.DataObject, then: list[int]
) -> None:
    """Cut to any length and grown again, or copied, it is the automaton of the text it says."""
    length = data.draw(st.integers(0, len(text)))
    automaton = built(text)
    twin = automaton.copy()
    if length < len(text):
        automaton.cut(length)
    for token in then:
        automaton.push(token)
    assert vars(automaton) == vars(built(text[:length] + then))
    assert vars(twin) == vars(built(text))


def test_the_work_for_each_token_stays_bounded() -> None:
    """Over a long loop, states and transitions stay linear in the text, and counts saturate."""
    for unit in ([0], [0, 1], [0, 1, 0, 0, 1]):
        automaton = built(unit * (3000 // len(unit)))
        assert len(automaton._length) <= 2 * 3000
        assert sum(map(len, automaton._next)) <= 3 * 3000  # 3 n - 4, Blumer et al.
        assert max(automaton._count) == CEILING


def test_nothing_is_matched_by_nothing() -> None:
    """Empty texts, and texts without a repeat, match the empty string, which guesses nothing."""
    for text in ([], [0], [0, 1, 2]):
        automaton = built(list(text))
        assert automaton.match == ROOT
        assert automaton.continuations(automaton.match, 3) == []
