"""Beam search through the public face, over a tiny model of random weights."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import forerun
from forerun.api import LanguageModel
from forerun.core.tree import Draft
from forerun.drafters.memory import Memoryless
from forerun.drafters.protocol import DraftRequest
from forerun.errors import EngineError, NotEnoughMemoryError, OptionError, PromptError
from forerun.targets.protocol import Scores
from models.tiny_gguf import Tiny

PROMPT = [5, 6, 7, 5, 6, 7, 5, 6]


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    path = tmp_path_factory.mktemp("beams") / "tiny.gguf"
    return forerun.load(str(Tiny(layers=4, context=64).write(path)))


@pytest.mark.parametrize("drafter", ["auto", "recycle", "model", "early_exit", "suffix,random"])
def test_any_drafter_leaves_the_beams_as_they_are(lm: LanguageModel, drafter: str) -> None:
    """Texts, scores and log-probabilities are plain beam search's, bit for bit."""
    asked: dict[str, Any] = {"beams": 3, "max_tokens": 20, "length_penalty": 0.5}
    plain = lm.beam_search(PROMPT, drafter="none", **asked)
    assert plain.stats.passes == plain.stats.steps == 20
    assert (plain.guarantee, plain.target) == ("bitwise", "native")
    for shape in ({"draft_length": 3, "draft_width": 2}, {}):
        result = lm.beam_search(PROMPT, drafter=drafter, **asked, **shape)
        assert result.beams == plain.beams
        assert result.stats.passes <= 20
    assert lm.target._sequences == {}  # type: ignore[attr-defined]


def test_the_best_beam_is_likelier_than_what_is_written_greedily(lm: LanguageModel) -> None:
    """Scores are sums of what the model says of the tokens; one beam of ten finds no less."""
    found = lm.beam_search(PROMPT, beams=10, max_tokens=12, length_penalty=0.0, ignore_eos=True)
    written = lm.generate(PROMPT, max_tokens=12, ignore_eos=True)
    assert found.beams[0].score >= sum(token.logprob for token in written.tokens)
    for beam in found.beams:
        assert beam.score == pytest.approx(sum(beam.logprobs), abs=1e-9)
    scores = [beam.score for beam in found.beams]
    assert scores == sorted(scores, reverse=True)
    assert len({beam.token_ids for beam in found.beams}) == 10


def test_how_beams_end(lm: LanguageModel) -> None:
    """An end token ends a text and brings none; a length is the budget's or the context's."""
    eos = min(lm.model.tokenizer.eos_ids)
    likely: dict[str, Any] = {"logit_bias": {eos: 30.0}, "beams": 3}
    ended = lm.beam_search(PROMPT, min_tokens=4, **likely)
    assert {beam.finish_detail for beam in ended.beams} == {"end of text"}
    assert all(beam.token_ids.index(eos) == len(beam.token_ids) - 1 >= 4 for beam in ended.beams)
    best = ended.beams[0]
    decoder = lm.model.tokenizer.detokenizer(after=PROMPT)
    pushed = "".join(decoder.push(token) for token in best.token_ids[:-1])
    assert best.text == pushed + decoder.flush()
    short = lm.beam_search(PROMPT, beams=2, max_tokens=5, ignore_eos=True)
    assert {beam.finish_detail for beam in short.beams} == {"max_tokens"}
    full = lm.beam_search([9] * 60, beams=2, max_tokens=50, ignore_eos=True)
    assert {(beam.finish_detail, len(beam.token_ids)) for beam in full.beams} == {("context", 4)}


def test_as_many_beams_are_returned_as_asked(lm: LanguageModel) -> None:
    """The best ones."""
    every = lm.beam_search(PROMPT, beams=4, max_tokens=6).beams
    assert len(every) == 4
    assert lm.beam_search(PROMPT, beams=4, max_tokens=6, beams_returned=2).beams == every[:2]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"beams": 0}, "beams = 0"),
        ({"beams": 65}, "beams = 65"),
        ({"temperature": 0.5}, "does not go with beams; beam search draws nothing"),
        ({"top_k": 3}, "does not go with beams"),
        ({"top_p": 0.5}, "does not go with beams"),
        ({"min_p": 0.5}, "does not go with beams"),
        ({"seed": 1}, "does not go with beams"),
        ({"rule": "block"}, "does not go with beams"),
        ({"stop": "x"}, "cut the text yourself"),
        ({"top_logprobs": 2}, "does not go with beams"),
        ({"max_tokens": 0}, "give 1 or more"),
        ({"beams_returned": 5}, "beams_returned = 5 are more than beams = 4"),
        ({"allowed_tokens": (5, 6, 7)}, "3 tokens may be written that do not end the text"),
        ({"early_stopping": "soon"}, "early_stopping = 'soon'"),
        ({"beam_width": 3}, "There is no option 'beam_width'"),
        ({"drafter": "nobody"}, "There is no drafter 'nobody'"),
        ({"beams": None}, "beams = None searches for nothing"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    lm: LanguageModel, options: dict[str, Any], told: str
) -> None:
    """Each names the option, and the way out."""
    with pytest.raises(OptionError) as error:
        lm.beam_search(PROMPT, **options)
    assert told in str(error.value)
    assert len(str(error.value).split(". ")) > 1 or "; " in str(error.value)


@pytest.mark.parametrize("prompt", [[], [5] * 64, [10**6]], ids=["empty", "too long", "unknown"])
def test_a_prompt_that_leaves_nothing_to_search_is_refused(
    lm: LanguageModel, prompt: list[int]
) -> None:
    """Before anything is opened."""
    with pytest.raises(PromptError):
        lm.beam_search(prompt)


def test_options_of_beams_alone_ask_for_beams() -> None:
    """What is for beam search is not silently ignored elsewhere."""
    from forerun.beam.options import Beaming

    for given in ({"length_penalty": 0.5}, {"early_stopping": True}, {"beams_returned": 1}):
        with pytest.raises(OptionError, match="is for beam search; give beams"):
            Beaming.make(**given)
    assert Beaming.make(beams=2, early_stopping=True).early_stopping == "true"


def test_too_little_memory_for_a_pass_says_what_to_lower(
    lm: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target's refusal, with a way out that a search has; all is given back."""

    def score(*arguments: object, **options: object) -> Scores:
        raise NotEnoughMemoryError("A pass of 99 rows needs more memory.", "Score fewer rows.")

    with monkeypatch.context() as patch:
        patch.setattr(type(lm.target), "open", lambda self, *given: self._add(_empty(self)))
        patch.setattr(type(lm.target), "score", score)
        with pytest.raises(NotEnoughMemoryError, match="fewer beams") as error:
            lm.beam_search(PROMPT)
    assert "99 rows" in error.value.what
    assert lm.target._sequences == {}  # type: ignore[attr-defined]


def _empty(target: Any) -> Any:
    return target._pass.open()


class Broken(Memoryless):
    """Fails at its second draft."""

    name = "broken"

    def __init__(self) -> None:
        self.asked = 0
        self.open_texts: set[int] = set()

    def open(self, sequence: int, tokens: object) -> None:
        """Note it."""
        self.open_texts.add(sequence)

    def fork(self, sequence: int, new: int) -> None:
        """Note it."""
        self.open_texts.add(new)

    def free(self, sequence: int) -> None:
        """Note it."""
        self.open_texts.remove(sequence)

    def guess(self, request: DraftRequest) -> Draft:
        """Return nothing, and in the end fail."""
        self.asked += 1
        if self.asked > 3:
            raise RuntimeError("broken")
        return Draft()


def test_a_drafter_that_fails_ends_the_search_and_nothing_stays_open(lm: LanguageModel) -> None:
    """Neither in the target nor in the drafter; other texts and searches go on."""
    mine = Broken()
    lm.add_drafter(mine)
    with pytest.raises(EngineError, match="RuntimeError: broken"):
        lm.beam_search(PROMPT, drafter="broken", draft_length=2)
    assert mine.open_texts == set()
    assert lm.target._sequences == {}  # type: ignore[attr-defined]
    assert lm.beam_search(PROMPT, beams=2, max_tokens=4).beams


def test_texts_and_searches_share_a_model(lm: LanguageModel) -> None:
    """Searches and streams in several threads find and write what they would alone."""
    asked: dict[str, Any] = {"beams": 3, "max_tokens": 16, "drafter": "recycle", "draft_length": 2}
    alone = lm.beam_search(PROMPT, **asked).beams
    written = lm.generate(PROMPT, max_tokens=30, ignore_eos=True).token_ids
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(lm.beam_search(PROMPT, **asked).beams))
        for _ in range(3)
    ]
    threads.append(
        threading.Thread(
            target=lambda: found.append(
                lm.generate(PROMPT, max_tokens=30, ignore_eos=True).token_ids
            )
        )
    )
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(repr, found)) == sorted(map(repr, [alone, alone, alone, written]))
