"""Drafters that users bring: what they get wrong is told with their name, and hangs nothing."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.core.tree import Draft
from forerun.drafters.grow import grow
from forerun.drafters.memory import Memoryless
from forerun.drafters.own import checked
from forerun.drafters.protocol import NOWHERE, Guess, Guesser
from forerun.errors import EngineError, OptionError
from models.tiny_gguf import Tiny

PROMPT = [1, 2, 3, 4, 5] * 4


class Mine(Memoryless):
    """Guesses what it is told to."""

    name = "mine"

    def __init__(self, guesses: Callable[[int], Any]) -> None:
        self.guesses = guesses

    def after(self, token: int) -> Any:
        """The same anywhere."""
        return self

    def place(self, request: Any) -> Any:
        """Itself."""
        return self

    def guess(self, request: Any) -> Draft:
        """A comb of them."""
        return grow(self.place(request), request)


def guessing(*guess: Any) -> Mine:
    """One that has a single guess, anywhere."""
    return Mine(lambda most: [Guess(*guess)])


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model."""
    return Tiny().write(tmp_path_factory.mktemp("own") / "own.gguf")


def written(path: Path, mine: Any, drafter: str = "mine", **options: Any) -> forerun.Result:
    """What is written with a drafter of one's own."""
    lm = forerun.load(path, threads=1)
    lm.add_drafter(mine)
    asked = {"max_tokens": 12, "ignore_eos": True, "drafter": drafter, **options}
    return lm.generate(PROMPT, **asked)


WRONG = {
    "None": Mine(lambda most: None),
    "a number": Mine(lambda most: 5),
    "tuples": Mine(lambda most: [(1, 0.5)]),
    "tuples like guesses": Mine(lambda most: [(1, 0.5, "mine", 0)]),
    "no end": Mine(lambda most: (Guess(1, 0.5, "mine", 0) for _ in count())),
    "a token with a fraction": guessing(5.5, 0.5, "mine", 0),
    "no token": guessing(None, 0.5, "mine", 0),
    "a word for a token": guessing("1", 0.5, "mine", 0),
    "a token beyond all": guessing(10**30, 0.5, "mine", 0),
    "a word for confidence": guessing(1, "0.5", "mine", 0),
    "no confidence": guessing(1, None, "mine", 0),
    "NaN": guessing(1, float("nan"), "mine", 0),
    "too sure": guessing(1, 1.5, "mine", 0),
    "too large": guessing(1, 10**400, "mine", 0),
    "a list for confidence": guessing(1, [0.5], "mine", 0),
    "no drafter": guessing(1, 0.9, None, 0),
    "a list for a drafter": guessing(1, 0.9, [], 0),
    "no rank": guessing(1, 0.9, "mine", None),
    "a rank below 0": guessing(1, 0.9, "mine", -1),
    "an error": Mine(lambda most: 1 / 0),
    "a late error": Mine(lambda most: (1 / 0 for _ in "ab")),
}


@pytest.mark.parametrize("drafter", ["mine", "mine,suffix", "suffix,mine"])
@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_guesses_are_told_with_the_drafters_name(
    path: Path, wrong: str, drafter: str
) -> None:
    """Alone or among others: an error of ours, at once."""
    with pytest.raises(EngineError, match="Drafter 'mine'") as told:
        written(path, WRONG[wrong], drafter)
    assert len(str(told.value)) < 400


@pytest.mark.parametrize(
    "make", [lambda: None, lambda: SimpleNamespace(guesses=3, after=4), lambda: 1 / 0]
)
def test_a_wrong_place_is_told(path: Path, make: Callable[[], Any]) -> None:
    """The first one, and one further on."""
    first, later = guessing(1, 0.9, "mine", 0), guessing(1, 0.9, "mine", 0)
    first.place = lambda request: make()  # type: ignore[method-assign]
    later.after = lambda token: make()  # type: ignore[method-assign]
    for mine in (first, later):
        with pytest.raises(EngineError, match="Drafter 'mine'"):
            written(path, mine, max_tokens=40)


@pytest.mark.parametrize(
    "answer",
    [
        *(None, 5, [], [None], [Draft(), Draft()], "x", {}),
        [Draft.chain([10**9], "mine")],
        [Draft.chain([1], None)],  # type: ignore[arg-type]
        [Draft.chain([1] * 9, "mine")],
    ],
)
def test_a_wrong_draft_is_told(path: Path, answer: Any) -> None:
    """Where the length is given, the drafter drafts by itself."""
    mine = guessing(1, 0.9, "mine", 0)
    mine.draft = lambda requests: answer  # type: ignore[method-assign]
    with pytest.raises(EngineError, match="Drafter 'mine'"):
        written(path, mine, draft_length=3)


@pytest.mark.parametrize("wrong", ["a token with a fraction", "an error", "None", "no end"])
def test_what_a_draft_trips_over_is_told(path: Path, wrong: str) -> None:
    """By `grow`, say; who has no end of guesses is heard for a while."""
    if wrong == "no end":
        assert written(path, WRONG[wrong], draft_length=3).stats.drafted
        return
    with pytest.raises(EngineError, match="Drafter 'mine'") as told:
        written(path, WRONG[wrong], draft_length=3)
    assert told.value.__cause__ is not None


@pytest.mark.parametrize("drafter", ["mine", "mine,suffix", "suffix, mine", "mine,random"])
@pytest.mark.parametrize("length", ["auto", 3])
def test_one_of_ones_own_joins_the_others(path: Path, drafter: str, length: Any) -> None:
    """Its guesses are merged with theirs, numpy's numbers are numbers, and the text stays."""
    mine = guessing(np.int64(1), np.float32(0.9), "mine", np.int8(0))
    options = {"draft_length": length, "temperature": 1.0, "seed": 3, "max_tokens": 30}
    result = written(path, mine, drafter, **options)
    assert result.token_ids == written(path, mine, "none", **options).token_ids
    if length == 3:
        assert result.stats.by_drafter["mine"][0] > 0


def test_a_wrong_name_beside_it_is_told(path: Path) -> None:
    """With those that there are; a name that is no text is none."""
    mine = guessing(1, 0.9, "mine", 0)
    with pytest.raises(OptionError, match=r"no drafter 'mien'.*Did you mean 'mine'"):
        written(path, mine, "mien,suffix")
    for name in (5, None):
        nameless = guessing(1, 0.9, "mine", 0)
        nameless.name = name  # type: ignore[assignment]
        with pytest.raises(OptionError, match="can't be called"):
            written(path, nameless)
    with pytest.raises(OptionError, match="no drafter"):
        written(path, Mine)


def test_a_drafter_may_know_nothing(path: Path) -> None:
    """The place for that stays what it is, which spares the others the question."""
    mine = guessing(1, 0.9, "mine", 0)
    mine.place = lambda request: NOWHERE  # type: ignore[method-assign]
    guesser = checked(mine)
    assert isinstance(guesser, Guesser)
    assert guesser.place(SimpleNamespace(warp=SimpleNamespace(vocab_size=9))) is NOWHERE  # type: ignore[arg-type]
    assert written(path, mine, "mine,suffix").token_ids == written(path, mine, "none").token_ids


class Watching(Mine):
    """Guesses token 1, and keeps what it is shown."""

    def __init__(self, layers: Any) -> None:
        super().__init__(lambda most: [Guess(1, 0.5, "mine", 0)])
        self.layers = layers
        self.shown: list[Any] = []

    def see(self, sequence: int, start: int, hidden: Any) -> None:
        """Keep the first position and the shapes."""
        self.shown.append((start, {layer: states.shape for layer, states in hidden.items()}))

    def observe(self, outcomes: Any) -> None:
        """Keep the shapes."""
        shapes = [{n: s.shape for n, s in one.hidden.items()} for one in outcomes]
        self.shown += [(len(one.draft), s) for one, s in zip(outcomes, shapes, strict=True)]


@pytest.mark.parametrize("drafter", ["mine", "mine,suffix"])
def test_one_of_ones_own_may_watch(path: Path, drafter: str) -> None:
    """It is shown the layers that it names, of the prompt and of each round's rows."""
    mine = Watching((2, 0))
    plain = written(path, Watching(()), drafter="none")
    assert written(path, mine, drafter=drafter).token_ids == plain.token_ids
    width = forerun.load(path).model.architecture.width
    states = {n: (len(PROMPT) - 1, width) for n in (0, 2)}
    assert mine.shown[0] == (0, states)
    assert len(mine.shown) > 1
    for nodes, shapes in mine.shown[1:]:
        assert shapes == dict.fromkeys((0, 2), (1 + nodes, width))


@pytest.mark.parametrize("layers", [3, "two", ("two",), [None]])
def test_wrong_layers_are_told(path: Path, layers: Any) -> None:
    """With the drafter's name, before any text."""
    with pytest.raises(EngineError, match=r"'mine' watches .* instead of layers"):
        written(path, Watching(layers))
