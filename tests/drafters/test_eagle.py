"""A learned head drafts: always on true features, and whatever it guesses, the text stays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun
from drafters.loop import Text, fingerprint, follow, grow, states, write
from forerun.config import Sampling
from forerun.core.noise import Noise
from forerun.core.tree import Draft
from forerun.core.warp import State, Warp
from forerun.drafters.eagle import Eagle
from forerun.drafters.head_ranks import HeadRanks
from forerun.drafters.head_text import read
from forerun.drafters.mix import Mix
from forerun.drafters.protocol import NOWHERE, DraftRequest, price_of
from forerun.drafters.suffix import Suffix
from forerun.drafters.table import DrafterKit
from forerun.errors import ModelFileError, OptionError, OtherTargetError
from forerun.targets.head import Head, HeadScores
from forerun.targets.protocol import Row
from forerun.targets.toy import ToyTarget
from forerun.targets.toy_head import ToyHead
from models.random_head import random_head
from models.tiny_gguf import Tiny

V = 6
TOY = ToyTarget.random(V, 1, 11)
PROMPT = [0, 1, 2, 3, 0, 1, 2, 4, 0, 1]


class Counting(ToyHead):
    """Counts its passes and their rows."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.passes: list[int] = []

    def score(self, rows: Sequence[Row], **asked: Any) -> HeadScores:
        """Count, and score."""
        self.passes.append(len(rows))
        return super().score(rows, **asked)


def eagle_of(head: Head) -> Eagle:
    """An eagle with this head."""
    return Eagle(DrafterKit(V, lambda: TOY, open_head=lambda: head))


# ---- what it guesses


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("width", [1, 3])
def test_a_head_that_knows_the_law_is_never_wrong(temperature: float, width: int) -> None:
    """Under match with q = p every guess of the trunk is the target's token."""
    sampling = Sampling(temperature=temperature)
    text = Text(1, PROMPT, TOY, sampling=sampling, budget=(4, width))
    write(eagle_of(ToyHead(TOY, blur=0.0)), [text], 40)
    assert len(text.drafts) == 8  # 40 tokens, 4 accepted and 1 bonus a round


def ranked(sampling: Sampling, logits: Any, tokens: Any, most: int) -> list[Any]:
    """What a head's logits become at position 9, behind tokens 1 and 2."""
    text = Text(0, [1, 2], TOY, sampling=sampling)
    ranks = HeadRanks(text.request(), np.array(tokens, np.uint32), "eagle")
    return ranks.guesses(np.array(logits, np.float32), 9, text.state, most)


def test_at_temperature_0_guesses_rank_by_probability() -> None:
    """And their confidence is that, among the draft vocabulary."""
    guesses = ranked(Sampling(), [0.0, 2.0, 1.0], [1, 3, 5], 2)
    weights = np.exp([2.0, 1.0, 0.0])
    assert [(guess.token, guess.rank) for guess in guesses] == [(3, 0), (5, 1)]
    shares = weights / weights.sum()
    assert [guess.confidence for guess in guesses] == pytest.approx(shares[:2].tolist(), rel=0.05)


@pytest.mark.parametrize("temperature", [1e-300, 1e-30, 0.5, 1.0, 50.0])
def test_above_it_they_rank_by_the_noise_that_chooses(temperature: float) -> None:
    """The order of log q + g over the draft vocabulary; what p may have elsewhere nobody gets."""
    logits, tokens = np.array([0.3, 0.1, 0.2, -0.5]), np.array([0, 2, 3, 5])
    with np.errstate(over="ignore"):
        scores = (logits - 0.3) / temperature + Noise(7).gumbel(9, V)[tokens]
    expected = tokens[np.argsort(-scores)].tolist()
    guesses = ranked(Sampling(temperature=temperature), logits, tokens, 4)
    assert [guess.token for guess in guesses] == expected
    assert sum(guess.confidence for guess in guesses) == pytest.approx(0.6)


def test_masks_bias_and_penalties_count() -> None:
    """What is banned is not guessed, what is favoured comes first; of nothing, nothing."""
    logits, tokens = [1.0, 0.9, 0.8], [1, 3, 5]

    def found(**options: Any) -> list[int]:
        return [g.token for g in ranked(Sampling(**options), logits, tokens, 3)]

    for temperature in (0.0, 1e-3):
        assert found(temperature=temperature) == [1, 3, 5]
        assert found(temperature=temperature, banned_tokens=(1,)) == [3, 5]
        assert found(temperature=temperature, logit_bias={5: 1.0}) == [5, 1, 3]
        assert found(temperature=temperature, repetition_penalty=2.0) == [3, 5, 1]
        assert found(temperature=temperature, allowed_tokens=(0, 2)) == []


# ---- what it follows


def test_a_text_whose_states_were_missed_is_not_guessed() -> None:
    """Not of the prompt's, nor of a round's; and it is freed like any other."""
    eagle = eagle_of(ToyHead(TOY))
    text = Text(1, PROMPT, TOY, budget=(4, 2))
    eagle.open(1, PROMPT)
    assert eagle.place(text.request()) is NOWHERE
    assert len(eagle.draft([text.request()])[0]) == 0
    eagle.free(1)
    follow(eagle, 1, PROMPT, TOY)
    outcome = text.take(eagle.draft([text.request()])[0], 4)
    eagle.observe([outcome._replace(hidden={})])
    assert len(eagle.draft([text.request()])[0]) == 0
    eagle.observe([text.take(Draft(), 1)])
    assert len(eagle.draft([text.request()])[0]) == 0
    eagle.free(1)


def test_states_of_another_place_are_not_taken() -> None:
    """Shown twice, or with a gap, they make no difference to what was shown before."""
    eagle = eagle_of(ToyHead(TOY))
    follow(eagle, 1, PROMPT, TOY)
    request = Text(1, PROMPT, TOY, budget=(3, 2)).request()
    expected = fingerprint(eagle.draft([request])[0], V)
    for start in (0, 5, 10, 20):
        eagle.see(1, start, states(TOY, [[4], [4, 4]]))
        assert fingerprint(eagle.draft([request])[0], V) == expected != []


def test_far_rolled_back_it_guesses_from_the_next_round_on() -> None:
    """The features of the last positions alone are kept."""
    eagle = eagle_of(ToyHead(TOY))
    long = [i % 5 for i in range(500)]
    follow(eagle, 1, long, TOY)
    text = Text(1, long[:100], TOY, budget=(3, 2))
    eagle.rollback(1, 100)
    assert len(eagle.draft([text.request()])[0]) == 0
    eagle.observe([text.take(Draft(), 1)])
    other = eagle_of(ToyHead(TOY))
    follow(other, 1, text.tokens, TOY)
    found, expected = (one.draft([text.request()])[0] for one in (eagle, other))
    assert fingerprint(found, V) == fingerprint(expected, V) != []


@pytest.mark.parametrize("back", [1, 10, 60])
def test_rolled_back_a_little_it_still_knows_what_was_shown(back: int) -> None:
    """Wherever in a long text that is."""
    eagle, other = eagle_of(ToyHead(TOY)), eagle_of(ToyHead(TOY))
    tokens = [i * i % 5 for i in range(330)]
    follow(eagle, 1, tokens[:2], TOY)
    for end in range(3, 330):
        grow(eagle, 1, end - 1, tokens[:end], TOY)
        if end > 190 and end % 23 == 0:
            kept = tokens[: end - back]
            eagle.rollback(1, len(kept))
            request = Text(1, kept, TOY, budget=(3, 2)).request()
            follow(other, end, kept, TOY)
            expected = Text(end, kept, TOY, budget=(3, 2)).request()
            found = fingerprint(eagle.draft([request])[0], V)
            assert found == fingerprint(other.draft([expected])[0], V) != []
            grow(eagle, 1, len(kept), tokens[:end], TOY)


def test_a_prompt_is_read_in_parts_and_not_kept() -> None:
    """All but the root's row, as it is shown; the parts make no difference."""
    head = Counting(TOY)
    eagle = eagle_of(head)
    long = [i % 5 for i in range(700)]
    eagle.open(1, long)
    for start in range(0, 699, 256):
        ends = range(start, min(start + 256, 699))
        eagle.see(1, start, states(TOY, [long[: end + 1] for end in ends]))
        assert len(eagle._texts[1]._features) <= 128
    assert head.passes == [255, 256, 187]
    whole = eagle_of(ToyHead(TOY))
    follow(whole, 1, long, TOY)
    request = Text(1, long, TOY, budget=(3, 2)).request()
    found, expected = (one.draft([request])[0] for one in (eagle, whole))
    assert fingerprint(found, V) == fingerprint(expected, V) != []


def test_a_text_that_nobody_asks_about_is_read_on() -> None:
    """So that what waits stays little; and then it guesses as if it had been asked always."""
    head = Counting(TOY)
    eagle = eagle_of(head)
    follow(eagle, 1, [1, 2], TOY)
    tokens = [1, 2, *(i % 5 for i in range(300))]
    grow(eagle, 1, 2, tokens, TOY)
    assert len(head.passes) == 4
    assert eagle._texts[1].seen - eagle._texts[1].rows <= 64


def test_where_the_context_ends_so_do_guesses() -> None:
    """No row stands outside of the head's context, at any length of the text."""
    head = Counting(ToyTarget(TOY._table, context=14))
    eagle = eagle_of(head)
    text = Text(1, PROMPT, TOY, budget=(8, 1))
    follow(eagle, 1, PROMPT, TOY)
    heights = []
    for _ in range(8):
        heights.append(eagle.draft([text.request()])[0].height)
        place = eagle.place(text.request())
        for _ in range(9):
            list(place.guesses(2))
            place = place.after(1)
        eagle.observe([text.take(Draft(), 1)])
    assert heights == [5, 4, 3, 2, 1, 0, 0, 0]


# ---- in few passes


def test_roots_of_all_texts_are_scored_in_one_pass() -> None:
    """The first that is asked about brings the others; each is asked about what waits once."""
    head = Counting(TOY)
    eagle = eagle_of(head)
    texts = [Text(i, PROMPT[i:], TOY, budget=(4, 2)) for i in range(3)]
    for text in texts:
        follow(eagle, text.sequence, text.tokens, TOY)
    places = [eagle.place(text.request()) for text in texts]
    assert head.passes == []
    for place in places:
        assert len(place.guesses(2)) == 2
    assert head.passes == [9 + 8 + 7]
    assert len(eagle.place(texts[0].request()).guesses(2)) == 2
    assert len(head.passes) == 1


def test_a_place_is_scored_once_and_alone() -> None:
    """A row more costs a quarter of a pass, and few guesses are ever asked about."""
    head = Counting(TOY, blur=0.2)
    eagle = eagle_of(head)
    follow(eagle, 1, PROMPT, TOY)
    root = eagle.place(Text(1, PROMPT, TOY).request())
    first, second = [root.after(guess.token) for guess in root.guesses(2)]
    for place in (first, second, first, root):
        assert len(place.guesses(2)) == 2
    assert head.passes == [9, 1, 1]


def test_far_behind_what_was_not_asked_it_has_no_guess() -> None:
    """Each place in between would take a pass: one may, more do not."""
    head = Counting(TOY)
    eagle = eagle_of(head)
    follow(eagle, 1, PROMPT, TOY)
    root = eagle.place(Text(1, PROMPT, TOY).request())
    far = root.after(1).after(2).after(3)
    assert far.guesses(2) == ()
    assert head.passes == []
    assert len(root.after(1).after(2).guesses(2)) == 2
    assert head.passes == [9, 1, 2]
    assert len(far.guesses(2)) == 2


def test_asking_has_a_price_once_it_was_asked() -> None:
    """Seconds a place, also in a mix; who names none costs nothing."""
    eagle = eagle_of(ToyHead(TOY))
    suffix = Suffix(DrafterKit(V, lambda: TOY))
    assert price_of(eagle) == price_of(suffix) == price_of(None) == 0.0
    follow(eagle, 1, PROMPT[:6], TOY)
    text = Text(1, PROMPT[:6], TOY)
    eagle.place(text.request()).guesses(2)
    eagle.observe([text.take(Draft(), 1)])
    assert 0.0 < price_of(eagle) < 1.0
    assert price_of(Mix([suffix, eagle])) == price_of(eagle)


def test_reading_a_prompt_is_no_price() -> None:
    """It is done once: places that follow would be taken for as dear, and not be asked about."""
    eagle, text = eagle_of(ToyHead(TOY)), Text(1, PROMPT, TOY)
    follow(eagle, 1, PROMPT, TOY)
    assert len(eagle.place(text.request()).guesses(2)) == 2
    eagle.observe([text.take(Draft(), 1)])
    assert price_of(eagle) == 0.0
    eagle.place(text.request()).guesses(2)
    eagle.observe([text.take(Draft(), 1)])
    assert price_of(eagle) > 0.0


# ---- on real targets


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A tiny model, and a head for it."""
    folder = tmp_path_factory.mktemp("eagle")
    path = Tiny(width=64, inner=96, layers=3, context=160, quantisation="Q4_1").write(
        folder / "tiny.gguf"
    )
    model = forerun.load(path).model
    random_head(folder / "head.gguf", model, size=200)
    return path, folder / "head.gguf"


@pytest.fixture(scope="module", params=["native", "reference"])
def lm(request: pytest.FixtureRequest, files: tuple[Path, Path]) -> forerun.LanguageModel:
    path, head = files
    return forerun.load(path, head=head, target=request.param)


PROMPTS = [[1], [5, 6], [7, 8, 9] * 9, list(range(2, 152)), [3, 1, 4, 1, 5] * 5]
SHAPES: list[dict[str, Any]] = [
    {"draft_length": 3},
    {"draft_length": 2, "draft_width": 3},
    {"draft_length": "auto"},
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_texts_are_plain_decodings(
    lm: forerun.LanguageModel, temperature: float, shape: dict[str, Any]
) -> None:
    """Of prompts of one token and such as fill the context, many at once, mixed or not."""
    asked = {"temperature": temperature, "seed": 3, "max_tokens": 24, "stop": ("<7", "9>")}
    plain = lm.generate_batch(PROMPTS, drafter="none", **asked)
    for drafter in ("eagle", "suffix,eagle"):
        results = lm.generate_batch(PROMPTS, drafter=drafter, **asked, **shape)
        for own, result in zip(plain, results, strict=True):
            assert result.token_ids == own.token_ids
            assert [e.logprob for e in result.tokens] == [e.logprob for e in own.tokens]
            assert result.text == own.text
        if shape["draft_length"] != "auto":
            assert sum(result.stats.drafted for result in results) > 0


def rows_of(lm: forerun.LanguageModel, stream: Any) -> Iterator[tuple[Any, Any]]:
    """After each round, what the head says of the text, and what a fresh one does."""
    eagle: Any = lm._drafter("eagle")
    head, target = eagle._head, lm.target
    for _ in stream:
        if not eagle._texts:
            return
        (text,) = eagle._texts.values()
        if text.root is None:
            read(head, [text])
        tokens = list(text.tokens)
        held = target.open()
        rows = [Row(held, token, i, i - 1) for i, token in enumerate(tokens[:-1])]
        hidden = target.score(rows, logits=(), layers=head.layers).hidden
        features = np.concatenate([hidden[layer] for layer in head.layers], axis=1)
        fresh = head.open()
        rows = [Row(fresh, token, i + 1, i - 1) for i, token in enumerate(tokens[1:])]
        scores = head.score(rows, features=features, logits=[len(rows) - 1])
        yield text.root, (scores.logits[0], scores.outputs[-1])
        head.free(fresh)
        target.free(held)


@pytest.mark.parametrize("shape", SHAPES[:2])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_head_reads_true_features_alone(
    lm: forerun.LanguageModel, temperature: float, shape: dict[str, Any]
) -> None:
    """After every round it says, bit for bit, what it says when it is fed the whole text."""
    stream = lm.stream(
        [3, 1, 4, 1, 5], temperature=temperature, seed=2, max_tokens=20, drafter="eagle", **shape
    )
    compared = 0
    for found, expected in rows_of(lm, stream):
        for own, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(own, other)
        compared += 1
    assert compared > 5


@pytest.mark.parametrize("path", [(7,), (9, 4), (9, 4, 250)])
def test_guesses_behind_guesses_are_the_heads_own(
    lm: forerun.LanguageModel, path: tuple[int, ...]
) -> None:
    """Each row on the way is given its parent's output, whatever was asked besides."""
    eagle: Any = lm._drafter("eagle")
    head, target, prompt = eagle._head, lm.target, [3, 1, 4, 1, 5]
    held = target.open()
    hidden = target.score(
        [Row(held, token, i, i - 1) for i, token in enumerate(prompt[:-1])],
        logits=(),
        layers=head.layers,
    ).hidden
    eagle.open(99, prompt)
    eagle.see(99, 0, hidden)
    warp = Warp(Sampling(), target.vocab_size)
    request = DraftRequest(
        99, prompt, len(prompt), 9, 4, warp, State(), 0, noise=Noise(1), target_sequence=held
    )
    place = eagle.place(request)
    for token in path:
        list(place.after(1).guesses(2))
        place = place.after(token)
    found = place.guesses(3)
    own = head.open()
    rows = [Row(own, token, i + 1, i - 1) for i, token in enumerate(prompt[1:])]
    features = np.concatenate([hidden[layer] for layer in head.layers], axis=1)
    outputs = [head.score(rows, features=features, logits=[]).outputs[-1]]
    head.commit(own, range(len(rows)))
    for end in range(1, len(path) + 1):
        rows = [Row(own, token, len(prompt) + i, i - 1) for i, token in enumerate(path[:end])]
        scores = head.score(rows, given=np.stack(outputs), logits=[end - 1])
        outputs.append(scores.outputs[-1])
    ranks = HeadRanks(request, eagle._tokens, "eagle")
    assert list(found) == ranks.guesses(scores.logits[0], 0, State(), 4)[:3]
    head.free(own)
    target.free(held)
    eagle.free(99)


# ---- which head


def test_without_a_head_it_says_so(files: tuple[Path, Path]) -> None:
    """Before any text; and what names one."""
    lm = forerun.load(files[0])
    with pytest.raises(OptionError, match=r"needs a head, and none comes with .* --head"):
        lm.stream([1, 2], drafter="eagle")
    with pytest.raises(OptionError, match="force_head needs a head"):
        forerun.load(files[0], force_head=True)


def test_another_targets_head_is_refused_unless_forced(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    """It is told by the target's checksum; forced, it drafts, and the text is the same."""
    tiny = Tiny(width=64, inner=96, layers=3, context=160, quantisation="Q4_1", seed=5)
    other = forerun.load(tiny.write(tmp_path / "other.gguf"), head=files[1])
    with pytest.raises(OtherTargetError, match="another target"):
        other.stream([1, 2], drafter="eagle")
    forced = forerun.load(tmp_path / "other.gguf", head=files[1], force_head=True)
    asked = {"max_tokens": 12, "temperature": 1.0, "seed": 1}
    result = forced.generate([1, 2, 3], drafter="eagle", draft_length=2, **asked)
    assert result.stats.drafted > 0
    assert result.token_ids == other.generate([1, 2, 3], drafter="none", **asked).token_ids


def test_what_is_no_head_is_refused(files: tuple[Path, Path]) -> None:
    """A model's file, say."""
    lm = forerun.load(files[0], head=files[0])
    with pytest.raises(ModelFileError, match="is no head"):
        lm.stream([1, 2], drafter="eagle")
