"""What every drafter in the table must do: listed means tested."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drafters.loop import Text, every_outcome, fingerprint, follow, grow, make, write
from forerun.config import RuleName, Sampling
from forerun.core.coins import Coins
from forerun.core.noise import Domain, Noise
from forerun.core.tree import ROOT, Draft
from forerun.core.warp import State, Warp, law
from forerun.drafters.protocol import Drafter, DraftRequest, Guesser, Place
from forerun.drafters.table import DRAFTERS
from forerun.targets.toy import ToyTarget

SPECS = [*DRAFTERS, "lookup,bigram,random", "suffix,eagle"]
WITH_A_LAW = [
    "random",
    "bigram",
    "model",
    "early_exit",
    "eagle",
    "medusa",
    "exit",
]  # the others only ever propose points
V = 5
TARGET = ToyTarget.random(V, 2, 1)
PROMPT = [0, 1, 2, 3, 0, 1, 2, 4, 0, 1]
SAMPLINGS = {
    "greedy": Sampling(),
    "plain": Sampling(temperature=1.0),
    "cool top-k": Sampling(temperature=0.7, top_k=3),
    "top-p, bias": Sampling(temperature=1.0, top_p=0.8, logit_bias={2: 1.5}),
    "min-p, banned": Sampling(temperature=1.3, min_p=0.1, banned_tokens=(1,)),
    "penalties": Sampling(
        temperature=1.0, repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.4
    ),
    "greedy penalties": Sampling(repetition_penalty=1.5, frequency_penalty=0.7),
}
ROUNDS: list[tuple[RuleName, int]] = [
    *(("match", width) for width in (1, 2, 3)),
    ("speculative", 1),
    ("block", 1),
    ("lenient", 1),
    *(("tree", width) for width in (1, 2, 3)),
]

drafters = pytest.mark.parametrize("spec", SPECS)
tokens = st.lists(st.integers(0, V - 1), max_size=24)


def asked(
    sequence: int, text: Sequence[int], *, coins: bool = False, budget: tuple[int, int] = (4, 2)
) -> DraftRequest:
    """Return a request in round len(text), its prompt the first half."""
    rule: RuleName = "tree" if coins else "match"
    made = Text(sequence, text[: (len(text) + 1) // 2], TARGET, rule=rule, budget=budget)
    made.tokens = list(text)
    made.round = len(text)
    return made.request()


def guesses(drafter: Drafter, sequence: int, text: Sequence[int], known: int) -> list[list[object]]:
    """Return the drafts for a text that has grown from `known` tokens, by noise and by coins."""
    grow(drafter, sequence, known, text, TARGET)
    requests = [asked(sequence, text, coins=coins) for coins in (False, True)]
    return [fingerprint(drafter.draft([request])[0], V) for request in requests]


def fresh(spec: str, text: Sequence[int]) -> list[list[object]]:
    """Return the drafts of a drafter that has seen nothing but this text."""
    drafter = make(spec, V)
    follow(drafter, 1, text, TARGET)
    return guesses(drafter, 1, text, len(text))


@drafters
def test_it_is_a_drafter(spec: str) -> None:
    """It has all of the protocol's parts, and the name that the table knows it by."""
    drafter = make(spec, V)
    assert isinstance(drafter, Drafter)
    assert drafter.name == spec


@drafters
@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("length", [0, 1, 5, 40])
@pytest.mark.parametrize("rule", ["match", "tree"])
def test_drafts_stay_within_their_budget(
    spec: str, rule: RuleName, length: int, width: int
) -> None:
    """Drafts are at most `length` deep and `width` wide, of distinct and known tokens."""
    text = Text(1, PROMPT, TARGET, rule=rule, budget=(length, width))
    write(make(spec, V), [text], 30)
    for draft in text.drafts:
        for index, node in enumerate(draft.nodes):
            assert draft.depth(index) <= length
            assert 0 <= node.token < V
            assert node.drafter in spec.split(",")
        for parent in range(ROOT, len(draft)):
            siblings = [draft.nodes[child].token for child in draft.children(parent)]
            assert len(siblings) == len(set(siblings)) <= width
    assert (sum(map(len, text.drafts)) > 0) == (length > 0)
    if width > 1 and length > 0 and spec not in ("scripted", "prediction"):
        assert any(not draft.is_chain for draft in text.drafts)


@drafters
@pytest.mark.parametrize("name", SAMPLINGS)
def test_under_match_the_text_is_plain_decodings(spec: str, name: str) -> None:
    """Whatever it drafts, at any length and width, the text is the one written without it."""
    plain = Text(0, PROMPT, TARGET, sampling=SAMPLINGS[name])
    write(None, [plain], 40)
    for budget in [(1, 1), (5, 1), (5, 3), (40, 2)]:
        text = Text(1, PROMPT, TARGET, sampling=SAMPLINGS[name], budget=budget)
        write(make(spec, V), [text], 40)
        assert text.tokens == plain.tokens
        assert sum(map(len, text.drafts)) > 0


@pytest.mark.parametrize("name", SAMPLINGS)
def test_a_draft_model_equal_to_the_target_is_never_wrong(name: str) -> None:
    """Under match with q = p and no truncation, every guess of the trunk is the target's token."""
    sampling = SAMPLINGS[name].replace(top_k=0, top_p=1.0, min_p=0.0)
    text = Text(1, PROMPT, ToyTarget.random(V, 1, 99), sampling=sampling, budget=(4, 1))
    write(make("model", V), [text], 40)
    assert len(text.drafts) == 8  # 40 tokens, 4 accepted and 1 bonus a round


@drafters
@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("name", SAMPLINGS)
def test_proposals_are_the_laws_tokens_are_drawn_from(spec: str, name: str, width: int) -> None:
    """Given the nodes before it, a node's token is distributed as its proposal says, exactly.

    Over all outcomes of the drafter's coins; and whether there is a next node never depends on
    that node's own token.
    """
    drafter = make(spec, 4)
    target = ToyTarget.random(4, 1, 3)
    prompt = [0, 1, 2, 0, 3, 0, 2, 1, 1, 0]
    follow(drafter, 1, prompt, target)

    def run(coins: Coins) -> Draft:
        text = Text(1, prompt, target, rule="tree", sampling=SAMPLINGS[name], chance=coins)
        text.length, text.width, text.round = (3 if width == 1 else 2), width, 5
        draft = drafter.draft([text.request()])[0]
        purposes = [(a.round, a.purpose) for a in coins.addresses]  # type: ignore[attr-defined]
        assert set(purposes) <= {(5, Domain.DRAFT)}
        assert len(purposes) in (0, len(draft))
        return draft

    following: dict[tuple[object, ...], dict[object, float]] = defaultdict(
        lambda: defaultdict(float)
    )
    stated: dict[tuple[object, ...], set[tuple[float, ...]]] = defaultdict(set)
    for probability, draft in every_outcome(run):
        nodes = draft.nodes
        for i in range(len(nodes) + 1):
            before: tuple[object, ...] = tuple((node.token, node.parent) for node in nodes[:i])
            here = (nodes[i].token, nodes[i].parent) if i < len(nodes) else None
            following[before][here] += probability
            if i < len(nodes):
                stated[before].add(tuple(nodes[i].proposal.dense(4)))
    assert sum(following[()].values()) == pytest.approx(1.0, abs=1e-12)
    for past, cases in following.items():
        assert len({None if case is None else case[1] for case in cases}) == 1  # type: ignore[index]
        if None not in cases:
            (q,) = stated[past]
            drawn = np.zeros(4)
            for case, probability in cases.items():
                drawn[case[0]] += probability / sum(cases.values())  # type: ignore[index]
            np.testing.assert_allclose(drawn, q, atol=1e-12)


@pytest.mark.parametrize("spec", DRAFTERS)
def test_a_law_is_really_drawn_from(spec: str) -> None:
    """Under coins a drafter with a law drafts this or that; the others always the same."""
    drafter = make(spec, V)
    texts = [Text(seed, PROMPT, TARGET, rule="block", chance=seed) for seed in range(20)]
    for text in texts:
        follow(drafter, text.sequence, PROMPT, TARGET)
    drafts = drafter.draft([text.request() for text in texts])
    assert (len({str(fingerprint(draft, V)) for draft in drafts}) > 1) == (spec in WITH_A_LAW)


@drafters
@pytest.mark.parametrize(("rule", "width"), [("speculative", 1), ("block", 1), ("tree", 2)])
def test_under_an_exact_rule_the_text_has_the_targets_law(
    spec: str, rule: RuleName, width: int
) -> None:
    """The law of the first two tokens, over all of chance, is the target's within 1e-12."""
    target = ToyTarget.random(3, 1, 3)
    prompt, sampling = [0, 1, 2, 0], Sampling(temperature=0.8)
    drafter = make(spec, 3)
    sequence = 0

    def run(coins: Coins) -> tuple[int, ...]:
        nonlocal sequence
        sequence += 1
        text = Text(sequence, prompt, target, rule=rule, sampling=sampling, chance=coins)
        text.length, text.width = 2 if width == 1 else 1, width
        write(drafter, [text], 2)
        return tuple(text.output)

    found: dict[tuple[int, ...], float] = defaultdict(float)
    for probability, output in every_outcome(run):
        found[output] += probability
    warp = Warp(sampling, 3)

    def p(text: list[int]) -> np.ndarray:
        return law(warp.scores(target.logits_after(text), State()))

    for x in range(3):
        for y in range(3):
            expected = p(prompt)[x] * p([*prompt, x])[y]
            assert found[x, y] == pytest.approx(expected, abs=1e-12)


@drafters
@pytest.mark.parametrize(("rule", "width"), ROUNDS)
def test_the_same_seeds_give_the_same_drafts(spec: str, rule: RuleName, width: int) -> None:
    """Two drafters of a kind, and one used twice, draft the same, round for round."""
    used = make(spec, V)
    runs = []
    for drafter in (make(spec, V), used, used):
        text = Text(3, PROMPT, TARGET, rule=rule, budget=(4, width))
        write(drafter, [text], 25)
        runs.append((text.tokens, [fingerprint(draft, V) for draft in text.drafts]))
    assert runs[0] == runs[1] == runs[2]


@drafters
@pytest.mark.parametrize(("rule", "width"), ROUNDS)
def test_many_texts_at_once_are_each_as_if_alone(spec: str, rule: RuleName, width: int) -> None:
    """A batch of texts of several lengths is drafted, round for round, as one by one."""

    def texts() -> list[Text]:
        prompts = [PROMPT, PROMPT[3:], [4], PROMPT[::-1]]
        return [
            Text(i, prompt, TARGET, rule=rule, budget=(2 + i, width), chance=i)
            for i, prompt in enumerate(prompts)
        ]

    together, alone = texts(), texts()
    write(make(spec, V), together, 20)
    for text in alone:
        write(make(spec, V), [text], 20)
    for one, other in zip(together, alone, strict=True):
        assert one.tokens == other.tokens
        assert [fingerprint(d, V) for d in one.drafts] == [fingerprint(d, V) for d in other.drafts]


@drafters
@settings(max_examples=25, deadline=None)
@given(text=tokens, left=tokens, right=tokens)
def test_forks_go_their_own_ways(
    spec: str, text: list[int], left: list[int], right: list[int]
) -> None:
    """After a fork each text drafts as if the other had never been, and outlives it."""
    drafter = make(spec, V)
    follow(drafter, 1, text, TARGET)
    drafter.draft([asked(1, text)])
    drafter.fork(1, 2)
    known = len(text)
    assert guesses(drafter, 2, text + right, known) == fresh(spec, text + right)
    assert guesses(drafter, 1, text + left, known) == fresh(spec, text + left)
    drafter.free(1)
    whole = text + right + left
    assert guesses(drafter, 2, whole, known + len(right)) == fresh(spec, whole)


@drafters
@settings(max_examples=25, deadline=None)
@given(text=tokens, data=st.data(), then=tokens)
def test_rolled_back_it_is_as_if_never_there(
    spec: str, text: list[int], data: st.DataObject, then: list[int]
) -> None:
    """Rolled back to any length, it goes on like a drafter opened on that beginning."""
    drafter = make(spec, V)
    follow(drafter, 1, text, TARGET)
    drafter.draft([asked(1, text)])
    length = data.draw(st.integers(0, len(text)))
    drafter.rollback(1, length)
    assert guesses(drafter, 1, text[:length], length) == fresh(spec, text[:length])
    assert guesses(drafter, 1, text[:length] + then, length) == fresh(spec, text[:length] + then)


@drafters
def test_what_is_freed_is_gone(spec: str) -> None:
    """However many texts come and go, no more is kept, and a freed name may be used again."""
    drafter = make(spec, V)
    sizes = []
    for cycle in range(4):
        for sequence in range(3):
            write(drafter, [Text(sequence, PROMPT, TARGET, chance=0)], 12)
        follow(drafter, 50, PROMPT[: cycle + 1], TARGET)
        drafter.fork(50, 51)
        drafter.free(50)
        drafter.free(51)
        sizes.append(size(drafter))
    assert sizes == sizes[:1] * 4


def size(thing: object) -> int:
    """Count what containers hold, through objects of this package and their attributes."""
    if isinstance(thing, Noise):
        return 0  # keeps its last few positions, by design
    if isinstance(thing, dict):
        return len(thing) + sum(map(size, thing.values()))
    if isinstance(thing, list | tuple | set):
        return len(thing) + sum(map(size, thing))
    if type(thing).__module__.startswith("forerun"):
        return size(dict(getattr(thing, "__dict__", {})))
    return 0


@drafters
@pytest.mark.parametrize("coins", [False, True])
@pytest.mark.parametrize("prompt", [[], [2]])
def test_short_prompts_are_no_trouble(spec: str, prompt: list[int], coins: bool) -> None:
    """An empty text and a single token are drafted for, or not, and grow into longer ones."""
    drafter = make(spec, V)
    follow(drafter, 1, prompt, TARGET)
    drafter.draft([asked(1, prompt, coins=coins, budget=(40, 3))])
    assert guesses(drafter, 1, prompt + PROMPT, len(prompt)) == fresh(spec, prompt + PROMPT)


@drafters
def test_masks_leave_it_something_or_nothing(spec: str) -> None:
    """With one token allowed the text is that token, whether or not the drafter knows it."""
    sampling = Sampling(temperature=1.0, allowed_tokens=(3,))
    for rule, width in ROUNDS:
        text = Text(1, [0, 1, 0], TARGET, rule=rule, sampling=sampling, budget=(3, width))
        write(make(spec, V), [text], 9)
        assert text.output == [3] * 9


@pytest.mark.parametrize("spec", DRAFTERS)
@pytest.mark.parametrize("name", SAMPLINGS)
def test_places_hold_what_guesses_promise(spec: str, name: str) -> None:
    """Wherever guesses lead: at most so many, known and distinct tokens, ranked and said to be so.

    Asking changes nothing: the same place has the same guesses, and drafts stay what they were.
    """
    drafter = make(spec, V)
    if not isinstance(drafter, Guesser):
        return
    text = Text(1, PROMPT, TARGET, sampling=SAMPLINGS[name], budget=(4, 2))
    follow(drafter, 1, PROMPT, TARGET)
    for _ in range(12):
        drafter.observe([text.take(drafter.draft([text.request()])[0], 4)])
        before = fingerprint(drafter.draft([text.request()])[0], V)
        walk(spec, drafter.place(text.request()), 3)
        assert fingerprint(drafter.draft([text.request()])[0], V) == before


def walk(spec: str, place: Place, depth: int) -> None:
    """Check all places below this one."""
    for most in (1, 3):
        guesses = list(place.guesses(most))
        assert guesses == list(place.guesses(most))
        assert [guess.rank for guess in guesses] == list(range(len(guesses)))
        assert len({guess.token for guess in guesses}) == len(guesses) <= most
        for guess in guesses:
            assert guess.drafter == spec
            assert 0 <= guess.token < V
            assert 0.0 <= guess.confidence <= 1.0
    for token in range(V) if depth else ():
        walk(spec, place.after(token), depth - 1)


def test_nothing_to_draft_is_an_empty_answer() -> None:
    """No requests, no drafts, no outcomes: every drafter takes it."""
    for spec in SPECS:
        drafter = make(spec, V)
        assert drafter.draft([]) == []
        drafter.observe([])
