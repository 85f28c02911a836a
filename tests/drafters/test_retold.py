"""A draft model with a tokenizer of its own: what it writes, in the target's tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from forerun.config import Sampling
from forerun.core.noise import Noise
from forerun.core.warp import Warp
from forerun.drafters.protocol import DraftRequest
from forerun.drafters.retold import Border, Retold
from forerun.errors import EngineError
from forerun.targets.protocol import Row, Scores
from forerun.targets.toy import ToyTarget

LETTERS = "abcdefgh"
PAIRS = ("ab", "cd", "ef", "gh", "ha", "c", "!")


class Alphabet(ToyTarget):
    """After each pair of letters the next one is the likeliest; after the last but one, the end."""

    rows = 0

    def score(
        self,
        rows: Sequence[Row],
        *,
        logits: Sequence[int] | None = None,
        layers: Sequence[int] = (),
        until: int | None = None,
    ) -> Scores:
        """Score by the token alone."""
        super().score(rows, logits=logits)
        self.rows += len(rows)
        wanted = range(len(rows)) if logits is None else logits
        found = np.zeros((len(wanted), len(PAIRS)), dtype=np.float32)
        for at, index in enumerate(wanted):
            found[at, (rows[index].token + 1) % 4 if rows[index].token < 4 else 6] = 1.0
        return Scores(found)


def read(text: str) -> list[int]:
    """Pairs, the longest first, as a tokenizer cuts."""
    tokens = []
    while text:
        token = next((i for i, pair in enumerate(PAIRS) if text.startswith(pair)), None)
        if token is None:
            text = text[1:]
            continue
        tokens.append(token)
        text = text[len(PAIRS[token]) :]
    return tokens


BORDER = Border(
    tell=lambda tokens: "".join(LETTERS[token] for token in tokens),
    read=read,
    retell=lambda tokens: "".join(PAIRS[token] for token in tokens),
    write=lambda text: [LETTERS.index(letter) for letter in text if letter in LETTERS],
    ends=frozenset({6}),
)


def asked(sequence: int, text: str, length: int) -> DraftRequest:
    warp = Warp(Sampling(temperature=0), len(LETTERS))
    tokens = [LETTERS.index(letter) for letter in text]
    noise = Noise(1, 0)
    return DraftRequest(sequence, tokens, 1, length, 1, warp, warp.start(tokens), 0, noise)


def drafted(drafter: Retold, *texts: tuple[int, str, int]) -> list[str]:
    drafts = drafter.draft([asked(*text) for text in texts])
    return ["".join(LETTERS[node.token] for node in draft.nodes) for draft in drafts]


def made() -> tuple[Retold, Alphabet]:
    model = Alphabet.random(len(PAIRS), 1, 1)
    return Retold(model, BORDER), model


def test_what_is_written_is_read_in_the_targets_tokens() -> None:
    """Pairs become letters, up to the length that was asked for; of several texts each its own."""
    drafter, model = made()
    for name in range(3):
        drafter.open(name, [])
    assert drafted(drafter, (0, "ab", 3), (1, "abcdef", 2), (2, "ghab", 5)) == [
        "cde",
        "gh",
        "cdefg",
    ]
    drafter.free(1)
    with pytest.raises(EngineError, match="does not follow"):
        drafter.free(1)
    with pytest.raises(EngineError, match="already follows"):
        drafter.open(0, [])
    drafter.free(0)
    drafter.free(2)
    assert not model._sequences


def test_only_what_is_new_is_scored() -> None:
    """What came true is kept; what did not is rolled back, and so is a text that was cut."""
    drafter, model = made()
    drafter.open(0, [])
    drafted(drafter, (0, "ababab", 2))
    before = model.rows
    assert drafted(drafter, (0, "abababcd", 2)) == ["ef"]
    assert model.rows - before <= 2
    drafter.rollback(0, 2)
    assert drafted(drafter, (0, "ab", 2)) == ["cd"]
    drafter.fork(0, 1)
    assert drafted(drafter, (1, "abef", 2), (0, "abgh", 2)) == ["gh", "ab"]


def test_an_end_and_a_full_context_end_the_draft() -> None:
    """The draft model's own end is no token of the target's."""
    drafter, model = made()
    drafter.open(0, [])
    assert drafted(drafter, (0, "ha", 4)) == [""]
    assert drafted(drafter, (0, "ab" * (model.context_length + 1), 4)) == [""]
    assert drafted(drafter, (0, "ab", 1)) == ["c"]
