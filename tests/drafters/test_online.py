"""A head learns online: from its tenant's texts alone, within bounds, and no text changes by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import forerun
from drafters.loop import Text, every_outcome, fingerprint, follow
from forerun.config import Sampling
from forerun.core.tree import Draft
from forerun.drafters.eagle import Eagle
from forerun.drafters.online import KINDS, Lesson, Limits, Online, TextLesson
from forerun.drafters.repeats import LENGTHS, Repeated, Repeats
from forerun.drafters.table import DrafterKit
from forerun.errors import OptionError
from forerun.targets.toy import ToyTarget
from forerun.targets.toy_head import ToyHead
from models.random_head import random_head
from models.tiny_gguf import Tiny

V = 6
TOY = ToyTarget.random(V, 1, 11)
PLACES = np.array([-1, 0, 1, 2, 3, 4])  # the head lacks a token
STRONG = np.linspace(1.0, 2.0, KINDS)


def eagle_of(online: Online | None, toy: ToyTarget = TOY, blur: float = 3.0) -> Eagle:
    """An eagle whose head knows the toy's law badly, and learns."""
    head = ToyHead(toy, range(1, V), blur=blur)
    return Eagle(DrafterKit(V, lambda: toy, open_head=lambda: head, online=online))


def writes(eagle: Eagle, text: Text, count: int) -> list[list[object]]:
    """What is drafted, round by round, while a text is written."""
    follow(eagle, text.sequence, text.tokens, text.target)
    drafts = []
    while len(text.output) < count:
        draft = eagle.draft([text.request()])[0]
        drafts.append(fingerprint(draft, V))
        eagle.observe([text.take(draft, count - len(text.output))])
    eagle.free(text.sequence)
    return drafts


# ---- what is repeated


def expected(tokens: list[int], path: list[int]) -> dict[int, int]:
    """The same as `Repeats.after`, by looking at every place."""
    whole, found = [*tokens, *path], {}
    for at in range(len(tokens) - 1):
        agreed = 0
        while agreed <= at and agreed < LENGTHS[-1] and len(whole) > agreed:
            if tokens[at - agreed] != whole[-1 - agreed]:
                break
            agreed += 1
        if agreed and (id_ := int(PLACES[tokens[at + 1]])) >= 0:
            kind = sum(length <= agreed for length in LENGTHS) - 1
            found[id_] = max(found.get(id_, 0), kind)
    return found


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, V - 1), max_size=40),
    st.lists(st.integers(0, V - 1), max_size=8),
    st.integers(0, 40),
)
def test_what_followed_the_last_tokens_before_is_found(
    tokens: list[int], path: list[int], back: int
) -> None:
    """With its longest agreement; also behind guesses, after going back, and in a copy."""
    repeats = Repeats(PLACES)
    for token in [*tokens[:back], *tokens]:
        repeats.push(token)
    twin = repeats.copy()
    repeats.push(1)
    repeats.cut(len(tokens[:back]))
    for token in tokens:
        repeats.push(token)
    for one in (repeats, twin):
        ids, kinds = one.after(path)
        pairs = dict(zip(ids.tolist(), kinds.tolist(), strict=True))
        assert pairs == expected([*tokens[:back], *tokens], path)


# ---- what is learned


def loss(logits: Any, repeated: Repeated, boosts: Any, id_: int) -> float:
    """Cross-entropy of the boosted law; of a token that it lacks, the law's own free energy."""
    told = logits.astype(np.float64)
    told[repeated.ids] += boosts[repeated.kinds]
    total = float(np.log(np.exp(told).sum()))
    return total - (told[id_] if id_ >= 0 else 0.0)


@pytest.mark.parametrize("id_", [-1, 0, 3, 4])
def test_slope_and_curvature_are_those_of_the_loss(id_: int) -> None:
    """By finite differences; and the gain is what the boosts made the token likelier by."""
    logits = np.array([0.3, -1.0, 2.0, 0.5, 0.0], np.float32)
    repeated = Repeated(np.array([0, 2, 3]), np.array([1, 0, 1]))
    lesson = TextLesson(Repeats(PLACES), STRONG, 9)
    told = lesson.boosted(logits, repeated)
    lesson.learn(told, repeated, id_)
    step = 1e-4 * np.eye(KINDS)

    def at(offset: Any) -> float:
        return loss(logits, repeated, STRONG + offset, id_)

    slope = [(at(each) - at(-each)) / 2e-4 for each in step]
    np.testing.assert_allclose(lesson.slope, slope, atol=1e-5)
    bent = [[(at(a + b) - at(a - b) - at(b - a) + at(-a - b)) / 4e-8 for b in step] for a in step]
    np.testing.assert_allclose(lesson.curvature, bent, atol=1e-4)
    law, plain = (np.exp(each) / np.exp(each).sum() for each in (told, logits))
    assert lesson.gained == pytest.approx(law[id_] - plain[id_] if id_ >= 0 else 0.0, abs=1e-6)


def test_acceptance_rises() -> None:
    """Of a head that knows its target badly, from one text to the next."""
    online = Online()
    eagle, other = eagle_of(online), eagle_of(None)
    rounds: list[tuple[int, int]] = []
    for place in range(5):
        texts = [Text(place, [1, 2, 3 + place % 3], TOY, sampling=Sampling()) for _ in "ab"]
        learned, plain = (
            len(writes(one, text, 60)) for one, text in zip((eagle, other), texts, strict=True)
        )
        assert texts[0].output == texts[1].output
        rounds.append((learned, plain))
    assert rounds[0][0] == rounds[0][1]
    assert all(learned < plain for learned, plain in rounds[1:])
    assert online.lessons[""].gained > 0


def test_where_nothing_is_gained_it_stops() -> None:
    """For some texts; then it is tried again, from the beginning."""
    online = Online(Limits(rows=1000))
    text = online.begin("A", PLACES)
    assert text is not None
    online.put("A", Lesson(STRONG))
    vain = online.begin("A", PLACES)
    assert vain is not None
    vain.judged, vain.gained = 300, -0.1
    online.end("A", vain)
    assert not online.lessons["A"].boosts.any()
    text.judged = 1
    online.end("A", text)  # it began before
    assert not online.lessons["A"].boosts.any()
    left_alone = [online.begin("A", PLACES) is None for _ in range(40)]
    assert left_alone == [True] * 32 + [False] * 8
    assert online.begin("B", PLACES) is not None


def test_bounds_are_kept() -> None:
    """Of tokens a text, of how far a boost may go, and of tenants: who wrote last stays."""
    online = Online(Limits(rows=20, reach=0.5, tenants=2))
    eagle = eagle_of(online)
    for place, tenant in enumerate(["A", "B", "A", "C"]):
        text = Text(place, [1, 2, 3], TOY, sampling=Sampling())
        text.tenant = tenant
        writes(eagle, text, 80)
        assert abs(online.lessons[tenant].boosts).max() <= 0.5
    assert list(online.lessons) == ["A", "C"]
    assert online.lessons["C"].curvature.trace() <= 20
    with pytest.raises(ValueError, match="read-only"):
        online.lessons["A"].boosts[0] = 1.0
    online.forget()
    assert not online.lessons


def test_texts_that_grow_together_teach_what_they_teach_in_turn() -> None:
    """Nearly: what the second knows of the slope is carried to where the first has moved."""
    boosts = []
    for together in (True, False):
        online = Online()
        online.put("", Lesson(STRONG))
        begun = [online.begin("", PLACES), online.begin("", PLACES)]
        for at, logits in enumerate(([1, 0, 0, 0, 0], [0, 0, 1, 0, 0.5])):
            text = begun[at] if together else online.begin("", PLACES)
            assert text is not None
            repeated = Repeated(np.array([at, 2, 3]), np.array([1, 0, 1]))
            for id_ in (0, 2, 3, 1):
                text.learn(text.boosted(np.array(logits, np.float32), repeated), repeated, id_)
            online.end("", text)
        boosts.append(online.lessons[""].boosts)
    np.testing.assert_allclose(*boosts, atol=0.05)
    assert abs(boosts[0] - STRONG).max() > 0.1


# ---- what stays the same


def replayed(rule: Any) -> bool:
    """Whether all drafts of a text are those of the boosts that it began with."""
    drafts = []
    for rows in (1000, 1):
        online = Online(Limits(rows=rows))
        online.put("", Lesson(STRONG))
        drafts.append(writes(eagle_of(online), Text(1, [1, 2, 3], TOY, rule=rule), 60))
    return drafts[0] == drafts[1]


@pytest.mark.parametrize("rule", ["match", "block"])
def test_boosts_change_between_texts_alone(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text's drafts do not depend on what is learned of it; one that learns at once is caught."""
    assert replayed(rule)
    learn = TextLesson.learn

    def at_once(self: TextLesson, *given: Any) -> None:
        learn(self, *given)
        self.boosts = self.boosts - 0.3 * self.slope

    monkeypatch.setattr(TextLesson, "learn", at_once)
    assert not replayed(rule)


@pytest.mark.parametrize("rule", ["speculative", "block", "tree"])
def test_the_law_is_the_targets(rule: Any) -> None:
    """By enumeration of all coins, with boosts that were learned: of three tokens."""
    small = ToyTarget.random(3, 1, 5)
    head = ToyHead(small, range(1, 3))
    sums: dict[tuple[int, ...], float] = {}
    online = Online()
    online.put("", Lesson(STRONG))

    def run(coins: Any) -> tuple[int, ...]:
        kit = DrafterKit(3, lambda: small, open_head=lambda: head, online=online)
        text = Text(1, [1, 2, 1], small, rule=rule, budget=(2, 1), chance=coins)
        eagle = Eagle(kit)
        follow(eagle, 1, text.tokens, small)
        while len(text.output) < 2:
            eagle.observe([text.take(eagle.draft([text.request()])[0], 2 - len(text.output))])
        return tuple(text.output)

    for probability, output in every_outcome(run):
        sums[output] = sums.get(output, 0.0) + probability
    for first in range(3):
        for second in range(3):
            p = [np.exp(small.logits_after(t).astype(np.float64)) for t in ([1], [first])]
            law = p[0][first] / p[0].sum() * p[1][second] / p[1].sum()
            assert sums.get((first, second), 0.0) == pytest.approx(law, abs=1e-12)


def test_a_tenant_is_drafted_for_as_if_alone() -> None:
    """To the last bit, whatever others wrote, in turn or at the same time."""
    alone, among = eagle_of(Online()), eagle_of(Online())
    for place in range(4):
        drafts = []
        for eagle in (alone, among):
            other = Text(100 + place, [3, 4, 3, 4, 5], TOY, chance=place)
            other.tenant = "B"
            if eagle is among:
                writes(eagle, other, 50)
                running = Text(200 + place, [5, 4, 5, 4], TOY)
                running.tenant = "B"
                follow(eagle, running.sequence, running.tokens, TOY)
                eagle.observe([running.take(eagle.draft([running.request()])[0], 3)])
            text = Text(place, [1, 2, 3], TOY, chance=place)
            text.tenant = "A"
            drafts.append(writes(eagle, text, 50))
        assert drafts[0] == drafts[1]


def test_texts_are_forked_and_rolled_back_as_they_were() -> None:
    """A fork is told what the text was; one that went back is told what it was there."""
    online = Online()
    online.put("", Lesson(STRONG))
    eagle = eagle_of(online)
    text = Text(1, [1, 2, 3, 1, 2], TOY, budget=(3, 2))
    follow(eagle, 1, text.tokens, TOY)
    before = fingerprint(eagle.draft([text.request()])[0], V)
    eagle.fork(1, 2)
    twin = Text(2, [1, 2, 3, 1, 2], TOY, budget=(3, 2))
    assert fingerprint(eagle.draft([twin.request()])[0], V) == before
    eagle.observe([text.take(Draft(), 1)])
    eagle.draft([text.request()])
    eagle.rollback(1, 5)
    text = Text(1, [1, 2, 3, 1, 2], TOY, budget=(3, 2))
    assert fingerprint(eagle.draft([text.request()])[0], V) == before
    eagle.free(1)
    eagle.free(2)


# ---- on real targets


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A tiny model, and a head for it."""
    folder = tmp_path_factory.mktemp("online")
    path = Tiny(width=64, inner=96, layers=3, context=160, quantisation="Q4_1").write(
        folder / "tiny.gguf"
    )
    random_head(folder / "head.gguf", forerun.load(path).model, size=200)
    return path, folder / "head.gguf"


@pytest.mark.parametrize("target", ["native", "reference"])
def test_texts_stay_plain_decodings(files: tuple[Path, Path], target: str) -> None:
    """Requests of two tenants, one after the other and together, at three temperatures."""
    lm = forerun.load(files[0], head=files[1], target=target, online=True)
    prompts = [[7, 8, 9] * 9, [3, 1, 4, 1, 5] * 5]
    for place, temperature in enumerate((0.0, 1.0, 0.0, 0.7, 1.0)):
        asked = {"temperature": temperature, "seed": place, "max_tokens": 24, "ignore_eos": True}
        plain = lm.generate_batch(prompts, drafter="none", **asked)
        for tenant, length in (("A", 3), ("B", "auto")):
            drafted = {"drafter": "eagle", "tenant": tenant, "draft_length": length}
            results = lm.generate_batch(prompts, **drafted, **asked)
            for own, result in zip(plain, results, strict=True):
                assert result.token_ids == own.token_ids
                assert [e.logprob for e in result.tokens] == [e.logprob for e in own.tokens]
    assert lm._online is not None
    assert lm._online.lessons["A"].boosts.any()


def test_what_was_learned_outlives_its_process(files: tuple[Path, Path], tmp_path: Path) -> None:
    """Saved and loaded it drafts as it would have; without a file, or a head, that is said."""
    path, head = files
    kept = tmp_path / "kept"
    asked: dict[str, Any] = {"drafter": "eagle", "draft_length": 3, "max_tokens": 40}
    lm = forerun.load(path, head=head, online=True)
    assert lm._online is not None
    lm.generate([7, 8, 9] * 9, **{**asked, "drafter": "suffix,eagle"})
    assert not lm._online.lessons  # what copies has said it already
    with pytest.raises(OptionError, match="no file"):
        lm.save_online()
    lm.generate([7, 8, 9] * 9, **asked)
    lm.save_online(kept)
    next_one = lm.generate([5, 6] * 9, **asked)
    again = forerun.load(path, head=head, online=True, online_store=kept)
    assert again.generate([5, 6] * 9, **asked).stats.passes == next_one.stats.passes
    again.save_online()
    lm.save_online(tmp_path / "other")
    assert kept.read_bytes() == (tmp_path / "other").read_bytes()
    again.forget()
    assert again._online is not None
    assert not again._online.lessons
    with pytest.raises(OptionError, match="Nothing is learned"):
        forerun.load(path, head=head).save_online(kept)
    with pytest.raises(OptionError, match="needs a head"):
        forerun.load(path, online=True)
