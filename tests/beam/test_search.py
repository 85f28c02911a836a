"""Drafts change what a beam search costs, and nothing of what it finds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from beam.cases import NAMES, ChainsOnly, drafter_for, rule_of, searched
from forerun.beam.ask import BeamAsk, stays_ahead
from forerun.beam.plain import Found, plain_beams
from forerun.beam.search import BeamSearch
from forerun.config import Sampling
from forerun.core.beams import BeamRule, EarlyStopping, Finished, Step
from forerun.core.tree import Draft
from forerun.core.warp import Warp
from forerun.drafters.memory import Memoryless
from forerun.drafters.protocol import NOWHERE, DraftRequest, Guess, Place
from forerun.drafters.store import Store
from forerun.drafters.table import DRAFTERS
from forerun.errors import EngineError
from forerun.models.model import load_model
from forerun.native import fast_warp
from forerun.targets.native import NativeTarget
from forerun.targets.protocol import Row, Scores, Target
from forerun.targets.toy import ToyTarget
from models.tiny_gguf import Tiny

V = 12
PROMPT = (1, 2, 3, 1, 2)
SAMPLINGS = {
    "plain": Sampling(),
    "bias, banned": Sampling(logit_bias={2: 1.5}, banned_tokens=(3,)),
    "penalties": Sampling(repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=-0.2),
}
STOPPINGS: tuple[EarlyStopping, ...] = (False, True, "never")
SHAPES: tuple[tuple[int | None, int | None], ...] = ((1, 1), (3, 2), (None, None))


def plain(target: Target, ask: BeamAsk) -> list[Finished[Found]]:
    """Search plainly for the same."""
    return plain_beams(target, ask.prompt, ask.rule, ask.warp)


def asked(
    rule: BeamRule, sampling: Sampling | None = None, *, size: int = V, least: int = 0
) -> BeamAsk:
    """Return what is asked for, three levels of guesses."""
    warp = fast_warp(sampling or Sampling(), size, rule.ends, least)
    return BeamAsk(PROMPT, rule, warp, 3, 1, prediction=(4, 5, 6, 7, 1))


def shaped(ask: BeamAsk, depth: int | None, width: int | None) -> BeamAsk:
    """Return the same with other guesses."""
    return BeamAsk(ask.prompt, ask.rule, ask.warp, depth, width, prediction=ask.prediction)


@pytest.mark.parametrize("spec", [*DRAFTERS, "suffix,eagle", "lookup,random"])
def test_the_beams_are_those_of_plain_search(spec: str) -> None:
    """With every drafter: tokens and scores, bit for bit, and nothing is left open."""
    ahead = stays_ahead(spec.split(","))
    for case, beams in enumerate((1, 2, 4, 8, 3, 5)):
        target = ToyTarget.random(V, 2, 3 * case, sharpness=1.0 + case % 3)
        if case % 2:  # many ties, which plain search breaks by a fixed rule
            target = ToyTarget(np.round(target._table))
        penalty = (0.0, 1.0, -0.7)[case % 3]
        rule = rule_of(beams, 9, penalty=penalty, stopping=STOPPINGS[(case + case // 3) % 3])
        sampling = list(SAMPLINGS.values())[case % len(SAMPLINGS)]
        ask = asked(rule, sampling, least=case % 4)
        truth = plain(target, ask)
        assert len(truth) == beams
        depth, width = SHAPES[(case + 1) % len(SHAPES)]
        found, stats = searched(
            target, shaped(ask, depth, width), drafter_for(spec, target), ahead=ahead
        )
        assert found == truth
        assert stats.passes <= stats.steps
        assert stats.rows >= stats.rows_again
        assert target._sequences == {}


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_without_a_drafter_it_is_plain_search(sampling: Sampling) -> None:
    """A pass a step, and a row for each beam that runs."""
    target = ToyTarget.random(V, 2, 7)
    ask = asked(rule_of(4, 9, stopping="never"), sampling)
    found, stats = searched(target, ask)
    assert found == plain(target, ask)
    assert stats.passes == stats.steps
    assert stats.rows == stats.plain_rows
    assert stats.rows_again == stats.drafted == 0


def test_as_many_beams_as_texts_find_the_best_text() -> None:
    """Where no text is ever dropped, what is found is what enumeration says."""
    size, limit, penalty = 4, 3, 0.6
    target = ToyTarget.random(size, 3, 5)
    rule = rule_of(64, limit, penalty=penalty, stopping="never")
    ask = asked(rule, size=size)
    every: dict[tuple[int, ...], float] = {}

    def write(text: tuple[int, ...], log_p: float) -> None:
        if text and (text[-1] == 0 or len(text) == limit):
            every[text] = log_p / len(text) ** penalty
            return
        logits = target.logits_after([*PROMPT, *text]).astype(float)
        normaliser = math.log(np.exp(logits).sum())
        for token in range(size):
            write((*text, token), log_p + logits[token] - normaliser)

    write((), 0.0)
    best = sorted(every, key=lambda text: -every[text])
    found, _ = searched(target, ask, drafter_for("bigram", target))
    assert [each.text.tokens for each in found] == best
    assert [each.score for each in found] == pytest.approx([every[text] for text in best])


class Knowing(Memoryless):
    """Knows the target's law."""

    name = "knowing"

    def __init__(self, target: ToyTarget) -> None:
        self._target = target

    def guess(self, request: DraftRequest) -> Draft:
        """It is asked by places."""
        raise AssertionError

    def place(self, request: DraftRequest) -> Place:
        """Return the root's place."""
        return _KnownPlace(self._target, tuple(request.tokens))


class _KnownPlace:
    def __init__(self, target: ToyTarget, text: tuple[int, ...]) -> None:
        self._target, self._text = target, text

    def guesses(self, most: int) -> Sequence[Guess]:
        logits = self._target.logits_after(self._text).astype(float)
        law = np.exp(logits) / np.exp(logits).sum()
        order = np.argsort(-law, kind="stable")[:most]
        return [
            Guess(int(token), float(law[token]), "knowing", at) for at, token in enumerate(order)
        ]

    def after(self, token: int) -> Place:
        return _KnownPlace(self._target, (*self._text, token))


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("beams", [1, 3, 6])
def test_a_drafter_that_knows_the_target_is_never_wrong(depth: int, beams: int) -> None:
    """Its own beam search is the target's: each pass brings depth + 1 steps, no row in vain."""
    target = ToyTarget.random(V, 2, 11)
    ask = shaped(asked(rule_of(beams, 12, ends=())), depth, 1)
    found, stats = searched(target, ask, Knowing(target))
    assert found == plain(target, ask)
    assert stats.steps == 12
    assert stats.passes == math.ceil(12 / (depth + 1))
    assert stats.kept == stats.drafted
    assert stats.rows - stats.rows_again == stats.plain_rows
    assert stats.tokens_per_pass == 12 / stats.passes


def test_guesses_that_hold_bring_several_steps_a_pass() -> None:
    """With nearly the target's law fewer passes are run, and with no use for it never more."""
    target = ToyTarget.random(V, 2, 23, sharpness=3.0)
    ask = shaped(asked(rule_of(4, 24, ends=())), 3, 2)
    passes = {}
    for spec in ("eagle", "random"):
        found, stats = searched(target, ask, drafter_for(spec, target))
        assert found == plain(target, ask)
        passes[spec] = stats.passes
    assert passes["eagle"] < 16 < passes["random"] <= 24


@pytest.mark.parametrize("spec", ["bigram", "eagle", "random", "early_exit"])
@pytest.mark.parametrize("beams", [2, 5])
def test_a_target_that_scores_chains_only_is_given_chains(spec: str, beams: int) -> None:
    """Each beam has one draft at most, in a sequence of its own; the beams are the same."""
    target = ChainsOnly(ToyTarget.random(V, 2, 31, sharpness=3.0))
    ask = asked(rule_of(beams, 14, stopping="never"))
    ahead = stays_ahead([spec])
    found, stats = searched(target, ask, drafter_for(spec, target), ahead=ahead)
    assert found == plain(target, ask)
    assert stats.drafted > 0


def test_what_is_kept_ahead_is_not_scored_again() -> None:
    """Rows are scored again only where two beams part behind a row; fewer if drafts may stay."""
    target = ToyTarget.random(V, 2, 37, sharpness=3.0)
    ask = shaped(asked(rule_of(4, 24, ends=())), 4, 1)
    again = {}
    for ahead in (True, False):
        found, stats = searched(target, ask, drafter_for("eagle", target), ahead=ahead)
        assert found == plain(target, ask)
        assert stats.forks > 0
        again[ahead] = stats.rows_again
    assert 0 < again[True] < again[False]


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> NativeTarget:
    path = tmp_path_factory.mktemp("beam") / "tiny.gguf"
    tiny = Tiny(layers=2, context=96, width=64, inner=96, quantisation="Q4_1")
    return NativeTarget(load_model(tiny.write(path)))


@pytest.mark.parametrize("beams", [2, 5])
@pytest.mark.parametrize("depth", [0, 2, 4])
def test_on_the_native_target_scores_are_the_same_bits(
    native: NativeTarget, beams: int, depth: int
) -> None:
    """Rows of many beams and drafts in one pass, in forked sequences, are the plain search's."""
    size = native.vocab_size
    rule = rule_of(beams, 24, stopping="never", ends=(3,))
    ask = BeamAsk(PROMPT * 7, rule, fast_warp(Sampling(), size, rule.ends), depth, 2)
    truth = plain(native, ask)
    for drafter in (Native(native), None):
        found, stats = searched(native, ask, drafter)
        assert found == truth
    if depth:
        found, stats = searched(native, ask, Native(native))
        assert stats.passes < stats.steps
    assert native._sequences == {}


class Native(Memoryless):
    """Guesses with the target's own law, and now and then wrongly."""

    name = "native"

    def __init__(self, target: NativeTarget) -> None:
        self._target = target

    def guess(self, request: DraftRequest) -> Draft:
        """Return the likeliest tokens; each round another one of them is left out."""
        name = self._target.open(request.tokens[:-1])
        root = Row(name, request.tokens[-1], len(request.tokens) - 1, -1)
        logits = self._target.score([root]).logits[0]
        self._target.free(name)
        best = np.argsort(-logits, kind="stable")[: request.width].tolist()
        del best[request.round % 3]
        return Draft.merged([[token] for token in best], self.name)


def test_a_draft_that_is_too_wide_is_cut_and_a_wrong_token_refused() -> None:
    """What is scored is bounded, whatever a drafter guesses."""
    target = ToyTarget.random(V, 1, 3)
    ask = asked(rule_of(3))

    class Wrong(Knowing):
        def place(self, request: DraftRequest) -> Place:
            return _Wrong()

    class _Wrong:
        def guesses(self, most: int) -> Sequence[Guess]:
            return [Guess(V, 0.5, "wrong", 0)]

        def after(self, token: int) -> Place:
            return NOWHERE

    with pytest.raises(EngineError, match="'wrong' proposed token 12"):
        searched(target, ask, Wrong(target))
    assert target._sequences == {}


def test_a_failing_pass_leaves_nothing_open() -> None:
    """Whatever call of the target fails, closing gives all sequences back."""

    class Failing(ToyTarget):
        left = 0

        def _maybe(self) -> None:
            self.left -= 1
            if self.left == 0:
                raise MemoryError

        def fork(self, sequence: int) -> int:
            self._maybe()
            return super().fork(sequence)

        def commit(self, sequence: int, path: Sequence[int]) -> None:
            self._maybe()
            super().commit(sequence, path)

    toy = ToyTarget.random(V, 1, 3)
    for fails in range(1, 12):
        target = Failing(toy._table)
        target.left = fails
        with pytest.raises(MemoryError):
            searched(target, asked(rule_of(4)), drafter_for("bigram", toy))
        assert target._sequences == {}


def test_of_all_beams_one_is_left_to_later_texts() -> None:
    """A store learns one text of a search, not each beam that came to nothing."""
    learned: list[int] = []

    class Listening(Store):
        def learn(self, tenant: str, texts: Iterable[Sequence[int]]) -> None:
            learned.extend(len(text) for text in texts)

    target, store = ToyTarget.random(V, 2, 5), Listening(4000)
    drafter = drafter_for("suffix", target, store)
    searched(target, asked(rule_of(6, 40, ends=())), drafter)
    assert [length for length in learned if length] == [max(learned)]
    assert len(PROMPT) + 30 < max(learned) < len(PROMPT) + 40


def blind(self: BeamRule, scores: object, rows: object, length: int, *, falls: bool) -> Step:
    """Take a step whose rows are not all known."""
    return self.step(scores, rows, length)  # type: ignore[arg-type]


def level(
    self: BeamRule, scores: Sequence[float], rows: Sequence[object], length: int, *, falls: bool
) -> Step | None:
    """Hold a beam that is not known to be out of it without a look at its score."""
    step = self.step(scores, rows, length)  # type: ignore[arg-type]
    last = step.ended if length >= self.limit else step.running
    return step if len(last) == self.beams else None


@pytest.mark.parametrize("wrong", [blind, level])
def test_a_step_with_an_unknown_row_is_noticed(
    wrong: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Searches that go on without a row they need find other beams than plain ones."""
    differing = 0
    for seed in range(4):
        target = ToyTarget.random(V, 2, seed)
        ask = asked(rule_of(4, 10))
        truth = plain(target, ask)
        with monkeypatch.context() as patch:
            patch.setattr(BeamRule, "step_if_known", wrong)
            differing += searched(target, ask, drafter_for("bigram", target))[0] != truth
    assert differing > 0


def test_the_same_beams_whichever_shape_is_chosen() -> None:
    """The choice of shape, which counts what held, changes passes alone."""
    target = ToyTarget.random(V, 2, 41, sharpness=4.0)
    ask = asked(rule_of(3, 40, ends=()))
    truth = plain(target, ask)
    found, stats = searched(target, shaped(ask, None, None), Knowing(target))
    assert found == truth
    assert stats.passes < 30  # passes cost nothing more: it pays to guess


def test_where_rows_cost_too_much_nothing_is_drafted() -> None:
    """Off is among the choices, and is taken where a row costs a pass."""
    target = ToyTarget.random(V, 2, 41)
    ask = shaped(asked(rule_of(3, 30, ends=())), None, None)

    def dear(context: int) -> Sequence[float]:
        return [float(rows) ** 2 for rows in range(200)]

    names = NAMES.__next__
    drafter = drafter_for("random", target)
    search = BeamSearch(target, ask, drafter, names=names, seconds=dear)
    while not search.is_over:
        search.advance()
    search.close()
    assert list(search.best) == plain(target, ask)
    assert search.stats.drafted == 0


def test_the_warps_twins_agree_on_a_search() -> None:
    """The compiled warp and the slow one lead to the same beams, bit for bit."""
    target = ToyTarget.random(V, 2, 43)
    for sampling in SAMPLINGS.values():
        rule = rule_of(4)
        slow = BeamAsk(PROMPT, rule, Warp(sampling, V, rule.ends, 2))
        fast = BeamAsk(PROMPT, rule, fast_warp(sampling, V, rule.ends, 2))
        assert plain(target, slow) == searched(target, fast)[0]


class _Half(ToyTarget):
    """Says nothing of some tokens, as a broken file may."""

    def score(
        self,
        rows: Sequence[Row],
        *,
        logits: Sequence[int] | None = None,
        layers: Sequence[int] = (),
        until: int | None = None,
    ) -> Scores:
        scores = super().score(rows, logits=logits, layers=layers, until=until)
        scores.logits[:, 5] = np.nan
        return scores


def test_logits_that_are_no_numbers_end_the_search_with_an_error() -> None:
    """NaN is refused, by the plain search and by the other."""
    target = _Half(ToyTarget.random(V, 1, 3)._table)
    for drafter in (None, drafter_for("bigram", target)):
        with pytest.raises(EngineError, match="NaN"):
            searched(target, asked(rule_of(2)), drafter)
    assert target._sequences == {}
