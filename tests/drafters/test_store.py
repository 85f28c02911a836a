"""Stores: what is found is what plain search finds, tenants are strangers, memory is bounded."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drafters.loop import Text, fingerprint, make, write
from forerun.config import Sampling
from forerun.drafters.automaton import discount
from forerun.drafters.protocol import Guesser
from forerun.drafters.recycle import TENANTS, Recycle
from forerun.drafters.shelf import DEPTH, LARGEST_TOKEN, Batch, Shelf, backwards
from forerun.drafters.store import Store
from forerun.drafters.table import DrafterKit
from forerun.targets.toy import ToyTarget

V = 8
TARGET = ToyTarget.random(V, 2, 1)
PROMPT = [0, 1, 2, 3, 0, 1, 2, 4, 0, 1]
MOST = 100_000

text = st.lists(st.integers(0, 3), min_size=1, max_size=40)
texts = st.lists(text, min_size=1, max_size=8)


def searched(known: list[list[int]], end: list[int]) -> list[tuple[int, int]]:
    """Return how many tokens before each place match a text's end, and what follows there."""
    found = []
    for one in known:
        for place in range(1, len(one)):
            sizes = range(1, min(place, len(end), DEPTH) + 1)
            matched = [n for n in sizes if one[place - n : place] == end[-n:]]
            if matched and matched[-1] >= 2:
                found.append((matched[-1], one[place]))
    return sorted(found, reverse=True)


def seen(copies: list[tuple[str, int, int]]) -> list[tuple[int, int]]:
    return [(matched, ord(where[at]) - 1) for where, at, matched in copies]


@settings(max_examples=200, deadline=None)
@given(texts, st.lists(st.integers(0, 3), max_size=20), st.integers(1, 6))
def test_a_batch_finds_what_plain_search_finds(
    known: list[list[int]], end: list[int], most: int
) -> None:
    """All places with two tokens or more in common, across no text's border; the longest first."""
    batch = Batch.of(known)
    assert list(batch.texts()) == known
    found = batch.find(backwards(end), 10**6)
    assert sorted(seen(found), reverse=True) == searched(known, end)
    some = batch.find(backwards(end), most)
    assert [m for m, _ in seen(some)] == [m for m, _ in searched(known, end)][:most]


@settings(max_examples=100, deadline=None)
@given(texts, st.lists(st.integers(0, 3), max_size=20))
def test_a_shelf_is_one_batch_in_parts(known: list[list[int]], end: list[int]) -> None:
    """However texts came to lie in batches, they are all found, and read in the order written."""
    shelf = Shelf(600)
    for one in known:
        shelf.add([one])
    assert list(shelf.texts()) == known
    assert sorted(seen(shelf.find(backwards(end), 10**6)), reverse=True) == searched(known, end)
    together = Shelf(600)
    together.add(known)
    assert list(together.texts()) == known


def test_batches_stay_few() -> None:
    """A thousand texts lie in a handful of batches, none larger than it may be."""
    shelf = Shelf(20_000)
    for i in range(1000):
        shelf.add([[i % 50 + j for j in range(60)]])
    assert len(shelf.batches) <= 8
    assert max(map(len, shelf.batches)) <= 20_000


@pytest.mark.parametrize("token", [0xD7FE, 0xD800, 0xDFFF, 65_535, 151_000, LARGEST_TOKEN])
def test_any_token_can_be_kept(token: int) -> None:
    """Those too whose characters stand for nothing."""
    batch = Batch.of([[1, 2, token, 3], [token, token]])
    assert list(batch.texts()) == [[1, 2, token, 3], [token, token]]
    assert seen(batch.find(backwards([1, 2]), 9)) == [(2, token)]
    assert seen(batch.find(backwards([2, token]), 9)) == [(2, 3)]


def test_the_oldest_texts_of_the_largest_tenant_go_first() -> None:
    """The bound holds after every text; who holds little loses nothing."""
    store = Store(8000)
    store.learn("small", [[7, 7, 7, 7]])
    for i in range(200):
        store.learn("large", [[i] * 100])
        assert len(store) <= 8000
    assert list(store.texts("small")) == [[7, 7, 7, 7]]
    kept = [one[0] for one in store.texts("large")]
    assert kept == list(range(200 - len(kept), 200))
    assert 60 <= len(kept) < 100
    assert store.tenants == ["small", "large"]


def test_a_text_longer_than_the_store_is_kept_in_part() -> None:
    """Its end stays, and is found."""
    store = Store(4000)
    store.learn("", [range(10_000)])
    assert 0 < len(store) <= 4000
    assert seen(store.find("", backwards([9996, 9997]), 9)) == [(2, 9998)]
    assert store.find("", backwards([5, 6]), 9) == []


def plainly(most: int, texts: list[tuple[str, int, int]]) -> dict[str, list[list[int]]]:
    """What a store keeps, reckoned by looking at all tenants each time."""
    store = Store(most)
    for tenant, token, length in texts:
        if tenant not in store._shelves:
            store._shelves[tenant] = Shelf(store._largest)
        room = store._largest - 2
        text = [token] * length
        store._shelves[tenant].add([text[i : i + room] for i in range(0, length, room)][:1])
        while sum(map(len, store._shelves.values())) > most:
            name, largest = max(store._shelves.items(), key=lambda pair: len(pair[1]))
            largest.drop_oldest()
            if not largest.batches:
                del store._shelves[name]
    return {tenant: list(store.texts(tenant)) for tenant in store.tenants}


@settings(max_examples=60, deadline=None)
@given(
    st.integers(128, 2000),
    st.lists(
        st.tuples(st.sampled_from("abcdef"), st.integers(0, 9), st.integers(3, 126)), max_size=80
    ),
)
def test_the_running_totals_are_the_totals(most: int, texts: list[tuple[str, int, int]]) -> None:
    """Who loses texts, and which, is what a look at all of them says, whatever was learned."""
    store = Store(most)
    for tenant, token, length in texts:
        store.learn(tenant, [[token] * length])
        whole = [len(batch) for shelf in store._shelves.values() for batch in shelf.batches]
        assert len(store) == sum(whole) <= most
    assert {tenant: list(store.texts(tenant)) for tenant in store.tenants} == plainly(most, texts)


def test_a_text_costs_no_look_at_all_tenants(monkeypatch: pytest.MonkeyPatch) -> None:
    """With thousands of them, also where the store is full."""
    store = Store(2000 * 128)
    for i in range(2000):
        store.learn(str(i), [[i, i, i]])
    looks = 0
    real = Shelf.__len__

    def counted(self: Shelf) -> int:
        nonlocal looks
        looks += 1
        return real(self)

    monkeypatch.setattr(Shelf, "__len__", counted)
    for i in range(2000, 2100):
        store.learn(str(i), [[i, i, i]])
    assert len(store.tenants) == 2000
    assert looks < 100 * 200  # the heap's own upkeep included, far from 2000 a text


def test_a_very_long_text_in_a_small_store_is_cut_before_it_is_sorted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No more is looked at than there is room for."""
    made: list[int] = []
    real = Batch.of
    monkeypatch.setattr(Batch, "of", lambda texts: made.append(len(texts)) or real(texts))
    store = Store(300)
    store.learn("", [range(100_000)])
    assert len(made) <= 3
    assert list(store.texts(""))[-1][-1] == 99_999


@pytest.mark.parametrize("most", [0, 1, 100, 127])
def test_a_store_without_room_keeps_nothing(most: int) -> None:
    """And says so by being empty."""
    store = Store(most)
    store.learn("", [[1, 2, 3, 4, 5]])
    assert len(store) == 0
    assert store.tenants == []


def written(spec: str, store: Store, tenant: str, **options: Any) -> Text:
    """Write a text for a tenant, with a drafter of its own that uses the store."""
    one = Text(1, PROMPT, TARGET, budget=(4, 2), **options)
    one.tenant = tenant
    write(make(spec, V, store=store), [one], 30)
    return one


def learned(drafter: Any, store: Store) -> list[object]:
    """Return all that is kept of texts, by tenant."""
    rows = drafter._shared if isinstance(drafter, Recycle) else {}
    return [
        {t: list(store.texts(t)) for t in store.tenants},
        {t: len(r.by_two) for t, r in rows.items()},
    ]


def test_a_text_is_learned_when_it_is_freed_and_as_it_was_written() -> None:
    """Not before, and nothing that was only guessed; prompt and output, token for token."""
    store = Store(MOST)
    drafter = make("suffix", V, store=store)
    one = Text(1, PROMPT, TARGET, budget=(4, 2))
    drafter.open(1, PROMPT)
    for _ in range(6):
        drafter.observe([one.take(drafter.draft([one.request()])[0], 9)])
        assert len(store) == 0
    drafter.free(1)
    assert list(store.texts("")) == [one.tokens]


def test_a_text_that_nothing_was_asked_about_is_nobodys() -> None:
    """Its tenant is not known, so it is not kept."""
    store = Store(MOST)
    drafter = make("suffix", V, store=store)
    drafter.open(1, PROMPT)
    drafter.free(1)
    assert store.tenants == []


@pytest.mark.parametrize("spec", ["suffix", "recycle"])
def test_another_tenants_texts_change_nothing(spec: str) -> None:
    """Whatever A had written, what B is guessed, token, rank and confidence, is as if A were not.

    And A's own later texts do gain, or this test would pass with no store at all.
    """
    alone, shared = Store(MOST), Store(MOST)
    quiet, busy = (make(spec, V, store=store) for store in (alone, shared))
    assert isinstance(quiet, Guesser)
    assert isinstance(busy, Guesser)

    def texts_of(tenant: str, seed: int) -> list[Text]:
        one = Text(seed, PROMPT, TARGET, budget=(4, 2), chance=seed)
        one.tenant = tenant
        return [one]

    for seed in range(5):
        write(busy, texts_of("A", seed), 25)
    differs = False
    for tenant in ("B", "", "a", "A"):
        pairs = [texts_of(tenant, 7)[0] for _ in range(2)]
        for drafter, one in zip((quiet, busy), pairs, strict=True):
            drafter.open(one.sequence, one.tokens)
        for _ in range(10):
            found = [
                (list(place.guesses(8)), [list(place.after(t).guesses(8)) for t in range(V)])
                for place in (quiet.place(pairs[0].request()), busy.place(pairs[1].request()))
            ]
            if tenant != "A":
                assert found[0] == found[1]
            differs = differs or found[0] != found[1]
            for drafter, one in zip((quiet, busy), pairs, strict=True):
                drafter.observe([one.take(drafter.draft([one.request()])[0], 3)])
        for drafter, one in zip((quiet, busy), pairs, strict=True):
            drafter.free(one.sequence)
    assert differs


@pytest.mark.parametrize("spec", ["suffix", "recycle"])
def test_forks_keep_their_tenant(spec: str) -> None:
    """What a fork wrote is its tenant's, too."""
    store = Store(MOST)
    drafter = make(spec, V, store=store)
    one = Text(1, PROMPT, TARGET, budget=(2, 1))
    one.tenant = "A"
    drafter.open(1, PROMPT)
    drafter.observe([one.take(drafter.draft([one.request()])[0], 3)])
    drafter.fork(1, 2)
    drafter.free(2)
    kept = learned(drafter, store)
    assert kept[0 if spec == "suffix" else 1].keys() == {"A"}  # type: ignore[attr-defined]


@pytest.mark.parametrize("spec", ["suffix", "recycle", "suffix,recycle,bigram,prediction"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_with_a_warm_store_the_text_is_plain_decodings(spec: str, temperature: float) -> None:
    """And is guessed better: the second time it takes fewer rounds."""
    sampling = Sampling(temperature=temperature)
    plain = Text(0, PROMPT, TARGET, sampling=sampling)
    write(None, [plain], 30)
    drafter = make(spec, V, store=Store(MOST))
    rounds = []
    for _ in range(2):
        one = Text(1, PROMPT, TARGET, sampling=sampling, budget=(4, 2))
        write(drafter, [one], 30)
        assert one.tokens == plain.tokens
        rounds.append(one.round)
    assert rounds[1] < rounds[0]


@pytest.mark.parametrize("spec", ["suffix", "recycle"])
def test_where_coins_are_drawn_other_texts_are_not_asked(spec: str) -> None:
    """So a seed gives the same text, whatever was written before it."""
    drafter = make(spec, V, store=Store(MOST))
    runs = []
    for _ in range(2):
        one = Text(1, PROMPT, TARGET, rule="tree", budget=(4, 2))
        write(drafter, [one], 25)
        runs.append((one.tokens, [fingerprint(draft, V) for draft in one.drafts]))
    assert runs[0] == runs[1]
    assert isinstance(drafter, Guesser)
    drafter.open(2, PROMPT)
    asked = Text(2, PROMPT, TARGET, rule="tree").request()
    cold = make(spec, V)
    assert isinstance(cold, Guesser)
    cold.open(2, PROMPT)
    assert list(drafter.place(asked).guesses(8)) == list(cold.place(asked).guesses(8))


def test_the_longer_match_has_the_first_word() -> None:
    """The text's own two tokens against three of the store's, and the other way round."""
    store = Store(MOST)
    store.learn("", [[1, 2, 3, 6, 0]])
    drafter = make("suffix", V, store=store)
    assert isinstance(drafter, Guesser)
    for sequence, (tokens, first, second) in enumerate(
        [([2, 3, 5, 1, 2, 3], 6, 5), ([0, 1, 2, 3, 5, 0, 1, 2, 3], 5, 6)]
    ):
        one = Text(sequence, tokens, TARGET, sampling=Sampling())
        drafter.open(sequence, tokens)
        guesses = drafter.place(one.request()).guesses(8)
        assert [guess.token for guess in guesses[:2]] == [first, second]
        own = 1.0 - discount(2) if first == 6 else 1.0 - discount(4)
        assert guesses[0].confidence == pytest.approx(own)
        assert sum(guess.confidence for guess in guesses) <= 1.0
        hot = drafter.place(Text(sequence, tokens, TARGET).request()).guesses(8)
        assert [guess.token for guess in hot] == [guess.token for guess in guesses]
        assert hot[0].confidence == pytest.approx(own / 3.5)  # sampled text repeats itself less


def test_what_most_texts_went_on_with_comes_first() -> None:
    """By share; a place that matches less counts less; where a text ended, nothing is guessed."""
    store = Store(MOST)
    store.learn("", [[1, 2, 3, 4], [1, 2, 3, 5], [0, 1, 2, 3, 5], [7, 2, 3, 6], [1, 2, 3]])
    drafter = make("suffix", V, store=store)
    assert isinstance(drafter, Guesser)
    drafter.open(1, [1, 2, 3])
    place = drafter.place(Text(1, [1, 2, 3], TARGET).request())
    assert [guess.token for guess in place.guesses(8)] == [5, 4, 6]
    assert list(place.after(4).guesses(8)) == []


def test_the_corpus_is_everybodys() -> None:
    """It is asked for every tenant, is no tenant's, and stays when texts are forgotten."""
    store = Store(MOST)
    store.corpus.add([[1, 2, 3, 6, 0]])
    store.learn("A", [[1, 2, 3, 4, 0]])
    store.forget()
    assert store.tenants == []
    for tenant in ("", "A"):
        assert seen(store.find(tenant, backwards([1, 2, 3]), 9)) == [(3, 6)]


def test_few_tenants_rows_are_kept_and_few_of_each() -> None:
    """Those that wrote last; of each the rows that were learned last."""
    drafter = Recycle(DrafterKit(V, lambda: TARGET, store=Store(128 * 5)))
    for number in range(TENANTS + 3):
        one = Text(1, PROMPT, TARGET, budget=(2, 1))
        one.tenant = str(number)
        write(drafter, [one], 20)
    assert list(drafter._shared) == [str(number) for number in range(3, TENANTS + 3)]
    for rows in drafter._shared.values():
        assert len(rows.by_one) == len(rows.by_two) == 5
