"""Events: plain JSON, complete, and statistics that mean what they say."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.events import Drafted, Result, RoundEvent, Stats, TokenEvent

TOKEN = TokenEvent(
    request=1,
    index=0,
    token=5,
    text="é",
    source="accepted",
    drafter="lookup",
    rank=0,
    logprob=-0.5,
    top=((5, -0.5), (2, -1.25)),
    round=3,
)
ROUND = RoundEvent(1, 3, (Drafted(5, -1, "lookup", True, 0.5), Drafted(6, 0, "lookup", False)), 2)
DRAFTED = {"drafter": "lookup"}
RESULT = Result(
    request=1,
    text="é",
    token_ids=(5, 0),
    finish_reason="stop",
    finish_detail="end of text",
    exact=True,
    guarantee="bitwise",
    seed=2**64 - 1,
    tokens=(TOKEN,),
    stats=Stats(tokens=2, passes=1),
    target="native",
)


def through_json(record: Any) -> Any:
    return json.loads(json.dumps(record.as_json(), allow_nan=False))


def test_a_copy_of_statistics_stays_as_it_is() -> None:
    """What is counted later, by drafter as well, is not in it."""
    stats = Stats(tokens=1)
    stats.count_draft("lookup", accepted=True)
    before = stats.copy()
    assert before == stats
    stats.count_draft("lookup", accepted=False)
    assert (before.drafted, before.by_drafter) == (1, {"lookup": [1, 1]})


def test_a_round_is_one_json_object() -> None:
    """All that was drafted, in its order, and what was kept."""
    assert through_json(ROUND) == {
        "event": "round",
        "request": 1,
        "round": 3,
        "drafted": [
            DRAFTED | {"token": 5, "parent": -1, "accepted": True, "expected": 0.5},
            DRAFTED | {"token": 6, "parent": 0, "accepted": False, "expected": None},
        ],
        "emitted": 2,
    }


def test_a_token_is_one_json_object() -> None:
    """With its provenance and the alternatives."""
    assert through_json(TOKEN) == {
        "event": "token",
        "request": 1,
        "index": 0,
        "token": 5,
        "text": "é",
        "source": "accepted",
        "drafter": "lookup",
        "rank": 0,
        "logprob": -0.5,
        "top": [[5, -0.5], [2, -1.25]],
        "round": 3,
    }


def test_a_result_is_one_json_object_without_its_tokens() -> None:
    """The tokens had events of their own; the seed keeps all its 64 bits."""
    found = through_json(RESULT)
    assert found.pop("stats")["tokens"] == 2
    assert found == {
        "event": "result",
        "request": 1,
        "text": "é",
        "token_ids": [5, 0],
        "finish_reason": "stop",
        "finish_detail": "end of text",
        "exact": True,
        "guarantee": "bitwise",
        "seed": 2**64 - 1,
        "target": "native",
    }


@pytest.mark.parametrize("record", [TOKEN, ROUND, RESULT, ROUND.drafted[0]])
def test_events_cannot_be_changed(record: Any) -> None:
    """CLI, server and audit read the same records."""
    for name in type(record).__annotations__:
        with pytest.raises(AttributeError):
            setattr(record, name, 9)


def test_what_follows_from_nothing_is_zero() -> None:
    """No tokens, no passes, no time: no division."""
    derived = {"tokens_per_pass", "tokens_per_second", "acceptance", "weight_bytes_per_token"}
    found = Stats().as_json()
    assert {name: found[name] for name in derived} == dict.fromkeys(derived, 0.0)


def test_what_follows_from_counts_and_times() -> None:
    """Tokens over passes and over seconds in rounds, accepted over drafted, bytes over tokens."""
    stats = Stats(tokens=12, passes=4, drafted=20, accepted=8, seconds=3.0, weight_bytes=600)
    stats.prompt_seconds = 100.0  # is not time in rounds
    assert stats.tokens_per_pass == 3
    assert stats.tokens_per_second == 4
    assert stats.acceptance == 0.4
    assert stats.weight_bytes_per_token == 50
    found = json.loads(json.dumps(stats.as_json()))
    assert set(found) == {field.name for field in dataclasses.fields(Stats)} | {
        "tokens_per_pass",
        "tokens_per_second",
        "acceptance",
        "weight_bytes_per_token",
    }


drafts = st.lists(st.tuples(st.sampled_from(["a", "b"]), st.booleans()), max_size=8)


@given(drafts)
def test_drafted_tokens_are_counted_by_drafter_and_in_sum(tokens: list[tuple[str, bool]]) -> None:
    """Each drafter's tally is its own, and they add up."""
    stats = Stats()
    for drafter, accepted in tokens:
        stats.count_draft(drafter, accepted)
    for name in ("a", "b"):
        mine = [accepted for drafter, accepted in tokens if drafter == name]
        assert stats.by_drafter.get(name, [0, 0]) == [len(mine), sum(mine)]
    assert stats.drafted == len(tokens)
    assert stats.accepted == sum(accepted for _, accepted in tokens)


@given(st.lists(drafts, max_size=4))
def test_the_sum_of_several_is_as_if_all_had_been_one(
    requests: list[list[tuple[str, bool]]],
) -> None:
    """Every field is added, and what was added stays as it was."""
    total, together = Stats(), Stats()
    for tokens in requests:
        one = Stats(
            tokens=2, passes=3, prompt_tokens=5, prompt_seconds=0.5, seconds=1.0, weight_bytes=7
        )
        one.draft_seconds, one.pass_seconds = 0.25, 0.5
        for drafter, accepted in tokens:
            one.count_draft(drafter, accepted)
            together.count_draft(drafter, accepted)
        before = one.as_json()
        total.add(one)
        assert one.as_json() == before
    n = len(requests)
    together.tokens, together.passes, together.prompt_tokens = 2 * n, 3 * n, 5 * n
    together.prompt_seconds, together.seconds, together.weight_bytes = 0.5 * n, 1.0 * n, 7 * n
    together.draft_seconds, together.pass_seconds = 0.25 * n, 0.5 * n
    assert total == together


def test_a_sum_does_not_share_its_tallies() -> None:
    """Counting on in one request must not change a total made before."""
    total, one = Stats(), Stats()
    one.count_draft("a", True)
    total.add(one)
    one.count_draft("a", True)
    assert total.by_drafter == {"a": [1, 1]}
