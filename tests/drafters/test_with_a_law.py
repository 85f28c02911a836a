"""Bigram's counts, and the model drafter's own sequences: how few passes, and never out of step."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drafters.loop import Text, fingerprint, make, write
from forerun.core.tree import Draft
from forerun.drafters.bigram import Successors
from forerun.drafters.model import Model
from forerun.drafters.table import DrafterKit, make_drafter
from forerun.errors import ModelNotFoundError, VocabularyError
from forerun.targets.protocol import Row, Scores, Target
from forerun.targets.toy import ToyTarget

V = 6
TARGET = ToyTarget.random(V, 1, 1)
PROMPT = [0, 3, 1, 2, 5]


class Counting(ToyTarget):
    """A toy that notes the rows of each pass."""

    passes: list[list[Row]]

    def score(
        self,
        rows: Sequence[Row],
        *,
        logits: Sequence[int] | None = None,
        layers: Sequence[int] = (),
        until: int | None = None,
    ) -> Scores:
        """Note the rows, then score them."""
        self.passes.append(list(rows))
        return super().score(rows, logits=logits, layers=layers, until=until)


def counting(context: int = 4096) -> Counting:
    model = Counting(ToyTarget.random(V, 1, 99)._table, context)
    model.passes = []
    return model


@given(st.lists(st.integers(0, 3), max_size=20), st.data())
def test_successors_are_counted_pairs(text: list[int], data: st.DataObject) -> None:
    """Pushed, and cut to any length, counts are those of the text's neighbours; no key is left."""
    length = data.draw(st.integers(0, len(text)))
    memory = Successors()
    for token in text:
        memory.push(token)
    twin = memory.copy()
    memory.cut(length)
    for one, tokens in ((memory, text[:length]), (twin, text)):
        assert len(one) == len(tokens)
        pairs = list(itertools.pairwise(tokens))
        for token in range(4):
            assert one.after(token) == Counter(b for a, b in pairs if a == token)
        assert set(one._counts) == {a for a, _ in pairs}


def test_bigrams_law_is_its_counts() -> None:
    """After 0, followed by 1 twice and by 2 once: 2/3 and 1/3, and nothing else."""
    prompt = [0, 1, 0, 2, 0, 1, 0]
    drafter = make("bigram", V)
    drafter.open(1, prompt)
    (draft,) = drafter.draft([Text(1, prompt, TARGET, rule="block", budget=(1, 1)).request()])
    assert draft.nodes[0].proposal.dense(V) == pytest.approx([0, 2 / 3, 1 / 3, 0, 0, 0])


def test_bigram_has_no_guess_for_a_new_token() -> None:
    """What has not been followed yet ends the draft; at the root it is empty."""
    drafter = make("bigram", V)
    drafter.open(1, [0, 1, 2])
    text = Text(1, [0, 1, 2], TARGET, budget=(5, 2))
    assert len(drafter.draft([text.request()])[0]) == 0
    text.tokens.append(1)
    assert [node.token for node in drafter.draft([text.request()])[0].nodes] == [2, 1, 2, 1, 2]


def test_randoms_law_is_the_positions() -> None:
    """Drafted over or written, a position has one law; the next position has another."""
    drafter = make("random", V)
    (draft,) = drafter.draft([Text(1, PROMPT, TARGET, rule="block", budget=(4, 1)).request()])
    laws = [node.proposal.dense(V).tolist() for node in draft.nodes]
    for depth in range(4):
        text = Text(1, PROMPT + [0] * depth, TARGET, rule="block", budget=(1, 1))
        (one,) = drafter.draft([text.request()])
        assert one.nodes[0].proposal.dense(V).tolist() == laws[depth]
    assert all(laws[i] != laws[i + 1] for i in range(3))


def test_a_draft_takes_one_pass_a_level_for_all_texts() -> None:
    """Three texts, four levels: four passes; each row is scored once, and no leaf ever."""
    model = counting()
    drafter = make_drafter("model", DrafterKit(V, lambda: model))
    assert drafter is not None
    texts = [Text(i, PROMPT[i:], TARGET, budget=(4, 3)) for i in range(3)]
    for text in texts:
        drafter.open(text.sequence, text.tokens)
    assert model.passes == []  # nothing is read before a draft is wanted
    drafter.draft([text.request() for text in texts])
    assert [len(rows) for rows in model.passes] == [3, 3, 3, 3]


def test_the_model_catches_up_on_what_it_has_not_seen() -> None:
    """Tokens kept from the last draft are not scored again; only those that came otherwise."""
    model = counting()
    drafter = make_drafter("model", DrafterKit(V, lambda: model))
    assert drafter is not None
    text = Text(1, PROMPT, TARGET, budget=(3, 1))
    drafter.open(1, PROMPT)
    (draft,) = drafter.draft([text.request()])
    trunk = [node.token for node in draft.nodes]
    other = (trunk[1] + 1) % V
    text.tokens += [trunk[0], other, 4]
    model.passes.clear()
    drafter.draft([text.request()])
    assert [row.token for row in model.passes[0]] == [other, 4]
    assert model.passes[0][0].position == len(PROMPT) + 1
    # Asked again with nothing new, it scores the root alone.
    model.passes.clear()
    drafter.draft([text.request()])
    assert [row.token for row in model.passes[0]] == [4]


@pytest.mark.parametrize("width", [1, 2])
def test_a_full_context_ends_drafting_and_not_the_text(width: int) -> None:
    """The draft model never holds more than its context; the text goes on as without it."""
    model = counting(context=9)
    drafter = make_drafter("model", DrafterKit(V, lambda: model))
    plain, text = Text(0, PROMPT, TARGET), Text(1, PROMPT, TARGET, budget=(4, width))
    write(None, [plain], 20)
    write(drafter, [text], 20)
    assert text.tokens == plain.tokens
    assert max(row.position for rows in model.passes for row in rows) == 8
    assert len(text.drafts[0]) > 0
    assert len(text.drafts[-1]) == 0


def test_a_prompt_longer_than_the_draft_models_context_is_not_drafted_for() -> None:
    """No error, no draft; rolled back far enough it drafts again."""
    drafter = make_drafter("model", DrafterKit(V, lambda: counting(context=3)))
    assert drafter is not None
    drafter.open(1, PROMPT)
    text = Text(1, PROMPT, TARGET, budget=(4, 1))
    assert len(drafter.draft([text.request()])[0]) == 0
    drafter.rollback(1, 2)
    text.tokens = PROMPT[:2]
    assert len(drafter.draft([text.request()])[0]) == 2  # after tokens 2 and 3


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_in_step_whatever_happens(data: st.DataObject) -> None:
    """After any history of growth, drafts, rollbacks and forks a draft is a fresh drafter's."""
    drafter = make("model", V)
    texts = {1: [0]}
    drafter.open(1, [0])

    def draft(asked: object, sequence: int) -> list[object]:
        text = Text(sequence, texts[sequence], TARGET, budget=(3, 2))
        made: Draft = asked.draft([text.request()])[0]  # type: ignore[attr-defined]
        return fingerprint(made, V)

    for _ in range(data.draw(st.integers(1, 8))):
        sequence = data.draw(st.sampled_from(sorted(texts)))
        match data.draw(st.sampled_from(["grow", "draft", "back", "fork"])):
            case "grow":
                texts[sequence] += data.draw(st.lists(st.integers(0, V - 1), max_size=4))
            case "draft":
                draft(drafter, sequence)
            case "back":
                length = data.draw(st.integers(1, len(texts[sequence])))
                del texts[sequence][length:]
                drafter.rollback(sequence, length)
            case "fork":
                new = len(texts) + 1
                texts[new] = texts[sequence].copy()
                drafter.fork(sequence, new)
    for sequence in texts:
        alone = make("model", V)
        alone.open(sequence, texts[sequence])
        assert draft(drafter, sequence) == draft(alone, sequence)


def test_another_vocabulary_is_refused() -> None:
    """With both sizes, before anything is drafted."""
    with pytest.raises(VocabularyError, match="7 tokens, the target 6"):
        Model(ToyTarget.random(7, 1, 1), V)


def test_a_draft_model_that_cannot_be_opened_says_so() -> None:
    """What the kit raises comes through."""

    def missing() -> Target:
        raise ModelNotFoundError("No model 'tiny'.")

    with pytest.raises(ModelNotFoundError):
        make_drafter("model", DrafterKit(V, missing))
