"""What an encoder has read is searched as if it stood before the text, and never runs into it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drafters.loop import Text
from forerun.drafters.protocol import Drafter, DraftRequest, Guesser
from forerun.drafters.store import Store
from forerun.drafters.table import DrafterKit, make_drafter
from forerun.targets.toy import ToyTarget

SIZE = 20
TARGET = ToyTarget.random(SIZE, 1, 1)
SOURCE = (10, 11, 12, 13, 14, 15, 11, 16)
BOTH = ("lookup", "suffix")


def made(spec: str, store: Store | None = None) -> Drafter:
    drafter = make_drafter(spec, DrafterKit(SIZE, lambda: TARGET, store=store))
    assert drafter is not None
    return drafter


def asked(text: Sequence[int], source: Sequence[int] = SOURCE, width: int = 1) -> DraftRequest:
    request = Text(1, [0], TARGET, budget=(4, width)).request()
    return replace(request, tokens=tuple(text), source=tuple(source))


def drafted(drafter: Drafter, request: DraftRequest) -> list[int]:
    """Return the tokens of a draft, those of one depth behind each other."""
    (draft,) = drafter.draft([request])
    return [node.token for node in draft.nodes]


def guessed(drafter: Drafter, request: DraftRequest) -> list[int]:
    """Return the first guesses, followed to where there are none."""
    assert isinstance(drafter, Guesser)
    place, tokens = drafter.place(request), []
    while len(tokens) < 6 and (guesses := place.guesses(1)):
        tokens.append(guesses[0].token)
        place = place.after(tokens[-1])
    return tokens


@pytest.mark.parametrize("spec", BOTH)
def test_what_was_read_is_copied(spec: str) -> None:
    """From where the text's end stands in it, the longest match first, to its last token."""
    drafter = made(spec)
    drafter.open(1, [0])
    assert drafted(drafter, asked([0], ())) == []
    assert drafted(drafter, asked([0, 11])) in ([12, 13, 14, 15], [16])
    assert drafted(drafter, asked([0, 11, 12])) == [13, 14, 15, 11]
    assert guessed(drafter, asked([0, 11, 12]))[:4] == [13, 14, 15, 11]
    assert drafted(drafter, asked([0, 11, 12, 15])) == [11, 16]
    assert sorted(drafted(drafter, asked([0, 11, 12, 15, 11], width=2)))[-1] == 16


@pytest.mark.parametrize("spec", BOTH)
def test_nothing_follows_its_end(spec: str) -> None:
    """Neither the border nor the text's beginning, in drafts and in guesses."""
    drafter = made(spec)
    drafter.open(1, [0, 16])
    assert drafted(drafter, asked([0, 16])) == []
    assert guessed(drafter, asked([0, 16])) == []
    drafter.free(1)
    drafter.open(1, [0, 15, 11, 16, 0, 15, 11, 16])
    assert drafted(drafter, asked([0, 15, 11, 16, 0, 15, 11, 16]))[0] == 0


@given(
    source=st.lists(st.integers(0, 4), min_size=1, max_size=12),
    text=st.lists(st.integers(0, 4), min_size=2, max_size=12),
    kept=st.integers(1, 12),
)
@settings(max_examples=60, deadline=None)
def test_going_back_and_forking_keep_it(source: list[int], text: list[int], kept: int) -> None:
    """A text that was longer, or a fork of it, is guessed like one that was always so."""
    kept = min(kept, len(text))
    for spec in BOTH:
        drafter, anew = made(spec), made(spec)
        drafter.open(1, text[:1])
        drafter.draft([asked(text, source, 3)])
        drafter.fork(1, 2)
        anew.open(1, text[:kept])
        expected = drafted(anew, asked(text[:kept], source, 3))
        assert -1 not in expected
        for name in (1, 2):
            drafter.rollback(name, kept)
            request = replace(asked(text[:kept], source, 3), sequence=name)
            assert drafted(drafter, request) == expected
            assert -1 not in guessed(drafter, request)


def test_what_was_read_is_left_to_nobody() -> None:
    """A text alone goes into the store."""
    store = Store(1 << 12)
    drafter = made("suffix", store)
    drafter.open(1, [0])
    drafter.draft([replace(asked([0, 11, 12, 3, 4]), tenant="one")])
    drafter.free(1)
    assert list(store.texts("one")) == [[0, 11, 12, 3, 4]]
