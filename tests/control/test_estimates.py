"""What guesses are worth: a drafter's own word first, then what came true."""

from __future__ import annotations

import pytest

from forerun.control.estimates import Estimates, kind_of
from forerun.drafters.protocol import Guess
from forerun.errors import EngineError


def guess(confidence: float = 0.5, drafter: str = "a", rank: int = 0, token: int = 1) -> Guess:
    """Return a guess."""
    return Guess(token, confidence, drafter, rank)


def learn(estimates: Estimates, one: Guess, token: int) -> None:
    """Learn of one guess at one place."""
    estimates.learn([one], [kind_of(one)], token)


def test_before_anything_is_known_a_drafter_is_taken_at_its_word() -> None:
    """But never as certain."""
    estimates = Estimates()
    assert estimates.probability(guess(0.3)) == 0.3
    assert 0.0 < estimates.probability(guess(0.0)) < estimates.probability(guess(1.0)) < 1.0


@pytest.mark.parametrize("truth", [0.0, 0.2, 0.9, 1.0])
def test_a_boast_is_found_out(truth: float) -> None:
    """After many guesses the rate is what counts."""
    estimates = Estimates()
    for i in range(1000):
        right = (i * 618) % 1000 < 1000 * truth
        learn(estimates, guess(0.6), 1 if right else 2)
    assert estimates.probability(guess(0.6)) == pytest.approx(truth, abs=0.06)


def test_only_guesses_alike_are_judged() -> None:
    """Another drafter, rank or confidence keeps its own word."""
    estimates = Estimates()
    for _ in range(100):
        learn(estimates, guess(0.6), 2)
    for other in (guess(0.6, "b"), guess(0.6, rank=1), guess(0.1)):
        assert estimates.probability(other) == other.confidence
    assert kind_of(guess(0.6, rank=3)) == kind_of(guess(0.6, rank=30))


def test_what_is_long_past_fades() -> None:
    """A text that becomes easy is found out, however hard it was before."""
    estimates = Estimates()
    for _ in range(5000):
        learn(estimates, guess(), 2)
    for _ in range(600):
        learn(estimates, guess(), 1)
    assert estimates.probability(guess()) > 0.9


def test_a_text_learns_from_those_before_it_and_more_from_itself() -> None:
    """Experience is a word that counts for more than the drafter's, and for less than the text."""
    experience = Estimates()
    easy = Estimates(experience)
    for _ in range(200):
        learn(easy, guess(0.2), 1)
    hard = Estimates(experience)
    assert hard.probability(guess(0.2)) > 0.9
    for _ in range(50):
        learn(hard, guess(0.2), 2)
    assert hard.probability(guess(0.2)) < 0.25 < easy.probability(guess(0.2))


@pytest.mark.parametrize("confidence", [-0.1, 1.1, float("nan"), float("inf")])
def test_a_confidence_that_is_no_probability_is_refused_by_name(confidence: float) -> None:
    """It would spoil every comparison after it."""
    with pytest.raises(EngineError, match=r"'wild'.*confidence"):
        Estimates().judge([guess(confidence, "wild")])
