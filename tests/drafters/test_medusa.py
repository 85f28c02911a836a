"""Parallel heads draft: from the state before the root, and whatever they guess, the text stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun
from drafters.loop import Text, fingerprint, follow, grow, states
from forerun.config import Sampling
from forerun.core.noise import Noise
from forerun.core.tree import Draft
from forerun.drafters.medusa import Medusa
from forerun.drafters.protocol import NOWHERE, parts_of, price_of
from forerun.drafters.table import DrafterKit
from forerun.errors import OptionError, OtherTargetError
from forerun.targets.toy import ToyTarget
from forerun.targets.toy_readout import ToyReadout
from models.random_head import random_head
from models.tiny_gguf import Tiny

V = 6
TOY = ToyTarget.random(V, 1, 11)
PROMPT = [0, 1, 2, 3, 0, 1, 2, 4, 0, 1]
HEADS = ToyReadout(TOY, (1, 2, 4, 5))


class Counting(ToyReadout):
    """Counts what is read."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.reads: list[int] = []

    def read(self, hidden: Any) -> Any:
        """Count, and read."""
        self.reads.append(len(hidden))
        return super().read(hidden)


def medusa_of(heads: ToyReadout) -> Medusa:
    """A drafter with these heads."""
    return Medusa(DrafterKit(V, lambda: TOY, open_readout=lambda _: heads))


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_head_k_guesses_the_kth_token(temperature: float) -> None:
    """By logit, or log q + g at the guessed token's own position, whatever the guesses before."""
    medusa = medusa_of(HEADS)
    follow(medusa, 1, PROMPT, TOY)
    request = Text(1, PROMPT, TOY, sampling=Sampling(temperature=temperature)).request()
    logits = HEADS.read(TOY.hidden_after(PROMPT[:-1], 1)[None])[0]
    place = medusa.place(request)
    for depth in range(3):
        scores = logits[depth].astype(np.float64)
        if temperature:
            scores = scores / temperature + Noise(7).gumbel(len(PROMPT) + depth, V)[HEADS.tokens]
        expected = HEADS.tokens[np.argsort(-scores, kind="stable")].tolist()
        for at in (place, place.after(0) if depth == 2 else place):
            if at is place:
                assert [guess.token for guess in at.guesses(4)] == expected
                assert [guess.rank for guess in at.guesses(2)] == [0, 1]
        place = place.after(depth)
    assert place is NOWHERE


def test_one_product_reads_all_texts_that_may_be_asked() -> None:
    """Nothing is read before somebody asks, and then no text twice."""
    heads = Counting(TOY)
    medusa = medusa_of(heads)
    texts = [Text(i, PROMPT[i:], TOY, budget=(5, 2), chance=i) for i in range(4)]
    for text in texts:
        follow(medusa, text.sequence, text.tokens, TOY)
    places = [medusa.place(text.request()) for text in texts]
    assert heads.reads == []
    for place in places:
        place.guesses(3)
        place.after(1).guesses(2)
    assert heads.reads == [4]
    drafts = medusa.draft([text.request() for text in texts[:3]])
    assert heads.reads == [4, 3]
    assert [draft.height for draft in drafts] == [3, 3, 3]  # as many as there are heads


def test_it_goes_on_where_states_were_missed() -> None:
    """A text whose last state is unknown is not guessed; the next one is enough."""
    medusa = medusa_of(HEADS)
    text = Text(1, PROMPT, TOY, budget=(3, 2))
    medusa.open(1, PROMPT)
    assert medusa.place(text.request()) is NOWHERE
    assert len(medusa.draft([text.request()])[0]) == 0
    outcome = text.take(Draft(), 1)
    medusa.observe([outcome._replace(hidden={})])
    assert len(medusa.draft([text.request()])[0]) == 0
    medusa.observe([text.take(Draft(), 1)])
    fresh = medusa_of(HEADS)
    follow(fresh, 1, text.tokens, TOY)
    drafts = [each.draft([text.request()])[0] for each in (medusa, fresh)]
    assert fingerprint(drafts[0], V) == fingerprint(drafts[1], V) != []


def test_states_that_are_known_are_not_taken_again() -> None:
    """Shown once more, they make no difference."""
    medusa = medusa_of(HEADS)
    follow(medusa, 1, PROMPT, TOY)
    request = Text(1, PROMPT, TOY, budget=(3, 2)).request()
    expected = fingerprint(medusa.draft([request])[0], V)
    for start in (0, 5, 8):
        medusa.see(1, start, states(TOY, [[4]]))
        assert fingerprint(medusa.draft([request])[0], V) == expected != []


def test_rolled_back_further_than_is_kept_it_begins_anew() -> None:
    """It has no guess until a round shows it a state, and then the right ones."""
    medusa = medusa_of(HEADS)
    tokens = (PROMPT * 30)[:250]
    follow(medusa, 1, tokens, TOY)
    text = Text(1, tokens[:100], TOY, budget=(3, 2))
    medusa.rollback(1, 100)
    assert medusa.place(text.request()) is NOWHERE
    grow(medusa, 1, 100, tokens[:101], TOY)
    fresh = medusa_of(HEADS)
    follow(fresh, 1, tokens[:101], TOY)
    request = Text(1, tokens[:101], TOY, budget=(3, 2)).request()
    drafts = [fingerprint(each.draft([request])[0], V) for each in (medusa, fresh)]
    assert drafts[0] == drafts[1] != []


def test_asking_has_a_price_once_it_was_asked() -> None:
    """Seconds a place; all of a place has it."""
    medusa = medusa_of(HEADS)
    text = Text(1, PROMPT, TOY)
    follow(medusa, 1, PROMPT, TOY)
    place = medusa.place(text.request())
    assert price_of(medusa) == 0.0
    assert parts_of(place) == (NOWHERE, place)
    place.guesses(2)
    medusa.observe([text.take(Draft(), 1)])
    assert 0.0 < price_of(medusa) < 1.0


# ---- on real targets


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A tiny model, and heads for it."""
    folder = tmp_path_factory.mktemp("medusa")
    tiny = Tiny(width=64, inner=96, layers=3, context=160, quantisation="Q4_1")
    path = tiny.write(folder / "tiny.gguf")
    model = forerun.load(path).model
    random_head(folder / "medusa.gguf", model, size=200, of="medusa")
    return path, folder / "medusa.gguf"


def test_what_it_reads_is_the_targets_own_last_state(files: tuple[Path, Path]) -> None:
    """After every round: what a fresh pass over the text gives before the last token."""
    from forerun.targets.protocol import Row

    lm = forerun.load(files[0], head=files[1])
    asked = {"max_tokens": 20, "temperature": 1.0, "seed": 4, "draft_length": 2, "draft_width": 2}
    stream = lm.stream([5, 6, 7, 8], drafter="medusa", **asked)
    tokens, seen = [5, 6, 7, 8], 0
    medusa: Any = lm._drafter("medusa")
    for event in stream:
        tokens += [event.token] if hasattr(event, "token") else []
        if not medusa._texts:
            break
        (text,) = medusa._texts.values()
        if text.at(len(tokens) - 2) is not None:
            held = lm.target.open()
            rows = [Row(held, token, i, i - 1) for i, token in enumerate(tokens[:-1])]
            hidden = lm.target.score(rows, logits=(), layers=(3,)).hidden[3]
            np.testing.assert_array_equal(text.at(len(tokens) - 2), hidden[-1])
            lm.target.free(held)
            seen += 1
    assert seen > 3


def test_heads_of_another_kind_or_target_are_refused(files: tuple[Path, Path]) -> None:
    """By the drafter that is asked for; force takes those of another target."""
    path, head = files
    lm = forerun.load(path, head=head)
    with pytest.raises(OptionError, match="'eagle' does not read a head of kind 'medusa'"):
        lm.generate([1, 2], drafter="eagle,suffix")
    with pytest.raises(OptionError, match="is a head of kind 'medusa', not eagle3"):
        lm.generate([1, 2], drafter="medusa,eagle")
    assert lm.generate([1, 2], drafter="suffix", max_tokens=2).token_ids  # which reads none
    with pytest.raises(OptionError, match="'medusa' needs a head, and none comes with"):
        forerun.load(path).generate([1, 2], drafter="medusa")
    tiny = Tiny(width=64, inner=96, layers=3, context=160, quantisation="Q4_1", seed=9)
    other = tiny.write(path.parent / "other.gguf")
    with pytest.raises(OtherTargetError):
        forerun.load(other, head=head).generate([1, 2], drafter="medusa")
    forced = forerun.load(other, head=head, force_head=True)
    asked = {"max_tokens": 12, "temperature": 1.0, "seed": 1}
    result = forced.generate([1, 2, 3], drafter="medusa", draft_length=2, **asked)
    assert result.stats.drafted > 0
    assert result.token_ids == forced.generate([1, 2, 3], drafter="none", **asked).token_ids
