"""Prediction by hand-made texts: what is replaced, put in, left out or moved is passed over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drafters.loop import Text, make
from forerun.drafters.prediction import Expected, Prediction
from forerun.drafters.protocol import DraftRequest, Guess, Place
from forerun.targets.toy import ToyTarget

TARGET = ToyTarget.random(100, 1, 1)
PROMPT = [90, 91]
EXPECTED = tuple(range(10, 40))  # each token once


def asked(output: Sequence[int], prediction: Sequence[int] = EXPECTED) -> DraftRequest:
    text = Text(1, PROMPT, TARGET)
    return replace(text.request(), tokens=(*PROMPT, *output), prediction=tuple(prediction))


def place(output: Sequence[int], prediction: Sequence[int] = EXPECTED) -> Place:
    drafter = make("prediction", 100)
    assert isinstance(drafter, Prediction)
    drafter.open(1, PROMPT)
    return drafter.place(asked(output, prediction))


def guesses(output: Sequence[int], prediction: Sequence[int] = EXPECTED) -> list[int]:
    return [guess.token for guess in place(output, prediction).guesses(9)]


def test_it_follows_the_prediction_from_its_beginning() -> None:
    """The i-th token of output is the i-th of the prediction, surer and surer, to its end."""
    before = 0.0
    for i in range(len(EXPECTED)):
        (guess,) = place(EXPECTED[:i]).guesses(9)
        assert guess == Guess(EXPECTED[i], guess.confidence, "prediction", 0)
        assert before < guess.confidence or guess.confidence > 0.97
        before = guess.confidence
    assert guesses(EXPECTED) == []


def test_without_a_prediction_it_has_no_guess() -> None:
    """Nor after any token."""
    assert guesses([], ()) == []
    assert list(place([], ()).after(5).guesses(9)) == []


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_replaced_tokens_are_passed_over(count: int) -> None:
    """After as many foreign ones, what follows the same number of the prediction's; then surely."""
    output = [*EXPECTED[:6], *range(60, 60 + count)]
    assert guesses(output) == [EXPECTED[6 + count], EXPECTED[6]]
    assert guesses([*output, EXPECTED[6 + count]]) == [EXPECTED[7 + count]]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_tokens_put_in_are_passed_over(count: int) -> None:
    """After foreign ones it goes on where it stood."""
    output = [*EXPECTED[:6], *range(60, 60 + count), EXPECTED[6]]
    assert guesses(output) == [EXPECTED[7]]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_tokens_left_out_are_passed_over(count: int) -> None:
    """The first token after the gap is recognised at once, when it stands near."""
    assert guesses([*EXPECTED[:6], EXPECTED[6 + count]]) == [EXPECTED[7 + count]]


def test_far_gaps_need_more_tokens() -> None:
    """One token that stands far ahead proves nothing; three do."""
    prediction = [*range(10, 20), *[50] * 20, 30, 31, 32, 33]
    assert guesses([*range(10, 16), 30], prediction)[0] != 31
    assert guesses([*range(10, 16), 30, 31, 32], prediction) == [33]


def test_of_equal_agreements_the_nearest_ahead_counts() -> None:
    """5 6 stands twice: after a difference before the first, the first goes on."""
    prediction = [1, 2, 3, 4, 5, 6, 7, 1, 2, 5, 6, 8]
    assert guesses([1, 2, 3, 60, 5, 6], prediction) == [7]
    assert guesses([1, 2, 3, 4, 5, 6, 7, 1, 60, 5, 6], prediction) == [8]


def test_a_wrong_agreement_is_given_up() -> None:
    """A token that happens to stand ahead does not carry the search past where it belongs."""
    prediction = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    output = [1, 2, 3, 4, 60, 9, 5]  # 60 and 9 are put in; 9 stands ahead, too
    assert guesses(output, prediction) == [6]


def test_a_short_wrong_agreement_is_given_up_too() -> None:
    """Three tokens that stand far ahead by chance settle nothing yet."""
    prediction = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    assert guesses([1, 2, 3, 4, 8, 9, 10, 5], prediction) == [6]


def test_what_is_written_again_is_found_behind() -> None:
    """A whole stretch that agrees counts wherever it stands."""
    assert guesses([*EXPECTED[:20], *EXPECTED[2:10]]) == [EXPECTED[10]]


def test_places_follow_guesses_as_the_text_would() -> None:
    """After guesses, right or foreign, a place is the one of a text with these tokens."""
    for then in ([16, 17], [60], [60, 18], [60, 61, 19], [20, 21]):
        there = place(EXPECTED[:6])
        for token in then:
            there = there.after(token)
        assert list(there.guesses(9)) == list(place([*EXPECTED[:6], *then]).guesses(9))


tokens = st.lists(st.integers(0, 3), max_size=30)


@settings(max_examples=50, deadline=None)
@given(tokens, tokens, st.data())
def test_token_by_token_or_at_once_it_stands_at_the_same_place(
    prediction: list[int], output: list[int], data: st.DataObject
) -> None:
    """Asked on the way, rolled back or not at all: only the text counts."""
    drafter = make("prediction", 100)
    assert isinstance(drafter, Prediction)
    drafter.open(1, PROMPT)
    for i in range(len(output)):
        if data.draw(st.booleans()):
            drafter.place(asked(output[:i], prediction))
    if output and data.draw(st.booleans()):
        length = data.draw(st.integers(len(PROMPT), len(PROMPT) + len(output)))
        drafter.place(asked(output, prediction))
        drafter.rollback(1, length)
    found = drafter.place(asked(output, prediction)).guesses(9)
    assert list(found) == list(place(output, prediction).guesses(9))


@settings(max_examples=200, deadline=None)
@given(tokens, st.lists(st.integers(0, 3), max_size=8), st.integers(0, 30))
def test_an_agreement_is_one(prediction: list[int], tail: list[int], anchor: int) -> None:
    """Where it goes on, the tokens before are the text's last; and no longer one stands ahead."""
    at, size = Expected(prediction).find("".join(map(chr, tail)), min(anchor, len(prediction)))
    assert tail[len(tail) - size :] == prediction[max(at - size, 0) : max(at, 0)]
    longer = [
        end
        for end in range(anchor + 1, len(prediction) + 1)
        for n in range(max(size, 2) + 1, len(tail) + 1)
        if end >= n and prediction[end - n : end] == tail[-n:]
    ]
    assert not longer


def test_another_prediction_for_the_same_text_is_followed_from_the_start() -> None:
    """Where the request changes its mind, so does the drafter."""
    drafter = make("prediction", 100)
    assert isinstance(drafter, Prediction)
    drafter.open(1, PROMPT)
    drafter.place(asked([10, 11]))
    found = drafter.place(asked([10, 11], (10, 11, 77))).guesses(9)
    assert [guess.token for guess in found] == [77]
