"""A learned exit drafts with the target's first layers, and whatever it guesses, the text stays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun
from drafters.loop import Text
from forerun.config import Sampling
from forerun.core.noise import Noise
from forerun.core.tree import Draft
from forerun.drafters.exit import Exit
from forerun.drafters.protocol import NOWHERE, parts_of, price_of
from forerun.drafters.table import DrafterKit
from forerun.errors import CapabilityError, OptionError
from forerun.targets.protocol import Row
from forerun.targets.toy import ToyTarget
from forerun.targets.toy_readout import ToyReadout
from models.random_head import random_head
from models.tiny_gguf import Tiny

V = 6
TOY = ToyTarget.random(V, 2, 11, context=12)
ADAPTER = ToyReadout(TOY, (1, 2, 4, 5), layer=1)


class Counting(ToyTarget):
    """Counts its passes and their rows, and that none is whole."""

    passes: list[int]

    def score(self, rows: Any, **asked: Any) -> Any:
        """Count, and score."""
        assert (asked["until"], tuple(asked["logits"])) == (1, ())
        self.passes.append(len(rows))
        return super().score(rows, **asked)


def made(adapter: ToyReadout = ADAPTER) -> tuple[Exit, Counting]:
    """A drafter over a toy that counts."""
    toy = Counting.random(V, 2, 11, context=12)
    toy.passes = []
    return Exit(DrafterKit(V, lambda: toy, target=toy, open_readout=lambda _: adapter)), toy


def request_of(toy: ToyTarget, tokens: list[int], **asked: Any) -> Any:
    """What is asked for a text that the toy holds."""
    request = Text(1, tokens, toy, **asked).request()
    return replace(request, target_sequence=toy.open(tokens[:-1]))


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_it_guesses_from_what_enters_its_layer(temperature: float) -> None:
    """At the root and behind guesses: by logit, or log q + g at the guessed token's position."""
    drafter, toy = made()
    tokens = [0, 1, 2, 3, 0]
    request = request_of(toy, tokens, sampling=Sampling(temperature=temperature))
    place = drafter.place(request)
    for token in (4, 2, 5):
        logits = ADAPTER.read(TOY.hidden_after(tokens, 1)[None])[0, 0].astype(np.float64)
        if temperature:
            noise = Noise(7).gumbel(len(tokens), V)[ADAPTER.tokens]
            logits = logits / temperature + noise
        expected = ADAPTER.tokens[np.argsort(-logits, kind="stable")].tolist()
        assert parts_of(place) == (NOWHERE, place)
        assert [guess.token for guess in place.guesses(4)] == expected
        assert place.guesses(2) == place.guesses(4)[:2]
        tokens.append(token)
        place = place.after(token)
    assert toy.passes == [1, 2, 3]  # each from the root on, and no place twice


def test_the_context_ends_it() -> None:
    """Behind the last position there is no guess, and no pass."""
    drafter, toy = made()
    tokens = [1] * 11
    request = request_of(toy, tokens, budget=(5, 2))
    place = drafter.place(request)
    assert len(place.guesses(2)) == len(place.after(1).guesses(2)) == 2
    assert place.after(1).after(1).guesses(2) == ()
    assert toy.passes == [1, 2]
    assert drafter.draft([request])[0].height == 2


def test_asking_has_a_price_once_it_was_asked() -> None:
    """Seconds a place, the pass over the first layers included."""
    drafter, toy = made()
    text = Text(1, [1, 2, 3], toy)
    assert price_of(drafter) == 0.0
    drafter.place(request_of(toy, [1, 2, 3])).guesses(1)
    assert price_of(drafter) == 0.0
    drafter.observe([text.take(Draft(), 1)])
    assert 0.0 < price_of(drafter) < 1.0


def test_a_target_whose_passes_are_whole_is_refused() -> None:
    """It can't be left early; nor can none."""
    for target in (None, ToyTarget.random(V, 0, 1)):
        with pytest.raises(CapabilityError, match="passes are whole"):
            Exit(DrafterKit(V, lambda: TOY, target=target, open_readout=lambda _: ADAPTER))


# ---- on real targets


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A tiny model, and an exit for it behind the first of its layers."""
    folder = tmp_path_factory.mktemp("exit")
    tiny = Tiny(width=64, inner=96, layers=3, context=160, quantisation="Q4_1")
    path = tiny.write(folder / "tiny.gguf")
    random_head(folder / "exit.gguf", forerun.load(path).model, size=200, of="exit")
    return path, folder / "exit.gguf"


def test_it_reads_the_targets_own_states(files: tuple[Path, Path]) -> None:
    """A text's guesses are those of a whole pass's states at its layer, to the bit."""
    lm = forerun.load(files[0], head=files[1])
    drafter: Any = lm._drafter("exit")
    tokens = [5, 6, 7, 8, 9]
    held = lm.target.open(tokens[:2])
    text = Text(1, tokens[:3], ToyTarget.random(lm.target.vocab_size, 0, 1))
    request = replace(text.request(), target_sequence=held)
    read = drafter.ask(request, tokens[3:])
    rows = [Row(held, token, 2 + i, i - 1) for i, token in enumerate(tokens[2:])]
    hidden = lm.target.score(rows, logits=(), layers=(1,)).hidden[1]
    np.testing.assert_array_equal(read, drafter._adapter.read(hidden[2:])[0, 0])


def test_without_an_adapter_it_says_what_it_needs(files: tuple[Path, Path]) -> None:
    """None comes along, and one of another kind is none."""
    with pytest.raises(OptionError, match="'exit' needs a head, and none comes with"):
        forerun.load(files[0]).generate([1, 2], drafter="exit")
    with pytest.raises(OptionError, match="'medusa' does not read a head of kind 'exit'"):
        forerun.load(files[0], head=files[1]).generate([1, 2], drafter="medusa")
