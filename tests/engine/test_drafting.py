"""Who drafts what: drafters that are asked place by place, among others, in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engine.doubles import VOCAB, Bench, Oracle, Unhurried, ask
from forerun.control.cost import CostCurve
from forerun.core.proposal import Point
from forerun.core.rules.match import target_token
from forerun.core.tree import ROOT, Draft, Node
from forerun.drafters.protocol import DraftRequest, Guess, Outcome
from forerun.engine.drafting import Drafts
from forerun.errors import EngineError
from forerun.targets.toy import ToyTarget


class Foresight:
    """A place from which the right token and a wrong one are seen."""

    def __init__(
        self, toy: ToyTarget, request: DraftRequest, tokens: list[int], state: Any
    ) -> None:
        self.toy, self.request, self.tokens, self.state = toy, request, tokens, state

    def guesses(self, most: int) -> Sequence[Guess]:
        """Guess the wrong one first."""
        scores = self.request.warp.scores(self.toy.logits_after(self.tokens), self.state)
        assert self.request.noise is not None
        right = target_token(scores, self.request.noise, len(self.tokens))
        return [Guess((right + 1) % VOCAB, 0.6, "seer", 0), Guess(right, 0.3, "seer", 1)][:most]

    def after(self, token: int) -> Foresight:
        """Go on."""
        state = self.state.advance(token)
        return Foresight(self.toy, self.request, [*self.tokens, token], state)


class Seer(Oracle):
    """Can be asked place by place, and looks at every row it is told of."""

    name = "seer"

    def place(self, request: DraftRequest) -> Foresight:
        """Return the root's place."""
        return Foresight(self.toy, request, list(request.tokens), request.state)

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Each row's logits are those behind its own path, whatever else was in the pass."""
        super().observe(outcomes)
        for outcome in outcomes:
            before = list(outcome.tokens[: len(outcome.tokens) - outcome.emitted])
            assert len(outcome.logits) == len(outcome.draft) + 1
            for node in range(ROOT, len(outcome.draft)):
                path = [outcome.draft.nodes[n].token for n in outcome.draft.path(node)]
                expected = self.toy.logits_after(before + path)
                assert np.array_equal(outcome.logits[node + 1], expected)


def seeing() -> Bench:
    """Return a bench whose seer knows its target."""
    target = ToyTarget.random(VOCAB, 2, 1)
    return Bench(target, seer=Seer(target))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_texts_that_choose_share_a_pass_with_all_others(temperature: float) -> None:
    """Trees that are chosen, fixed chains, drafters by themselves and plain texts: each its own."""
    asks = [
        ask(
            [1 + i % 6, 2],
            seed=i,
            drafter=name,
            temperature=temperature,
            max_tokens=20,
            ignore_eos=True,
            **shape,
        )
        for i, (name, shape) in enumerate(
            [
                ("seer", {}),
                ("seer", {"draft_length": 3}),
                ("none", {}),
                ("oracle", {}),
                ("seer", {"draft_width": 1}),
                ("seer", {"presence_penalty": 1.5}),
            ]
        )
    ]
    bench = seeing()
    together = bench.results(*asks)
    for one, result in zip(asks, together, strict=True):
        plainly = replace(one, options=one.options.replace(drafter="none", draft_width="auto"))
        (plain,) = seeing().results(plainly)
        assert result.token_ids == plain.token_ids
    drafts = [outcome.draft for outcome in bench.drafters["seer"].outcomes]
    assert any(not draft.is_chain for draft in drafts)
    names = [{name for name, (made, _) in r.stats.by_drafter.items() if made} for r in together]
    assert names == [{"seer"}, {"seer"}, set(), {"oracle"}, {"seer"}, {"seer"}]
    assert together[0].stats.accepted > 0 < together[5].stats.accepted
    assert together[0].stats.expected_seconds > 0


def test_what_is_chosen_is_told_with_its_chance() -> None:
    """A round's events say of each node how likely it was held to stay."""
    bench = seeing()
    events = bench.run(ask(drafter="seer", max_tokens=12))
    drafted = [node for event in events for node in getattr(event, "drafted", ())]
    assert drafted
    assert all(node.expected is not None and 0 < node.expected < 1 for node in drafted)


@pytest.mark.parametrize(
    ("guess", "complaint"),
    [
        (Guess(VOCAB, 0.9, "seer", 0), f"token {VOCAB}"),
        (Guess(-1, 0.9, "seer", 0), "token -1"),
        (Guess(1, float("nan"), "seer", 0), "confidence nan"),
        (Guess(1, 1.5, "seer", 0), "confidence 1.5"),
    ],
)
def test_a_guess_that_is_none_is_refused_by_name(
    guess: Guess, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Out of the vocabulary, or no probability: an error, and nothing stays open."""
    monkeypatch.setattr(Foresight, "guesses", lambda self, most: [guess])
    bench = seeing()
    with pytest.raises(EngineError, match=f"'seer'.*{complaint}"):
        bench.run(ask(drafter="seer"))
    bench.check_nothing_is_open()


def test_costs_are_known_before_the_first_round() -> None:
    """No round of a text waits for them; a text that leaves nothing open never asks."""
    bench = seeing()
    asked: list[int] = []

    def curve(again: bool) -> CostCurve:
        asked.append(len(bench.scheduler._running))
        return CostCurve({1: 1.0, 32: 1.0})

    bench.scheduler.control = Unhurried(bench.target, curve)
    bench.run(
        ask(drafter="none"),
        ask(drafter="seer", draft_length=2),
        ask(drafter="oracle", rule="block", temperature=1),
    )
    assert asked == []
    bench.run(ask(drafter="seer"), ask(drafter="oracle"))
    assert asked == [0]  # as the first of them was opened


def test_texts_that_were_drafted_for_together_share_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or a drafter would seem the slower, the more texts it serves at once."""
    bench = seeing()
    learned: list[float] = []
    monkeypatch.setattr(bench.scheduler.control, "learn", lambda outcome, s: learned.append(s))
    ticks = count()
    monkeypatch.setattr(
        "forerun.engine.drafting.time", SimpleNamespace(perf_counter=ticks.__next__)
    )
    bench.run(*(ask([i], drafter="oracle", draft_length=2, max_tokens=3) for i in (1, 2)))
    assert learned == [0.5, 0.5]


def test_rows_that_fill_texts_up_are_counted() -> None:
    """Where texts are padded each has as many as the one that has most; elsewhere its own."""
    chain = Draft(tuple(Node(1, parent, Point(1), "own") for parent in (ROOT, 0, 1)))
    made = Drafts([chain, Draft()], [(), ()], [0.0, 0.0])
    assert (made.rows(pads=False), made.rows(pads=True)) == (5, 8)
