"""Interleaving: who is timed when, with fakes that take as long as they are told."""

from __future__ import annotations

import pytest

from bench.fake_side import Call, FakeSide
from forerun.bench.end import End
from forerun.bench.measure import Plan, Samples, Task, measure, median

PLAN = Plan(rows=(1, 2, 4), prefill=8, decode=3, repeats=5, tokens=range(8), seed=7, settle=0)


def sides(calls: list[Call], *names: str) -> list[FakeSide]:
    return [FakeSide(name, calls) for name in names]


def after_warm_up(calls: list[Call], sides: int) -> list[Call]:
    # Three passes, a prompt and a text of each side.
    return calls[5 * sides :]


def test_every_side_does_each_task_before_anyone_does_the_next() -> None:
    """Within each repeat the sides take turns task by task, an untimed pass first."""
    calls: list[Call] = []
    measure(sides(calls, "ours", "theirs"), PLAN)
    rest = after_warm_up(calls, 2)
    for repeat in range(PLAN.repeats):
        for kind, size in PLAN.tasks(repeat):
            times = 3 if kind == "pass" else 1
            block, rest = rest[: 2 * times], rest[2 * times :]
            assert {call[1:] for call in block} == {(kind, size)}
            assert len({call[0] for call in block[:times]}) == 1
            assert sorted(call[0] for call in block) == ["ours"] * times + ["theirs"] * times
    assert rest == []


def test_neither_side_is_always_first() -> None:
    """Whoever comes first finds the caches as the other left them; so they take turns in that."""
    calls: list[Call] = []
    measure(sides(calls, "ours", "theirs"), PLAN._replace(prefill=0, decode=0))
    firsts = [call[0] for call in calls[6::6]]
    assert 0.4 <= firsts.count("ours") / len(firsts) <= 0.6


def test_the_order_of_rows_is_shuffled_and_the_seed_s() -> None:
    """Each repeat has an order of its own, the same for the same seed."""
    orders = [tuple(PLAN.tasks(repeat)) for repeat in range(40)]
    assert len({tuple(t for t in order if t.kind == "pass") for order in orders}) == 6
    assert orders == [tuple(PLAN.tasks(repeat)) for repeat in range(40)]
    assert orders != [tuple(PLAN._replace(seed=8).tasks(repeat)) for repeat in range(40)]


def test_the_first_pass_of_a_burst_is_not_kept() -> None:
    """Nor what warms up: here every first call after another side's or task's takes a second."""
    last: list[tuple[str, int]] = []

    def seconds(kind: str, size: int) -> float:
        is_first = last != [(kind, size)]
        last[:] = [(kind, size)]
        return 1.0 if is_first else 0.001

    plan = PLAN._replace(prefill=0, decode=0)
    samples = measure([FakeSide("ours", [], seconds)], plan)["ours"]
    assert samples.seconds == {Task("pass", rows): [0.001] * 10 for rows in plan.rows}


def test_long_tasks_are_timed_less_often() -> None:
    """Of five repeats, the first and the fifth time a prompt and a text."""
    samples = measure(sides([], "ours"), PLAN)["ours"]
    assert len(samples.seconds[Task("prefill", 8)]) == 2
    assert len(samples.seconds[Task("decode", 3)]) == 2
    none = measure(sides([], "ours"), PLAN._replace(prefill=0, decode=0))["ours"]
    assert {task.kind for task in none.seconds} == {"pass"}


def test_a_peer_that_fails_is_given_up_and_the_others_go_on() -> None:
    """Its samples so far stay, with what it said; it is not asked again."""
    calls: list[Call] = []

    def fails_later(kind: str, size: int) -> float:
        if sum(name == "theirs" for name, *_ in calls) > 20:
            raise OSError("gone")
        return 0.5

    ours, theirs = FakeSide("ours", calls), FakeSide("theirs", calls, fails_later)
    third = FakeSide("third", calls)
    samples = measure([ours, theirs, third], PLAN)
    assert samples["theirs"].error == "OSError: gone"
    assert sum(name == "theirs" for name, *_ in calls) == 21
    assert any(samples["theirs"].seconds.values())
    assert samples["ours"].error == samples["third"].error == ""
    assert len(samples["third"].seconds[Task("pass", 4)]) == 10


def test_our_own_failure_is_raised() -> None:
    """A figure of Forerun that is missing is an error, not a remark."""

    def fails(kind: str, size: int) -> float:
        raise ValueError("ours")

    with pytest.raises(ValueError, match="ours"):
        measure([FakeSide("ours", [], fails)], PLAN)


def test_what_was_measured_before_an_end_is_kept() -> None:
    """`came` is asked before each sample, and ends it there."""
    calls: list[Call] = []
    samples = measure(sides(calls, "ours"), PLAN, end=End(lambda: len(calls) >= 10))["ours"]
    assert len(calls) <= 12
    assert 0 < sum(map(len, samples.seconds.values())) < 10


def test_the_machine_is_looked_at_before_each_repeat() -> None:
    """As often as there are repeats, after the warm-up and between whole repeats."""
    calls: list[Call] = []
    looks: list[int] = []
    measure(sides(calls, "ours"), PLAN, at_repeat=lambda: looks.append(len(calls)))
    assert looks == [5, 16, 25, 34, 43]


def test_threads_of_others_may_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each side's turn some time passes."""
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    measure(sides([], "ours", "theirs"), PLAN._replace(settle=0.25, repeats=1))
    assert slept == [0.25] * (6 + 10)


def test_progress_goes_from_none_to_all() -> None:
    """The shares ascend, below one."""
    shares: list[float] = []
    measure(sides([], "ours"), PLAN, progress=lambda part, share: shares.append(share))
    timed = [share for share in shares if share >= 0]
    assert timed == sorted(timed)
    assert timed[0] == 0
    assert 0.9 < timed[-1] < 1


def test_medians() -> None:
    """In milliseconds; nothing has none."""
    samples = Samples({Task("pass", 1): [0.003, 0.001, 0.002, 0.1]})
    assert samples.median_ms(Task("pass", 1)) == pytest.approx(2.5)
    assert samples.median_ms(Task("pass", 2)) is None
    assert median([]) is None
