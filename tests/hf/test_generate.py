"""`custom_generate=forerun.hf.generate`: the texts of `generate` itself, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import pytest

from forerun.errors import OptionError, PromptError, UnsupportedModelError
from targets.tiny_networks import tiny_network

pytestmark = pytest.mark.judge

PROMPTS = ((5, 6, 7, 5, 6, 7, 5, 6), (9, 8), (3, 4, 3, 4, 3, 4, 3))
LENGTH = 14


@cache
def network() -> Any:
    return tiny_network("mistral", seed=4, max_position_embeddings=128)


@pytest.fixture(autouse=True, scope="module")
def forgotten() -> Iterator[None]:
    yield
    from forerun import hf

    hf.forget()


def padded(prompts: Sequence[Sequence[int]], side: str = "left") -> dict[str, Any]:
    """Prompts as a tokenizer gives them: filled up with token 0, which the mask leaves out."""
    import torch

    longest = max(map(len, prompts))
    rows, mask = [], []
    for prompt in prompts:
        fill = [0] * (longest - len(prompt))
        ones = [1] * len(prompt)
        rows.append([*fill, *prompt] if side == "left" else [*prompt, *fill])
        mask.append([*fill, *ones] if side == "left" else [*ones, *fill])
    return {"input_ids": torch.tensor(rows), "attention_mask": torch.tensor(mask)}


def written(inputs: dict[str, Any], **options: Any) -> list[list[int]]:
    """What Forerun writes behind each row."""
    import forerun

    given = {"max_new_tokens": LENGTH, "pad_token_id": 0, "eos_token_id": None, **options}
    found = network().generate(**inputs, custom_generate=forerun.hf.generate, **given)
    texts: list[list[int]] = found[:, inputs["input_ids"].shape[1] :].tolist()
    return texts


def plain(inputs: dict[str, Any], **options: Any) -> list[list[int]]:
    """What transformers writes by itself."""
    given = {"max_new_tokens": LENGTH, "pad_token_id": 0, "eos_token_id": None, **options}
    found = network().generate(**inputs, do_sample=False, **given)
    texts: list[list[int]] = found[:, inputs["input_ids"].shape[1] :].tolist()
    return texts


def odd_only(written: Any, scores: Any) -> Any:
    """A processor of a user's own, which looks at the length of what is written."""
    scores = scores.clone()
    scores[:, written.shape[1] % 2 :: 2] -= 3.0
    return scores


def after_thirteen(written: Any, _: Any, **__: Any) -> Any:
    """A criterion of a user's own."""
    import torch

    return torch.full((len(written),), written.shape[1] > 13)


def allowed(row: int, written: Any) -> list[int]:
    """Other tokens for each row of a batch."""
    return list(range(10 + 5 * row, 40 + 5 * row))


def ends_of(text: Sequence[int]) -> list[int]:
    """Two tokens that come up in a text, the first of them not at once."""
    new = [token for place, token in enumerate(text) if token not in text[:place]]
    return [new[4], new[-1]]


ASKED: dict[str, Callable[[list[int]], dict[str, Any]]] = {
    "nothing": lambda _: {},
    "two ends": lambda text: {"eos_token_id": ends_of(text)},
    "a first length": lambda text: {"eos_token_id": ends_of(text), "min_new_tokens": 9},
    "repetition": lambda _: {"repetition_penalty": 1.7},
    "n-grams": lambda _: {"no_repeat_ngram_size": 2, "bad_words_ids": [[6, 2], [49]]},
    "an end that is forced": lambda _: {"forced_eos_token_id": 8, "eos_token_id": 8},
    "own processors": lambda _: {"logits_processor": [odd_only]},
    "own criteria": lambda _: {"stopping_criteria": [after_thirteen]},
    "tokens by row": lambda _: {"prefix_allowed_tokens_fn": allowed},
}


@pytest.mark.parametrize("asked", ASKED)
def test_texts_are_those_of_generate(asked: str) -> None:
    """With every kind of processor and end, one text and three padded ones, whoever drafts."""
    alone, together = padded(PROMPTS[:1]), padded(PROMPTS)
    options = ASKED[asked](plain(alone)[0])
    if asked == "own processors":
        from transformers import LogitsProcessorList

        options["logits_processor"] = LogitsProcessorList(options["logits_processor"])
    expected = plain(alone, **options), plain(together, **options)
    if asked != "nothing":
        assert expected[0] != plain(alone)
    drafts = tiny_network("qwen2", seed=3, max_position_embeddings=128)
    for how in (
        {"drafter": "none"},
        {"drafter": "lookup", "draft_length": 3},
        {"drafter": "auto"},
        {"drafter": "early_exit", "draft_length": 2, "draft_width": 2},
        {"drafter": "model", "draft_model": drafts, "draft_length": 3},
    ):
        assert (written(alone, **options, **how), written(together, **options, **how)) == expected


def test_stop_strings_end_where_they_are_complete(tmp_path: Any) -> None:
    """Also in the middle of a draft: nothing is written behind them."""
    from transformers import PreTrainedTokenizerFast
    from transformers.generation import StoppingCriteriaList, StopStringCriteria

    from models.tiny_folder import byte_tokenizer, write_json

    write_json(tmp_path / "tokenizer.json", byte_tokenizer(61))
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    inputs = padded(PROMPTS[:1])
    text = plain(inputs)[0]
    string = tokenizer.decode(text[4:6])
    ends = StoppingCriteriaList([StopStringCriteria(tokenizer, [string])])
    expected = plain(inputs, stopping_criteria=ends)
    assert 0 < len(expected[0]) < LENGTH
    for drafter in ("none", "lookup", "early_exit"):
        found = written(inputs, stopping_criteria=ends, drafter=drafter, draft_length=4)
        assert found == expected


def test_a_padded_row_is_what_it_is_alone() -> None:
    """Padding on the right, too, where `generate` would go on from a token of padding."""
    alone = [written(padded([prompt]))[0] for prompt in PROMPTS]
    assert written(padded(PROMPTS, "right")) == alone
    assert written(padded(PROMPTS, "left")) == alone
    sampled = {"do_sample": True, "seed": 5}
    alone = [written(padded([prompt]), **sampled)[0] for prompt in PROMPTS]
    assert written(padded(PROMPTS, "right"), **sampled) == alone


def test_a_seed_gives_the_same_text_whoever_drafts() -> None:
    """Ours or torch's; each sample of a prompt is another one, and top-k leaves k tokens."""
    import torch

    inputs = padded(PROMPTS)
    sampled = {"do_sample": True, "temperature": 1.5, "top_k": 20}
    texts = written(inputs, drafter="none", seed=3, **sampled)
    for drafter in ("lookup", "early_exit"):
        assert written(inputs, drafter=drafter, draft_length=3, seed=3, **sampled) == texts
    assert written(inputs, drafter="none", seed=4, **sampled) != texts
    for seed in (1, 2):
        torch.manual_seed(seed)
        first = written(inputs, **sampled)
        torch.manual_seed(seed)
        assert written(inputs, drafter="none", **sampled) == first
        assert first != texts
    several = written(padded(PROMPTS[:1]), num_return_sequences=3, seed=3, **sampled)
    assert several[0] == texts[0]
    assert len({tuple(text) for text in several}) == 3
    assert written(inputs, **{**sampled, "top_k": 1}) == plain(inputs)


def test_a_streamer_hears_each_token_once() -> None:
    """`generate` tells it the prompt, and keeps it from what is plugged in."""
    heard: list[int] = []

    class Listener:
        def put(self, value: Any) -> None:
            heard.extend(value.flatten().tolist())

        def end(self) -> None:
            heard.append(-1)

    inputs = padded(PROMPTS[:1])
    text = written(inputs, streamer=Listener(), drafter="lookup")[0]
    assert heard == [*PROMPTS[0], *text, -1]
    with pytest.raises(OptionError, match="streamer hears one"):
        written(padded(PROMPTS), streamer=Listener())


def test_an_output_with_a_name() -> None:
    """Where a dictionary is asked for."""
    import forerun

    inputs = padded(PROMPTS[:1])
    found = network().generate(
        **inputs,
        custom_generate=forerun.hf.generate,
        return_dict_in_generate=True,
        max_new_tokens=LENGTH,
        eos_token_id=None,
        pad_token_id=0,
    )
    assert found.sequences[0, 8:].tolist() == plain(inputs)[0]


class Broken(Exception):
    """Of a user's own."""


def test_what_users_code_raises_is_raised() -> None:
    """As it is; afterwards all goes on."""
    inputs = padded(PROMPTS)

    def broken(written: Any, *_: Any, **__: Any) -> Any:
        if written.shape[1] > 11:
            raise Broken("here")
        return odd_only(written, _[0]) if _[0] is not None else False

    for kind in ("logits_processor", "stopping_criteria"):
        with pytest.raises(Broken, match="here"):
            written(inputs, **{kind: [broken]}, drafter="lookup", draft_length=3)
    assert written(inputs) == plain(inputs)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"num_beams": 2}, "Beam search"),
        ({"penalty_alpha": 0.6, "top_k": 4}, "Contrastive search"),
        ({"prompt_lookup_num_tokens": 3}, "drafter='lookup'"),
        ({"output_scores": True, "return_dict_in_generate": True}, "output_scores"),
        ({"max_new_tokens": 200}, "positions for 128"),
        ({"drafter": "lookupp"}, "lookup"),
        ({"drafter": "model"}, "draft_model"),
        ({"draft_length": -1}, "draft_length"),
    ],
)
def test_what_cannot_be_honoured_is_refused(options: dict[str, Any], match: str) -> None:
    """Each with what to do instead; nothing is left out in silence."""
    with pytest.raises(OptionError, match=match):
        written(padded(PROMPTS[:1]), **options)


def test_inputs_that_cannot_be_honoured_are_refused() -> None:
    """Embeddings, caches that are somebody's, positions and masks with holes, an assistant."""
    import torch
    from transformers import DynamicCache

    inputs = padded(PROMPTS[:2])
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    with pytest.raises(OptionError, match="keys and values of its own"):
        written(inputs, past_key_values=DynamicCache(config=network().config))
    with pytest.raises(OptionError, match="Assisted generation"):
        written(padded(PROMPTS[:1]), assistant_model=tiny_network("llama", seed=2))
    holes = mask.clone()
    holes[0, 3] = 0
    with pytest.raises(PromptError, match="Row 0 is masked in its middle"):
        written({"input_ids": ids, "attention_mask": holes})
    with pytest.raises(OptionError, match="position_ids"):
        written({**inputs, "position_ids": torch.arange(8)[None].expand(2, -1) + 1})

    def early(written: Any, _: Any) -> bool:
        return bool(written[0, 7] == 6 and written.shape[1] > 10)

    with pytest.raises(OptionError, match="pad_token_id"):
        written(padded(PROMPTS), stopping_criteria=[early], pad_token_id=None)


def test_a_model_that_is_no_target_says_why() -> None:
    """With the error that `load` would give."""
    import forerun

    model = tiny_network("mamba")
    with pytest.raises(UnsupportedModelError, match="recurrent"):
        model.generate(**padded(PROMPTS[:1]), custom_generate=forerun.hf.generate)
