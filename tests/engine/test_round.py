"""Rounds: speculative text is plain text, for any drafter, any settings, any company."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.doubles import (
    DRAFTERS,
    EOS,
    VOCAB,
    Answering,
    Bench,
    Fickle,
    Oracle,
    again,
    ask,
    essence,
    plainly,
    steps,
    told,
)
from forerun.config import RuleName
from forerun.control.lengths import LONGEST
from forerun.core.proposal import Point
from forerun.core.tree import Draft, Node
from forerun.errors import EngineError
from forerun.events import Event, Result, RoundEvent, TokenEvent
from forerun.targets.toy import ToyTarget

TOY = ToyTarget.random(VOCAB, order=2, seed=1)


def toy(context: int = 4096) -> ToyTarget:
    return ToyTarget(TOY._table, context)


def without_end(context: int = 4096) -> ToyTarget:
    """A toy that practically never ends its text by itself."""
    table = TOY._table.copy()
    table[..., EOS] = -50
    return ToyTarget(table, context)


tokens = st.integers(1, VOCAB - 1)
drafters = st.sampled_from(["none", *DRAFTERS])
asks = st.fixed_dictionaries(
    {
        "prompt": st.lists(tokens, min_size=1, max_size=4),
        "seed": st.integers(0, 2**64 - 1),
        "max_tokens": st.integers(0, 14),
        "drafter": drafters,
        "draft_length": st.sampled_from(["auto"]) | st.integers(0, 6),
    },
    optional={
        "sample": st.integers(0, 3),
        "draft_width": st.integers(1, 4),
        "temperature": st.sampled_from([0.0, 0.3, 1.0, 3.0]),
        "top_k": st.integers(1, VOCAB),
        "top_p": st.floats(0.1, 1),
        "min_p": st.floats(0, 0.5),
        "repetition_penalty": st.sampled_from([0.8, 1.5]),
        "presence_penalty": st.floats(-1, 2),
        "frequency_penalty": st.floats(-1, 2),
        "logit_bias": st.dictionaries(tokens, st.floats(-5, 5), max_size=2),
        "banned_tokens": st.lists(tokens, max_size=2),
        "stop": st.lists(st.text("abcd", min_size=1, max_size=3), max_size=2),
        "ignore_eos": st.booleans(),
        "min_tokens": st.integers(0, 4),
    },
).map(lambda v: ask(**{**v, "min_tokens": min(v.get("min_tokens", 0), v["max_tokens"])}))


@given(asks, st.integers(6, 30))
@settings(max_examples=200)
def test_speculative_text_is_plain_text(asked: Any, context: int) -> None:
    """Token for token, the reason of its end included, for every drafter and any settings."""
    bench = Bench(toy(context))
    (result,) = bench.results(asked)
    assert told(result) == plainly(toy(context), asked)


@pytest.mark.parametrize("rule", ["match", "speculative", "block", "tree", "lenient"])
@pytest.mark.parametrize("drafter", ["none", *DRAFTERS])
@pytest.mark.parametrize("penalty", [0.0, 0.7])
def test_at_temperature_0_every_rule_writes_the_plain_text(
    rule: str, drafter: str, penalty: float
) -> None:
    """There is one likeliest token, and no rule may write another; lenience 1 neither."""
    width = 3 if rule in ("match", "tree") else 1
    for prompt in ([1], [2, 3], [5, 4, 6]):
        asked = ask(prompt, rule=rule, drafter=drafter, draft_width=width, presence_penalty=penalty)
        (result,) = Bench(toy()).results(asked)
        assert told(result) == plainly(toy(), asked)


@pytest.mark.parametrize("rule", ["speculative", "block", "tree"])
def test_a_drafter_with_the_targets_own_law_is_always_right(rule: str) -> None:
    """q = p: every drafted token stays, at any temperature, and the rest are bonus tokens."""
    bench = Bench(without_end())
    (result,) = bench.results(
        ask(rule=rule, drafter="oracle", temperature=1, draft_length=3, max_tokens=40)
    )
    assert [t.source for t in result.tokens] == (["accepted"] * 3 + ["bonus"]) * 10
    assert result.stats.accepted == result.stats.drafted == 30
    assert result.stats.tokens_per_pass == 4


@given(st.lists(asks, min_size=1, max_size=6), st.integers(1, 7), st.randoms())
@settings(max_examples=60)
def test_in_a_batch_each_text_is_what_it_is_alone(
    asked: list[Any], max_batch: int, random: Any
) -> None:
    """Whatever else runs, in any order, with fewer places than texts: text, provenance, counts.

    A length that is chosen depends on what else is in the pass: there the text alone.
    """
    tell = [told if one.options.draft_length == "auto" else essence for one in asked]
    alone = [tell[i](Bench(toy()).results(again(one))[0]) for i, one in enumerate(asked)]
    order = list(range(len(asked)))
    random.shuffle(order)
    together = Bench(toy(), max_batch).results(*[again(asked[i]) for i in order])
    assert [tell[i](result) for i, result in zip(order, together, strict=True)] == [
        alone[i] for i in order
    ]


def test_the_same_ask_twice_is_the_same_text_and_another_sample_another() -> None:
    """Noise is addressed by seed and sample, and by nothing that differs between two runs."""
    bench = Bench(without_end())
    texts = [
        tuple(r.token_ids)
        for r in bench.results(
            *(
                ask(temperature=1, max_tokens=60, seed=seed, sample=sample, drafter="fickle")
                for seed, sample in ((5, 0), (5, 0), (5, 1), (6, 0))
            )
        )
    ]
    assert texts[0] == texts[1]
    assert len(set(texts)) == 3


# ---- ends in mid-draft


def mid_draft_end(kind: str) -> tuple[ToyTarget, Any]:
    """A cycle 1 2 3 4 5 6 (a b c d é f), whose end lies inside of an accepted draft."""
    table = np.zeros((VOCAB, VOCAB), np.float32)
    for token in range(VOCAB):
        table[token, token % 6 + 1] = 9
    if kind == "eos":
        table[4] = 0
        table[4, EOS] = 9
    options = {"stop": {"stop": ["cd"]}, "eos": {}, "length": {"max_tokens": 3}}[kind]
    return ToyTarget(table), ask([1], drafter="scripted", draft_length=6, **options)


@pytest.mark.parametrize(
    ("kind", "ids", "text", "detail"),
    [
        ("eos", (2, 3, 4, EOS), "bcd", "end of text"),
        ("stop", (2, 3, 4), "b", "cd"),
        ("length", (2, 3, 4), "bcd", "max_tokens"),
    ],
)
def test_what_a_draft_has_behind_the_end_never_was(
    kind: str, ids: tuple[int, ...], text: str, detail: str
) -> None:
    """Not in the text, nor the counts, the events, the target's cache or the drafter's text."""
    target, asked = mid_draft_end(kind)
    behind = [2, 3, 4, EOS if kind == "eos" else 5, 1 if kind == "eos" else 6, 2]
    scripted = Answering(lambda r: Draft.chain(behind[: r.length], "scripted"))
    bench = Bench(target, scripted=scripted)
    request = bench.scheduler.submit(asked)
    events = bench.scheduler.step()
    bench.check_nothing_is_open()
    result = request.result()
    assert (result.token_ids, result.text, result.finish_detail) == (ids, text, detail)
    accepted = len(ids) if kind != "length" else len(ids) - 1
    assert result.stats.accepted == accepted
    assert [t.source for t in result.tokens[:accepted]] == ["accepted"] * accepted
    assert bench.target.freed_lengths == [1 + len(ids) - 1]
    (outcome,) = scripted.outcomes
    assert (len(outcome.accepted), outcome.emitted) == (accepted, len(ids))
    (round_event,) = [e for e in events if isinstance(e, RoundEvent)]
    flags = [drafted.accepted for drafted in round_event.drafted]
    assert flags == [True] * accepted + [False] * (len(flags) - accepted)


# ---- budgets


@pytest.mark.parametrize("most", range(1, 9))
@pytest.mark.parametrize("length", [0, 1, 3, 6, "auto"])
def test_nothing_is_drafted_that_could_not_be_written(most: int, length: Any) -> None:
    """A draft leaves room for the token behind it: at most max_tokens - 1, and so on."""
    bench = Bench(without_end())
    bench.results(ask(drafter="oracle", draft_length=length, max_tokens=most))
    limit = LONGEST if length == "auto" else length  # where rows cost nothing and all holds
    expected, left = [], most
    while left > 0:
        budget = min(limit, left - 1)
        expected += [budget] if budget else []
        left -= budget + 1
    assert [request.length for request in bench.drafters["oracle"].asked] == expected


@pytest.mark.parametrize("drafter", ["none", "oracle", "wrong", "bushy"])
@pytest.mark.parametrize("prompt", range(1, 8))
def test_the_context_is_filled_to_the_last_token(drafter: str, prompt: int) -> None:
    """Prompt and output together have exactly as many tokens as fit; the spy checks the rows."""
    (result,) = Bench(without_end(context=8)).results(
        ask([1] * prompt, drafter=drafter, draft_width=2, draft_length=6, max_tokens=99)
    )
    assert prompt + len(result.token_ids) == 8
    assert (result.finish_reason, result.finish_detail) == ("length", "context")


def test_no_token_asked_for_costs_nothing() -> None:
    """max_tokens 0: no sequence, no pass, no drafter, and a result all the same."""
    bench = Bench(toy())
    bench.target.fails = bench.drafters["oracle"].fails = pytest.fail
    (result,) = bench.results(ask(max_tokens=0, drafter="oracle"))
    assert told(result) == ([], "", "length", "max_tokens")
    assert result.stats.passes == 0


def test_one_token_asked_for_costs_one_row() -> None:
    """max_tokens 1: one pass over the prompt's last token, and no draft."""
    bench = Bench(without_end())
    (result,) = bench.results(ask([3, 4], max_tokens=1, drafter="oracle"))
    assert [[(r.token, r.position, r.parent) for r in rows] for rows in bench.target.passes] == [
        [(4, 1, -1)]
    ]
    assert [t.source for t in result.tokens] == ["bonus"]
    assert bench.drafters["oracle"].asked == []


def test_all_texts_of_a_round_share_one_pass() -> None:
    """Their rows stand one behind the other, each root before its draft."""
    bench = Bench(without_end())
    bench.run(*(ask([i], drafter="oracle", draft_length=2, max_tokens=3) for i in (1, 2, 3)))
    (rows,) = bench.target.passes
    assert [row.parent for row in rows] == [-1, 0, 1, -1, 3, 4, -1, 6, 7]


# ---- drafters that break their promise


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (lambda r: Draft.chain([1] * (r.length + 1), "x"), "more than it was asked"),
        (lambda r: Draft.merged([[1], [2], [3]], "x"), "more than it was asked"),
        (lambda r: Draft.merged([[1, 1], [1, 2], [1, 3]], "x"), "more than it was asked"),
        (lambda r: Draft.chain([VOCAB], "x"), f"token {VOCAB}"),
        (lambda r: Draft((Node(-1, -1, Point(-1), "x"),)), "token -1"),
    ],
)
def test_a_drafter_that_breaks_its_promise_is_named(answer: Any, complaint: str) -> None:
    """Too deep, too wide, out of the vocabulary: an error, and nothing stays open."""
    bench = Bench(toy(), answering=Answering(answer))
    with pytest.raises(EngineError, match=rf"'answering'.*{complaint}"):
        bench.run(ask(drafter="answering", draft_length=2, draft_width=2))
    bench.check_nothing_is_open()


@pytest.mark.parametrize("answers", [0, 1, 3])
def test_a_drafter_that_answers_too_few_or_many_is_named(answers: int) -> None:
    """Two texts, two drafts."""
    miscounting = Answering(lambda r: Draft())
    miscounting.draft = lambda requests: [Draft()] * answers  # type: ignore[method-assign]
    bench = Bench(toy(), miscounting=miscounting)
    with pytest.raises(EngineError, match=f"'answering' gave {answers} drafts for 2 texts"):
        bench.run(ask(drafter="miscounting"), ask(drafter="miscounting"))
    bench.check_nothing_is_open()


def test_each_drafter_sees_its_own_texts_only() -> None:
    """Two drafters and a plain text in one batch."""
    bench = Bench(without_end())
    bench.run(*(ask([i], drafter=name) for i, name in ((1, "oracle"), (2, "wrong"), (3, "none"))))
    for name, prompt in (("oracle", 1), ("wrong", 2)):
        assert {request.tokens[0] for request in bench.drafters[name].asked} == {prompt}


@pytest.mark.parametrize(
    ("rule", "gives_noise"),
    [("match", True), ("speculative", False), ("block", False), ("tree", False)],
)
def test_a_drafter_gets_the_noise_or_coins(rule: str, gives_noise: bool) -> None:
    """Under match the text's noise; under the others coins, never the noise they verify with."""
    bench = Bench(without_end())
    bench.run(ask(rule=rule, drafter="oracle", temperature=1))
    for request in bench.drafters["oracle"].asked:
        assert (request.noise is not None) == gives_noise
        assert (request.coins is None) == gives_noise
    rounds = [request.round for request in bench.drafters["oracle"].asked]
    assert rounds == list(range(len(rounds)))


# ---- events


@given(st.lists(asks, min_size=1, max_size=4), st.integers(1, 4))
@settings(max_examples=60)
def test_events_add_up_to_the_results(asked: list[Any], max_batch: int) -> None:
    """Texts, tokens, sources, rounds and statistics are told once, in order, and agree."""
    bench = Bench(toy(), max_batch)
    events = bench.run(*asked)
    for name in range(len(asked)):
        mine = [event for event in events if event.request == name]
        check_the_story(mine, asked[name])
    ran = [e.stats for e in events if isinstance(e, Result) and e.stats.passes]
    assert bench.scheduler.stats.tokens == sum(stats.tokens for stats in ran)
    assert bench.scheduler.stats.passes == sum(stats.passes for stats in ran)
    assert bench.scheduler.stats.accepted == sum(stats.accepted for stats in ran)


def check_the_story(events: list[Event], asked: Any) -> None:
    result = events[-1]
    assert isinstance(result, Result)
    rounds = [e for e in events if isinstance(e, RoundEvent)]
    written = [e for e in events if isinstance(e, TokenEvent)]
    assert len(events) == len(rounds) + len(written) + 1
    assert tuple(written) == result.tokens
    assert "".join(e.text for e in written) == result.text
    assert tuple(e.token for e in written) == result.token_ids
    assert [e.index for e in written] == list(range(len(written)))
    assert [e.round for e in rounds] == list(range(len(rounds)))
    for event in rounds:
        told_here = [e for e in written if e.round == event.round]
        place = events.index(event)
        assert events[place + 1 : place + 1 + event.emitted] == told_here
        check_a_round(event, told_here)
    stats = result.stats
    drafted = [drafted for event in rounds for drafted in event.drafted]
    assert stats.tokens == len(written) == sum(e.emitted for e in rounds)
    assert stats.passes == len(rounds)
    assert stats.drafted == len(drafted)
    assert stats.accepted == sum(d.accepted for d in drafted)
    assert stats.accepted == sum(e.source == "accepted" for e in written)
    assert stats.prompt_tokens == len(asked.prompt)
    for name in {d.drafter for d in drafted}:
        tally = [len([d for d in drafted if d.drafter == name])]
        tally.append(sum(d.accepted for d in drafted if d.drafter == name))
        assert stats.by_drafter[name] == tally
    assert stats.weight_bytes == stats.passes * TOY.weight_bytes
    assert 0 <= stats.draft_seconds + stats.pass_seconds <= stats.seconds or not rounds
    assert (result.exact, result.guarantee, result.seed) == (True, "bitwise", asked.seed)


def check_a_round(event: RoundEvent, written: list[TokenEvent]) -> None:
    """Accepted tokens are the draft's kept path; only the last may be the target's own."""
    assert len(written) == event.emitted >= 1
    parent = -1
    kept = [i for i, drafted in enumerate(event.drafted) if drafted.accepted]
    for token, index in zip(written, kept, strict=False):
        drafted = event.drafted[index]
        siblings = [i for i, d in enumerate(event.drafted) if d.parent == parent]
        assert (token.source, token.token) == ("accepted", drafted.token)
        assert (token.drafter, token.rank) == (drafted.drafter, siblings.index(index))
        assert drafted.parent == parent
        parent = index
    own = written[len(kept) :]
    assert len(own) <= 1
    for token in own:
        failed = any(drafted.parent == parent for drafted in event.drafted)
        assert token.source == ("corrected" if failed else "bonus")
        assert (token.drafter, token.rank) == (None, None)


def test_the_last_of_siblings_has_the_last_rank() -> None:
    """A bushy draft has its right token behind width - 1 wrong ones."""
    (result,) = Bench(without_end()).results(
        ask(drafter="bushy", draft_width=4, draft_length=3, max_tokens=8)
    )
    assert [t.rank for t in result.tokens] == [3, 3, 3, None, 3, 3, 3, None]
    assert {t.drafter for t in result.tokens} == {"bushy", None}


def test_lenient_says_so() -> None:
    """The one rule that changes the law marks its results."""
    (result,) = Bench(toy()).results(ask(rule="lenient", lenience=0.5, drafter="oracle"))
    assert (result.exact, result.guarantee) == (False, "lenient")


@pytest.mark.parametrize("rule", ["match", "speculative", "block", "tree"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_rule_that_samples_promises_the_law_and_not_the_tokens(
    rule: RuleName, temperature: float
) -> None:
    """Only where every drafter leads to plain decoding's own tokens is the guarantee bitwise."""
    (result,) = Bench(toy()).results(ask(rule=rule, temperature=temperature, drafter="oracle"))
    samples = rule != "match" and temperature > 0
    assert (result.exact, result.guarantee) == (True, "same law" if samples else "bitwise")


# ---- between rounds


@pytest.mark.parametrize("drafter", ["none", *DRAFTERS])
def test_after_every_round_all_tokens_but_the_last_are_committed(drafter: str) -> None:
    """To each sequence of the batch, and the drafter knows all of them."""
    bench = Bench(toy())
    requests = [
        bench.scheduler.submit(
            ask([i, i], drafter=drafter, draft_length=5, draft_width=2, temperature=1, seed=i)
        )
        for i in range(1, 5)
    ]
    rounds = 0
    for _ in steps(bench.scheduler):
        rounds += 1
        for request in requests:
            if request.finish is None:
                assert request.sequence is not None
                assert bench.target.toy._sequences[request.sequence] == request.tokens[:-1]
                if drafter != "none":
                    assert bench.drafters[drafter].texts[request.name] == request.tokens
            else:
                assert request.sequence is None
    assert rounds > 1
    bench.check_nothing_is_open()


def test_hidden_states_are_asked_for_while_somebody_watches() -> None:
    """Those of the watcher's layers alone, and none in rounds of others, nor of their prompts."""
    bench = Bench(toy(), max_batch=2)
    bench.results(
        ask([1, 2, 3], drafter="watching", max_tokens=2, ignore_eos=True),
        ask([2, 3, 1], drafter="fickle", max_tokens=30, ignore_eos=True),
    )
    assert set(bench.target.layers) == {(), (0, 2)}
    assert bench.target.layers[0] == (0, 2)  # the prompt's pass
    assert bench.target.layers[-1] == ()
    assert all(not outcome.hidden for outcome in bench.drafters["fickle"].outcomes)


def test_a_long_prompt_is_shown_in_parts() -> None:
    """All of it but the root, and the text is the one that nobody watched."""
    prompt = [1 + i % 5 for i in range(700)]
    bench = Bench(without_end())
    (result,) = bench.results(ask(prompt, drafter="watching", temperature=1))
    assert [len(rows) for rows in bench.target.passes[:3]] == [256, 256, 187]
    assert told(result) == plainly(without_end(), ask(prompt, temperature=1))


# ---- log-probabilities


@pytest.mark.parametrize("drafter", ["none", "oracle", "fickle", "bushy"])
def test_log_probabilities_are_the_targets_own(drafter: str) -> None:
    """Of the raw logits at temperature 1, whatever warp, drafter and provenance."""
    asked = ask(
        drafter=drafter,
        draft_width=2,
        temperature=0.7,
        top_k=2,
        presence_penalty=1,
        top_logprobs=3,
        max_tokens=30,
    )
    (result,) = Bench(without_end()).results(asked)
    text = list(asked.prompt)
    for event in result.tokens:
        logits = [float(x) for x in TOY.logits_after(text)]
        logits[EOS] = -50.0
        total = math.log(math.fsum(math.exp(x) for x in logits))
        assert event.logprob == pytest.approx(logits[event.token] - total, abs=3e-7)
        best = sorted(range(VOCAB), key=lambda t: (-logits[t], t))[:3]
        assert [t for t, _ in event.top] == best
        assert [lp for _, lp in event.top] == pytest.approx([logits[t] - total for t in best])
        text.append(event.token)


def test_equal_alternatives_stand_by_id_and_never_more_than_there_are() -> None:
    """All levels equal: 0, 1, 2, ..., each once."""
    flat = ToyTarget(np.zeros((VOCAB, VOCAB), np.float32))
    few, all_, none = Bench(flat).results(
        *(ask(top_logprobs=n, max_tokens=2, min_tokens=1) for n in (2, 100, 0))
    )
    assert [t for t, _ in few.tokens[0].top] == [0, 1]
    assert [t for t, _ in all_.tokens[0].top] == list(range(VOCAB))
    assert none.tokens[0].top == ()
    assert few.tokens[0].logprob == pytest.approx(-math.log(VOCAB))


def test_no_stop_token_before_min_tokens() -> None:
    """A target that wants to end at once writes on as long as it must, in the middle of drafts."""
    table = np.zeros((VOCAB, VOCAB), np.float32)
    table[:, EOS] = 9
    for drafter in ("none", "oracle", "wrong"):
        (result,) = Bench(ToyTarget(table)).results(ask(drafter=drafter, min_tokens=5))
        assert EOS not in result.token_ids[:5]
        assert result.token_ids[5:] == (EOS,)


def test_classes_that_draft_by_position_really_fail_and_succeed() -> None:
    """The tests above would prove little if no draft were ever half right."""
    bench = Bench(without_end())
    (result,) = bench.results(ask(drafter="fickle", max_tokens=40))
    assert isinstance(bench.drafters["fickle"], Fickle | Oracle)
    assert {t.source for t in result.tokens} == {"accepted", "corrected", "bonus"}
