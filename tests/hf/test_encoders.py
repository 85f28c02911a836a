"""Models with an encoder inside `generate`: its own texts, and an encoder that runs once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from forerun.errors import OptionError, PromptError
from hf.test_generate import odd_only, padded
from targets.tiny_networks import tiny_network

pytestmark = pytest.mark.judge

FAMILIES = ("t5", "bart", "marian")
SOURCES = ((5, 6, 7, 5, 6, 7, 5, 6), (9, 8), (3, 4, 3, 4, 3, 4, 3), (11, 12, 13, 14))
LENGTH = 14


@cache
def network(family: str) -> Any:
    return tiny_network(family, seed=4)


@pytest.fixture(autouse=True, scope="module")
def forgotten() -> Iterator[None]:
    yield
    from forerun import hf

    hf.forget()


def plain(family: str, inputs: dict[str, Any], **options: Any) -> list[list[int]]:
    """What transformers writes by itself."""
    given = {"max_new_tokens": LENGTH, "pad_token_id": 0, "eos_token_id": None, **options}
    texts: list[list[int]] = network(family).generate(**inputs, **given).tolist()
    return texts


def written(family: str, inputs: dict[str, Any], **options: Any) -> list[list[int]]:
    """What Forerun writes."""
    import forerun

    return plain(family, inputs, custom_generate=forerun.hf.generate, **options)


@pytest.mark.parametrize("family", FAMILIES)
def test_texts_are_those_of_generate(family: str) -> None:
    """One text and four, padded on either side, with and without processors, whoever drafts."""
    drafts = tiny_network(family, seed=5)
    for inputs in (padded(SOURCES[:1]), padded(SOURCES), padded(SOURCES, "right")):
        for options in ({}, {"repetition_penalty": 1.7, "logits_processor": [odd_only]}):
            expected = plain(family, inputs, **options)
            assert len({tuple(text) for text in expected}) >= len(expected) / 2
            for how in (
                {"drafter": "none"},
                {"drafter": "lookup", "draft_length": 3},
                {"drafter": "suffix", "draft_length": 3, "draft_width": 2},
                {"drafter": "early_exit", "draft_length": 2},
                {"drafter": "model", "draft_model": drafts, "draft_length": 3},
            ):
                assert written(family, inputs, **options, **how) == expected, how


@pytest.mark.parametrize("family", FAMILIES)
def test_the_encoder_runs_once(family: str) -> None:
    """What `generate` had it read is what texts are written from, also where it was changed."""
    model, inputs = network(family), padded(SOURCES)
    written(family, inputs)  # a model is tried at its first text
    calls: list[Any] = []
    handle = model.get_encoder().register_forward_hook(lambda *_: calls.append(_))
    try:
        expected = plain(family, inputs)
        assert written(family, inputs, drafter="lookup") == expected
    finally:
        handle.remove()
    assert len(calls) == 2
    states = model.get_encoder()(**inputs)
    mask = {"attention_mask": inputs["attention_mask"]}
    assert written(family, {"encoder_outputs": states, **mask}) == expected
    states.last_hidden_state = states.last_hidden_state.flip(2)
    changed = {"encoder_outputs": states, **mask}
    assert plain(family, changed) != expected
    for more in ({}, {"input_ids": inputs["input_ids"]}):
        assert written(family, {**changed, **more}) == plain(family, changed)


@pytest.mark.parametrize("drafter", ["lookup", "suffix"])
def test_what_the_encoder_read_is_searched(drafter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text whose beginning stands there takes fewer passes."""
    import torch

    from forerun.targets.transformers import TransformersTarget

    passes: list[int] = []
    score = TransformersTarget.score

    def counted(self: Any, rows: Any, **how: Any) -> Any:
        passes.append(len(rows))
        return score(self, rows, **how)

    states = network("t5").get_encoder()(**padded(SOURCES[:1]))
    text = plain("t5", {"encoder_outputs": states})[0]
    long = torch.tensor([text[1:9]])
    inputs = {"encoder_outputs": states, "input_ids": long}
    written("t5", inputs)
    monkeypatch.setattr(TransformersTarget, "score", counted)
    counts = []
    for who in ("none", drafter):
        passes.clear()
        assert written("t5", inputs, drafter=who, draft_length=4) == [text]
        counts.append(len(passes))
    assert counts[1] <= counts[0] - 4


def test_a_seed_gives_the_same_text_whoever_drafts() -> None:
    """Alone and in a batch; samples of one prompt are others."""
    inputs = padded(SOURCES, "right")
    sampled = {"do_sample": True, "temperature": 1.5, "seed": 3}
    texts = written("bart", inputs, drafter="none", **sampled)
    assert written("bart", inputs, drafter="lookup", draft_length=3, **sampled) == texts
    alone = [written("bart", padded([source]), **sampled)[0] for source in SOURCES]
    assert alone == texts
    several = written("bart", padded(SOURCES[:2], "right"), num_return_sequences=3, **sampled)
    assert [several[0], several[3]] == texts[:2]
    assert len({tuple(text) for text in several}) == 6


def test_the_beginning_of_the_answer_is_kept() -> None:
    """Tokens for the decoder, padding before them or none."""
    import torch

    start = torch.tensor([[2, 7, 9]])
    inputs = {**padded(SOURCES[:1]), "decoder_input_ids": start}
    expected = plain("bart", inputs)
    assert expected[0][:3] == [2, 7, 9]
    assert written("bart", inputs, drafter="lookup") == expected
    masked = {"decoder_attention_mask": torch.tensor([[0, 1, 1, 1]])}
    start = torch.tensor([[2, 2, 7, 9]])
    found = written("bart", {**inputs, "decoder_input_ids": start, **masked}, drafter="lookup")
    assert found[0][1:] == expected[0]


@pytest.mark.parametrize("masked", [True, False])
def test_what_cannot_be_honoured_is_refused(masked: bool) -> None:
    """Nothing to read, a mask of another shape, a draft model without the tokens, embeddings."""
    import torch

    inputs = padded(SOURCES[:2])
    states = network("bart").get_encoder()(**inputs)
    if masked:
        mask = inputs["attention_mask"].clone()
        mask[1] = 0
        with pytest.raises(PromptError, match="Row 1 has nothing for the encoder"):
            written("bart", {"encoder_outputs": states, "attention_mask": mask})
        with pytest.raises(PromptError, match="attention mask is"):
            written("bart", {"encoder_outputs": states, "attention_mask": mask[:, :5]})
        return
    drafts = tiny_network("bart", seed=5)
    with pytest.raises(OptionError, match="encoder_outputs alone"):
        written("bart", {"encoder_outputs": states}, drafter="model", draft_model=drafts)
    alone = tiny_network("llama", seed=5)
    with pytest.raises(OptionError, match="of the target's kind"):
        written("bart", inputs, drafter="model", draft_model=alone)
    with pytest.raises(OptionError, match="decoder_inputs_embeds"):
        written("bart", {**inputs, "decoder_inputs_embeds": torch.zeros(2, 1, 32)})
    with pytest.raises(OptionError, match="Beam search"):
        written("bart", inputs, num_beams=2)
