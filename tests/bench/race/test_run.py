"""The race over fake sides: who writes what, in which order, and what is noticed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from bench.race.fakes import FakeSide
from forerun.api import LanguageModel, load
from forerun.bench.end import End
from forerun.bench.prompts import Prompt
from forerun.bench.race import run
from forerun.bench.race.protocol import Job
from forerun.bench.race.run import Difference, LeftOut, Plan, Race, seed_of
from models.tiny_gguf import Tiny

TEMPLATE = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}"
PROMPTS = [Prompt(str(i), "t", ("one", "two")[: 1 + i % 2], "one" * (i % 2)) for i in range(8)]
PLAN = Plan(max_tokens=5, temperature=0.5, seed=3, repeats=3)


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    metadata = {"tokenizer.chat_template": TEMPLATE}
    return load(Tiny(metadata=metadata).write(tmp_path_factory.mktemp("race") / "tiny.gguf"))


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_SETTLE", 0)


def by_seed(job: Job) -> list[int]:
    """Five tokens that follow from the seed."""
    return [10 + (job.seed >> shift) % 200 for shift in range(5)]


def race(lm: LanguageModel, *sides: FakeSide, plan: Plan = PLAN, **more: Any) -> Race:
    """A race that is over."""
    one = Race(lm, sides, plan, **more)
    one.run(PROMPTS)
    return one


def test_all_sides_write_all_turns_in_every_repeat(lm: LanguageModel) -> None:
    """The same prompt and seed for all, after a short text each that is not kept."""
    sides = [FakeSide("plain", by_seed), FakeSide("auto", by_seed)]
    one = race(lm, *sides)
    assert len(one.samples) == 2 * 3 * (4 + 2 * 4)
    assert (one.differences, one.errors, one.left_out) == ([], {}, [])
    warm, *jobs = sides[0].jobs
    assert sides[1].jobs == [warm, *jobs]
    assert warm.max_tokens <= 16
    assert {job.temperature for job in jobs} == {0.5}
    assert [job.seed for job in jobs[:3]] == [
        seed_of(3, q, t) for q, t in (("0", 0), ("1", 0), ("1", 1))
    ]
    assert jobs[:12] == jobs[12:24] == jobs[24:]
    assert [job.prediction for job in jobs[:3]] == ["", "one", None]


def test_a_later_turn_holds_plain_s_answers(lm: LanguageModel) -> None:
    """Whoever else answered otherwise reads the same conversation."""
    peer = FakeSide("peer", lambda job: [7], is_ours=False)
    race(lm, FakeSide("auto", by_seed), peer, FakeSide("plain", by_seed))
    seed = seed_of(3, "1", 0)
    answer = lm.model.tokenizer.decode(by_seed(Job((), 5, 0, seed)))
    text = lm.model.tokenizer.decode(peer.jobs[3].tokens)
    assert text == f"u:one;a:{answer};u:two;"


def test_a_conversation_stands_in_its_order(lm: LanguageModel) -> None:
    """The third turn reads both answers, each behind its question."""
    plain = FakeSide("plain", lambda job: lm.model.tokenizer.encode(f"yes{len(job.tokens)}"))
    Race(lm, [plain], PLAN._replace(repeats=1)).run([Prompt("q", "t", ("one", "two", "three"))])
    lengths = [len(job.tokens) for job in plain.jobs[1:]]
    text = lm.model.tokenizer.decode(plain.jobs[3].tokens)
    assert text == f"u:one;a:yes{lengths[0]};u:two;a:yes{lengths[1]};u:three;"


def test_the_order_of_sides_is_shuffled_and_repeatable(lm: LanguageModel) -> None:
    """Each is first about as often as the others; the same seed gives the same order."""
    sides = [FakeSide(name, by_seed) for name in ("plain", "auto", "suffix")]
    one, again = race(lm, *sides), race(lm, *sides)
    first = Counter(s.side for s in one.samples if s.place == 0)
    assert set(first) == {"plain", "auto", "suffix"}
    assert min(first.values()) >= 6
    assert [s.side for s in one.samples] == [s.side for s in again.samples]
    other = race(lm, *sides, plan=PLAN._replace(seed=4))
    assert [s.side for s in one.samples] != [s.side for s in other.samples]


def test_a_side_of_ours_that_writes_otherwise_is_told(lm: LanguageModel) -> None:
    """By prompt, turn, repeat and the first token; a peer's text is its own affair."""

    def wrong(job: Job) -> list[int]:
        right = by_seed(job)
        return [*right[:2], 0, *right[3:]] if job.seed == seed_of(3, "3", 1) else right

    peer = FakeSide("peer", lambda job: [7], is_ours=False)
    one = race(lm, FakeSide("auto", wrong), FakeSide("plain", by_seed), peer)
    assert one.differences == [Difference("auto", "3", 1, repeat, 2) for repeat in range(3)]


def test_plain_that_changes_between_repeats_is_told(lm: LanguageModel) -> None:
    """And a text that ends too early differs where it ends."""
    count = iter(range(10_000))

    def tiring(job: Job) -> list[int]:
        return by_seed(job)[: 5 if next(count) < 30 else 4]

    one = race(lm, FakeSide("plain", tiring))
    assert {(d.side, d.repeat, d.place) for d in one.differences} == {("plain", 2, 4)}
    assert len(one.differences) == 36 - 29


def test_a_peer_that_fails_is_given_up(lm: LanguageModel) -> None:
    """What it wrote stays, the others go on, and the report can say why."""
    count = iter(range(10_000))

    def failing(job: Job) -> list[int]:
        if next(count) == 4:
            raise RuntimeError("out of ideas")
        return [7]

    plain = FakeSide("plain", by_seed)
    one = race(lm, plain, FakeSide("peer", failing, is_ours=False))
    assert one.errors == {"peer": "RuntimeError: out of ideas"}
    assert sum(s.side == "peer" for s in one.samples) == 3
    assert sum(s.side == "plain" for s in one.samples) == 36


def test_our_own_errors_are_raised(lm: LanguageModel) -> None:
    """A bug of ours is no remark in a report."""

    def failing(job: Job) -> list[int]:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        race(lm, FakeSide("plain", failing))


def test_an_end_keeps_what_there_is(lm: LanguageModel) -> None:
    """Each sample was heard as it came, and nothing is written after the end."""
    heard: list[Any] = []
    one = race(lm, FakeSide("plain", by_seed), hear=heard.append, end=End(lambda: len(heard) >= 5))
    assert one.samples == heard
    assert len(heard) == 5


def test_a_prompt_without_room_is_left_out(lm: LanguageModel) -> None:
    """For all sides and once in the report; earlier turns stay."""
    long = Prompt("long", "t", ("short", "word " * 200, "never"))
    one = Race(lm, [FakeSide("plain", by_seed)], PLAN)
    one.run([long])
    assert [s.turn for s in one.samples] == [0, 0, 0]
    (left,) = one.left_out
    assert isinstance(left, LeftOut)
    assert (left.question_id, left.turn) == ("long", 1)
    assert left.tokens > 128 - 5


def test_a_model_without_template_reads_the_texts(tmp_path: Path) -> None:
    """In a row, with the answers between."""
    bare = load(Tiny().write(tmp_path / "tiny.gguf"))
    plain = FakeSide("plain", lambda job: bare.model.tokenizer.encode("yes"))
    one = Race(bare, [plain], PLAN)
    one.run([PROMPTS[1]])
    assert bare.model.tokenizer.decode(plain.jobs[2].tokens) == "one\n\nyes\n\ntwo"


def test_the_warm_up_reads_little(lm: LanguageModel) -> None:
    """Of a prompt as long as the context, too, which is left out afterwards."""
    plain = FakeSide("plain", by_seed)
    one = Race(lm, [plain], PLAN)
    one.run([Prompt("q", "t", ("one " * 500,)), *PROMPTS[:1]])
    assert 0 < len(plain.jobs[0].tokens) <= 128
    assert [left.question_id for left in one.left_out] == ["q"]


def test_progress_tells_how_much_there_is(lm: LanguageModel) -> None:
    """Texts of all sides, turns and repeats, and how long they take: first by the warm-up."""
    told: list[tuple[str, float]] = []
    sides = [FakeSide(name, by_seed) for name in ("plain", "auto")]
    one = Race(lm, sides, PLAN._replace(max_tokens=100))
    one.run(PROMPTS, progress=lambda part, share: told.append((part, share)))
    assert [part for part, _ in told[:2]] == ["plain warms up", "auto warms up"]
    # 0.1 s and 100 tokens of 1 s / 4: 25.1 s, for each of 72 texts.
    assert told[2] == ("0 of 72 texts, about 30 min left, t 0, repeat 1", 0.0)
    assert told[3][0].startswith("2 of 72 texts, about ")
    assert told[3][1] == 2 / 72
    assert told[-1][0].startswith("68 of 72 texts, about 1 s left, t 7, repeat 3")


@pytest.mark.parametrize("noted", [True, False])
def test_a_text_is_not_waited_for_at_the_end(lm: LanguageModel, noted: bool) -> None:
    """A long prompt under way is given up; Ctrl-C that nobody noted goes its own way."""
    inside: list[str] = []

    @contextmanager
    def impatient() -> Iterator[None]:
        inside.append("in")
        yield
        inside.append("out")

    def pressed(job: Job) -> list[int]:
        if len(plain.jobs) == 4:
            raise KeyboardInterrupt
        return by_seed(job)

    plain = FakeSide("plain", pressed)
    one = Race(lm, [plain], PLAN, end=End(lambda: noted and len(plain.jobs) == 4, impatient))
    with nullcontext() if noted else pytest.raises(KeyboardInterrupt):
        one.run(PROMPTS)
    assert len(one.samples) == 2  # the first job is the warm-up
    assert len(plain.jobs) == 4
    assert inside == ["in", "out"] * 3 + ["in"]
