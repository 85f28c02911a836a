"""Scheduling: who runs, who waits, who is cut short; and whatever happens, all is given back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.doubles import (
    EOS,
    VOCAB,
    Bench,
    Letters,
    Oracle,
    ask,
    plainly,
    steps,
    told,
)
from forerun.config import Generation
from forerun.engine.request import Ask
from forerun.engine.scheduler import Scheduler
from forerun.errors import (
    CapabilityError,
    NotEnoughMemoryError,
    OptionError,
    PromptError,
    UsageError,
)
from forerun.events import Event, Result, TokenEvent
from forerun.targets.protocol import Capabilities, Row, Scores
from forerun.targets.toy import ToyTarget


def endless(context: int = 4096) -> ToyTarget:
    """A toy that never ends its text by itself."""
    table = ToyTarget.random(VOCAB, order=2, seed=1)._table
    table[..., EOS] = -1000
    return ToyTarget(table, context)


def results(events: list[Event]) -> list[Result]:
    return [event for event in events if isinstance(event, Result)]


# ---- who runs


@pytest.mark.parametrize("max_batch", [0, -1])
def test_a_batch_of_none_is_refused(max_batch: int) -> None:
    """It would wait for ever."""
    with pytest.raises(OptionError, match=f"max_batch = {max_batch}"):
        Scheduler(endless(), lambda spec: None, max_batch)


def test_those_that_wait_move_up_when_others_end() -> None:
    """Never more than max_batch in a pass, never fewer while any waits, first come first served."""
    bench = Bench(endless(), max_batch=2)
    requests = [bench.scheduler.submit(ask(max_tokens=n)) for n in (3, 1, 2, 1)]
    ended: list[int] = []
    sizes = []
    for events in steps(bench.scheduler):
        ended += [result.request for result in results(events)]
        sizes.append(len(bench.target.passes[-1]))
    assert sizes == [2, 2, 2, 1]
    assert ended == [1, 0, 2, 3]
    assert [len(request.output) for request in requests] == [3, 1, 2, 1]
    bench.check_nothing_is_open()


def test_a_request_with_nothing_to_write_takes_no_place() -> None:
    """It ends while the only place is given to the next."""
    bench = Bench(endless(), max_batch=1)
    for n in (0, 2, 0):
        bench.scheduler.submit(ask(max_tokens=n))
    assert [r.request for r in results(bench.scheduler.step())] == [0]
    assert [r.request for r in results(bench.scheduler.step())] == [1]
    assert [r.request for r in results(bench.scheduler.step())] == [2]
    bench.check_nothing_is_open()


def test_an_idle_scheduler_does_nothing() -> None:
    """No pass, no event."""
    bench = Bench(endless())
    assert bench.scheduler.is_idle
    assert bench.scheduler.step() == []
    assert list(bench.scheduler.run([])) == []
    assert bench.target.passes == []


def test_requests_may_come_while_others_run() -> None:
    """A late one writes what it would write alone."""
    bench = Bench(endless())
    bench.scheduler.submit(ask([1], max_tokens=6, drafter="fickle"))
    bench.scheduler.step()
    late = bench.scheduler.submit(ask([2], max_tokens=6, temperature=1, drafter="oracle"))
    for _ in steps(bench.scheduler):
        pass
    assert told(late.result()) == plainly(endless(), ask([2], max_tokens=6, temperature=1))
    bench.check_nothing_is_open()


# ---- what is refused


@pytest.mark.parametrize(
    ("prompt", "complaint"),
    [
        ((), "empty"),
        ((1,) * 8, "has 8 tokens, the context 8"),
        ((1,) * 9, "has 9 tokens"),
        ((1, VOCAB), f"token {VOCAB}"),
        ((-1,), "token -1"),
        ((10**30,), f"token {10**30}"),
    ],
)
def test_a_prompt_that_cannot_be_continued_is_refused(
    prompt: tuple[int, ...], complaint: str
) -> None:
    """When it is submitted, with what is wrong with it."""
    bench = Bench(endless(context=8))
    with pytest.raises(PromptError, match=complaint):
        bench.scheduler.submit(ask(prompt))
    bench.check_nothing_is_open()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"banned_tokens": [VOCAB]}, "banned_tokens names token 7"),
        ({"allowed_tokens": [EOS], "min_tokens": 1}, "no token to write"),
        ({"logit_bias": {"99": 1}}, "logit_bias names token 99"),
    ],
)
def test_options_that_do_not_fit_the_target_are_refused(
    options: dict[str, Any], complaint: str
) -> None:
    """When they are submitted, not in mid-text."""
    bench = Bench(endless())
    with pytest.raises(OptionError, match=complaint):
        bench.scheduler.submit(ask(**options))
    bench.check_nothing_is_open()


def test_trees_for_a_target_of_chains_are_refused() -> None:
    """Width 1 is a chain and is taken."""
    bench = Bench(endless())
    bench.target.capabilities = Capabilities(trees=False, exactness="same law")  # type: ignore[attr-defined]
    with pytest.raises(CapabilityError, match="draft_width = 2"):
        bench.scheduler.submit(ask(draft_width=2))
    (result,) = bench.results(ask(draft_width=1))
    assert result.guarantee == "same law"


def test_an_unknown_drafter_is_refused_when_submitted() -> None:
    """Whatever the table raises comes out, and nothing is queued."""
    bench = Bench(endless())
    with pytest.raises(KeyError):
        bench.scheduler.submit(ask(drafter="nobody"))
    bench.check_nothing_is_open()


def test_run_with_one_bad_ask_runs_none() -> None:
    """The good ones before it do not stay in the queue."""
    bench = Bench(endless())
    with pytest.raises(UsageError):
        list(bench.scheduler.run([ask(), ask(), ask(())]))
    bench.check_nothing_is_open()
    assert bench.target.passes == []


# ---- cut short


def test_a_waiting_request_can_be_cancelled() -> None:
    """It never runs; the others do not notice."""
    bench = Bench(endless(), max_batch=1)
    first, second, third = (bench.scheduler.submit(ask([i], max_tokens=3)) for i in (1, 2, 3))
    bench.scheduler.step()
    bench.scheduler.cancel(second)
    for _ in steps(bench.scheduler):
        pass
    assert told(second.result()) == ([], "", "interrupted", "interrupted")
    assert told(first.result()) == plainly(endless(), ask([1], max_tokens=3))
    assert told(third.result()) == plainly(endless(), ask([3], max_tokens=3))
    assert all(row.token != 2 or row.position != 0 for row in bench.target.passes[0])
    bench.check_nothing_is_open()


def test_a_running_request_can_be_cancelled_and_keeps_its_text() -> None:
    """What it held back for a stop string is text too; the others go on."""
    plain, _, _, _ = plainly(endless(), ask([1, 2], max_tokens=4))
    letters = "".join(Letters().push(token) for token in plain)
    bench = Bench(endless())
    request = bench.scheduler.submit(ask([1, 2], stop=[letters + "!"], draft_length=0))
    other = bench.scheduler.submit(ask([3], max_tokens=9, drafter="oracle"))
    for _ in range(4):
        bench.scheduler.step()
    assert "".join(event.text for event in request.events) == ""
    bench.scheduler.cancel(request)
    assert told(request.result()) == (plain, letters, "interrupted", "interrupted")
    for _ in steps(bench.scheduler):
        pass
    assert told(other.result()) == plainly(endless(), ask([3], max_tokens=9))
    assert request.result().stats.tokens == 4
    bench.check_nothing_is_open()


def test_cancelling_what_has_ended_changes_nothing() -> None:
    """Nor does cancelling twice."""
    bench = Bench(endless())
    (event,) = results(bench.run(ask(max_tokens=2)))
    done = bench.scheduler.submit(ask(max_tokens=2))
    while done.finish is None:
        bench.scheduler.step()
    for _ in range(2):
        bench.scheduler.cancel(done)
    assert told(done.result()) == told(event)
    running = bench.scheduler.submit(ask())
    bench.scheduler.step()
    bench.scheduler.cancel(running)
    before = bench.scheduler.stats.as_json()
    bench.scheduler.cancel(running)
    assert bench.scheduler.stats.as_json() == before
    bench.check_nothing_is_open()


def test_a_result_may_be_asked_for_at_any_time() -> None:
    """Waiting, running and ended."""
    bench = Bench(endless())
    request = bench.scheduler.submit(ask(max_tokens=2))
    assert told(request.result()) == ([], "", "interrupted", "still running")
    bench.scheduler.step()
    assert len(request.result().token_ids) == 1
    bench.scheduler.step()
    assert request.result().finish_reason == "length"


@pytest.mark.parametrize("after", [0, 1, 2, 5])
def test_a_listener_that_leaves_early_interrupts_all(after: int) -> None:
    """Running and waiting ones; sequences and drafters' texts are given back."""
    bench = Bench(endless(), max_batch=2)
    stream: Iterator[Event] = bench.scheduler.run(
        [ask([i], drafter="oracle", max_tokens=50) for i in (1, 2, 3)]
    )
    for _ in range(after):
        next(stream)
    stream.close()  # type: ignore[attr-defined]
    bench.check_nothing_is_open()


def test_a_listener_may_cancel_what_it_listens_to() -> None:
    """In the middle of the events of a round; the other text is not touched."""
    bench = Bench(endless())
    requests = [bench.scheduler.submit(ask([i], max_tokens=6, drafter="fickle")) for i in (1, 2)]
    for events in steps(bench.scheduler):
        for event in events:
            if isinstance(event, TokenEvent) and event.request == 0:
                bench.scheduler.cancel(requests[0])
    assert requests[0].result().finish_reason == "interrupted"
    assert told(requests[1].result()) == plainly(endless(), ask([2], max_tokens=6))
    bench.check_nothing_is_open()


# ---- failures in the middle


class Broken(Exception):
    """What a target or drafter of somebody else's raises."""


def at_call(number: int, method: str, error: type[BaseException] = Broken) -> Callable[[str], None]:
    """Fail at the `number`-th call of `method`, from 1."""
    calls = 0

    def fails(called: str) -> None:
        nonlocal calls
        calls += called == method
        if called == method and calls == number:
            raise error(method)

    return fails


PLACES = [("target", m) for m in ("open", "score", "commit", "free")] + [
    ("oracle", m) for m in ("open", "draft", "observe", "free")
]


@pytest.mark.parametrize(("who", "method"), PLACES)
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("error", [Broken, KeyboardInterrupt, MemoryError])
def test_whatever_fails_nothing_stays_open_and_the_scheduler_goes_on(
    who: str, method: str, number: int, error: type[BaseException]
) -> None:
    """The error comes out as it is; afterwards the same texts can be written from the start."""
    bench = Bench(endless(), max_batch=2)
    part = bench.target if who == "target" else bench.drafters[who]
    part.fails = at_call(number, method, error)
    asks = [ask([i], drafter="oracle", draft_length=1, max_tokens=3 + i) for i in (1, 2, 3)]
    with pytest.raises(error, match=method):
        list(bench.scheduler.run(asks))
    bench.check_nothing_is_open()
    part.fails = lambda called: None
    bench.target._uncommitted.clear()
    found = bench.results(*asks)
    assert [told(r) for r in found] == [plainly(endless(), one) for one in asks]


def test_drafts_that_memory_is_too_short_for_are_left_out() -> None:
    """The same texts, of roots alone while that lasts; where those do not fit, it is an error."""
    bench = Bench(endless(), max_batch=2)
    score, most = bench.target.score, 2

    def small(rows: Sequence[Row], **asked: Any) -> Scores:
        if len(rows) > most:
            raise NotEnoughMemoryError(f"{len(rows)} rows", "Fewer.")
        return score(rows, **asked)

    bench.target.score = small  # type: ignore[method-assign]
    asks = [ask([i], drafter="oracle", draft_length=3, max_tokens=9) for i in (1, 2, 3)]
    found = bench.results(*asks)
    assert [told(r) for r in found] == [plainly(endless(), one) for one in asks]
    assert max(map(len, bench.target.passes)) == 2
    most = 8
    assert [told(r) for r in bench.results(*asks)] == [told(r) for r in found]
    assert max(map(len, bench.target.passes)) == 8
    most = 0
    with pytest.raises(NotEnoughMemoryError):
        bench.results(*asks)
    bench.check_nothing_is_open()


@pytest.mark.parametrize("drafter", ["oracle", "none"])
@pytest.mark.parametrize("unlucky", [{2}, {1, 4}, {1, 2, 3, 4}])
def test_a_text_that_memory_is_too_short_for_ends_alone(drafter: str, unlucky: set[int]) -> None:
    """Each of those keeps what it has, is told so, and gives its memory to the others."""
    bench = Bench(endless())
    score, longest = bench.target.score, 5

    def small(rows: Sequence[Row], **asked: Any) -> Scores:
        long = [row for row in rows if row.position > longest and row.sequence in unlucky]
        if long and len(bench.target.open_sequences) > 1:
            raise NotEnoughMemoryError(f"{len(rows)} rows", "Fewer.")
        return score(rows, **asked)

    bench.target.score = small  # type: ignore[method-assign]
    asks = [ask([i], drafter=drafter, draft_length=2, max_tokens=12) for i in (1, 2, 3, 4)]
    found = bench.results(*asks)
    survivors = {1, 2, 3, 4} - unlucky or {4}  # alone it has all memory to itself
    for number, (result, one) in enumerate(zip(found, asks, strict=True), 1):
        whole = plainly(endless(), one)
        if number in survivors:
            assert told(result) == whole
            continue
        assert (result.finish_reason, result.finish_detail) == ("interrupted", "memory")
        assert list(result.token_ids) == whole[0][: longest + 1]
    bench.check_nothing_is_open()


@pytest.mark.parametrize(("who", "method"), [p for p in PLACES if p[1] not in ("open", "free")])
def test_a_failed_round_keeps_the_text_so_far(who: str, method: str) -> None:
    """The running texts are interrupted where they are; those that wait still run."""
    bench = Bench(endless(), max_batch=2)
    part = bench.target if who == "target" else bench.drafters[who]
    part.fails = at_call(3, method)
    requests = [
        bench.scheduler.submit(ask([i], drafter="oracle", draft_length=1, max_tokens=20))
        for i in (1, 2, 3)
    ]
    with pytest.raises(Broken):
        list(steps(bench.scheduler))
    for name, request in enumerate(requests[:2], 1):
        result = request.result()
        whole, text, _, _ = plainly(endless(), ask([name], max_tokens=20))
        assert 2 <= len(result.token_ids) < 20
        assert list(result.token_ids) == whole[: len(result.token_ids)]
        assert result.text == text[: len(result.token_ids)]
        assert result.finish_reason == "interrupted"
        stats = result.stats
        assert stats.tokens == len(result.tokens) == len(result.token_ids)
        assert stats.weight_bytes == stats.passes * bench.target.weight_bytes
    part.fails = lambda called: None
    for _ in steps(bench.scheduler):
        pass
    assert told(requests[2].result()) == plainly(endless(), ask([3], max_tokens=20))
    bench.check_nothing_is_open()


def test_a_watcher_that_fails_at_a_prompt_ends_that_text_alone() -> None:
    """What it and the target had opened is given back."""
    bench = Bench(endless())
    bench.drafters["watching"].fails = at_call(1, "see")
    unlucky = bench.scheduler.submit(ask([2, 3], drafter="watching"))
    with pytest.raises(Broken):
        bench.scheduler.step()
    assert told(unlucky.result()) == ([], "", "interrupted", "interrupted")
    bench.check_nothing_is_open()


@pytest.mark.parametrize(("who", "method"), [p for p in PLACES if p[1] == "open"])
def test_a_request_that_cannot_be_opened_ends_alone(who: str, method: str) -> None:
    """Those that run already go on, and what it had opened is given back."""
    bench = Bench(endless())
    running = bench.scheduler.submit(ask([1], drafter="oracle", max_tokens=9, draft_length=1))
    bench.scheduler.step()
    part = bench.target if who == "target" else bench.drafters[who]
    part.fails = at_call(1, method)
    unlucky = bench.scheduler.submit(ask([2], drafter="oracle"))
    with pytest.raises(Broken):
        bench.scheduler.step()
    assert told(unlucky.result()) == ([], "", "interrupted", "interrupted")
    assert len(bench.target.open_sequences) == 1
    for _ in steps(bench.scheduler):
        pass
    assert told(running.result()) == plainly(endless(), ask([1], max_tokens=9))
    bench.check_nothing_is_open()


def test_logits_that_are_nan_end_in_an_error_and_not_in_a_text() -> None:
    """A broken target is found in mid-text, and what was written before stays."""
    bench = Bench(endless())
    request = bench.scheduler.submit(ask(draft_length=0))
    bench.scheduler.step()
    bench.target.toy._table = np.full_like(bench.target.toy._table, np.nan)
    with pytest.raises(Exception, match="NaN"):
        bench.scheduler.step()
    assert len(request.result().token_ids) == 1
    bench.check_nothing_is_open()


# ---- statistics


def test_the_statistics_are_the_sum_over_requests_cancelled_ones_too() -> None:
    """Each counted once, when it ends."""
    bench = Bench(endless())
    ended = bench.scheduler.submit(ask([1], max_tokens=4, drafter="oracle"))
    cut = bench.scheduler.submit(ask([2, 3], max_tokens=40, drafter="wrong", draft_length=5))
    bench.scheduler.step()
    bench.scheduler.step()
    bench.scheduler.cancel(cut)
    assert bench.scheduler.is_idle
    total = bench.scheduler.stats
    assert (total.tokens, total.passes, total.prompt_tokens) == (4 + 2, 1 + 2, 1 + 2)
    assert total.by_drafter == {"oracle": [3, 3], "wrong": [10, 0]}
    assert total.seconds == pytest.approx(ended.result().stats.seconds + cut.result().stats.seconds)


def test_a_decoder_that_fails_fails_its_round() -> None:
    """As any other part of the round; nothing stays open."""

    class Mute(Letters):
        def push(self, token: int) -> str:
            raise Broken("decoder")

    bench = Bench(endless(), oracle=Oracle(endless()))
    options = Generation.make(drafter="oracle", max_tokens=3)
    with pytest.raises(Broken):
        list(bench.scheduler.run([Ask((1,), options, 1, (EOS,), Mute())]))
    bench.check_nothing_is_open()


# ---- prompts that are read beside other texts


def beside(bench: Bench, monkeypatch: pytest.MonkeyPatch, rows: int = 4) -> None:
    """Have prompts read by the passes of other texts, so many tokens of them at most."""
    capable = replace(bench.target.capabilities, reads_beside=True)
    monkeypatch.setattr(bench.target, "capabilities", capable, raising=False)
    monkeypatch.setattr("forerun.engine.reading.next_parts.__defaults__", (rows,))


LONG = ([1, 2, 1, 3, 1, 2, 3, 1, 2], [2], [3, 1, 3, 1, 2], [1, 1, 2])


@pytest.mark.parametrize("drafter", ["none", "fickle", "bushy", "watching"])
def test_prompts_are_read_beside_other_texts(drafter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever drafts or watches, the texts are the plain ones; who is read first writes first."""
    bench = Bench(endless())
    beside(bench, monkeypatch)
    asks = [ask(prompt, max_tokens=8, temperature=1, drafter=drafter) for prompt in LONG]
    found = bench.results(*asks)
    plain = [ask(prompt, max_tokens=8, temperature=1) for prompt in LONG]
    assert [told(result) for result in found] == [plainly(endless(), each) for each in plain]
    first = bench.target.passes[0]
    assert [first[0].token, *[row.token for row in first[-4:]]] == [2, 1, 2, 1, 3]
    assert all(result.stats.prompt_seconds > 0 for result in found)


def test_a_pass_reads_several_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many tokens as it may, first come first read, and no more."""
    bench = Bench(endless())
    beside(bench, monkeypatch, rows=10)
    bench.results(*(ask(prompt, max_tokens=3) for prompt in LONG))
    read = [sum(row.position < 8 for row in rows) for rows in bench.target.passes[:2]]
    assert [len(rows) for rows in bench.target.passes[:2]] == [11, 6]
    assert read == [11, 5]


@pytest.mark.parametrize("fatal", [False, True])
def test_a_prompt_that_finds_no_memory_beside_others_is_read_alone(
    fatal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In smaller parts; if there is none for that either, it ends alone."""
    bench = Bench(endless())
    beside(bench, monkeypatch, rows=8)
    score = bench.target.score
    long, late = (bench.scheduler.submit(ask(LONG[i], max_tokens=4)) for i in range(2))

    def narrow(rows: Sequence[Row], **asked: Any) -> Scores:
        reads = [row for row in rows if row.sequence == long.sequence and not long.is_read]
        is_beside = len(reads) < len(rows)
        if reads and (fatal or is_beside or len(reads) > 3):
            raise NotEnoughMemoryError("Too many.", "Take fewer.")
        return score(rows, **asked)

    monkeypatch.setattr(bench.target, "score", narrow)
    bench.scheduler.step()
    if fatal:
        with pytest.raises(NotEnoughMemoryError):
            bench.scheduler.step()
        assert long.finish == ("interrupted", "interrupted")
    for _ in steps(bench.scheduler):
        pass
    assert long.is_read is not fatal
    assert len(late.output) == 4
    bench.check_nothing_is_open()
