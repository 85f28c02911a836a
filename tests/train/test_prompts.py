from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forerun.errors import OptionError
from forerun.train.capture import recipe_of
from forerun.train.openings import LONG_OPENINGS, OPENINGS, TOPICS
from forerun.train.options import Capturing
from forerun.train.prompts import Beginning, beginning, frame_of, read_prompts
from train.made_text import tiny_model

LONGEST = 10_000


def test_a_beginning_is_the_numbers_alone(tmp_path: Path) -> None:
    """The same seed and number give the same prompt and temperatures; other numbers others."""
    model = tiny_model(tmp_path)
    frame = frame_of(model)

    recipe = recipe_of(model, Capturing(seed=7, temperatures=(0.0, 0.7, 1.0)), [])

    def made(number: int) -> Beginning:
        return beginning(number, recipe, model.tokenizer, frame, [], longest=LONGEST)

    assert [made(i) for i in range(50)] == [made(i) for i in range(50)]
    begun = [made(i) for i in range(50)]
    assert len({each.tokens for each in begun}) > 30
    assert {each.temperature for each in begun} == {0.0, 0.7, 1.0}
    assert {each.prompt_temperature for each in begun} == {0.7, 1.0}


def test_the_template_stands_around_the_users_words(tmp_path: Path) -> None:
    """A whole prompt of the user's is what the template makes of it."""
    model = tiny_model(tmp_path)
    frame = frame_of(model)
    assert model.chat_template is not None
    text = model.chat_template.render([{"role": "user", "content": "there"}])
    whole = tuple(model.tokenizer.encode(text, special=True, bos=False))
    recipe = recipe_of(model, Capturing(prompt_tokens=5, long_prompts=0), ["there"])
    assert beginning(0, recipe, model.tokenizer, frame, ["there"], longest=LONGEST).tokens == whole


def test_a_prompt_that_is_too_long_is_cut(tmp_path: Path) -> None:
    """The template around it stays whole."""
    model = tiny_model(tmp_path)
    frame = frame_of(model)
    recipe = recipe_of(model, Capturing(prompt_tokens=3, long_prompts=0), ["long"])
    words = tuple(model.tokenizer.encode("a long prompt", bos=False))
    cut = beginning(0, recipe, model.tokenizer, frame, ["a long prompt"], longest=LONGEST)
    assert cut.tokens == frame.before + words[:3] + frame.after


def test_some_prompts_may_be_long(tmp_path: Path) -> None:
    """So many of a hundred, of all lengths there is room for; the others are as they were."""
    model = tiny_model(tmp_path)
    frame = frame_of(model)

    def made(share: float, longest: int = LONGEST) -> list[Beginning]:
        recipe = recipe_of(model, Capturing(long_prompts=share), [])
        tokenizer = model.tokenizer
        return [beginning(i, recipe, tokenizer, frame, [], longest=longest) for i in range(400)]

    mixed, short = made(0.25), made(0)
    long = [each for each in mixed if each.least]
    assert 60 <= len(long) <= 140
    assert all(192 * 3 // 4 <= each.least <= each.most * 3 / 4 <= 576 for each in long)
    assert max(each.most for each in long) > 700
    assert {each.prompt_temperature for each in long} == {0.7}
    for one, other in zip(mixed, short, strict=True):
        assert one == other or one.least
    assert {each.most for each in short} == {192}
    assert max(each.most for each in made(0.25, 300)) <= 300
    assert made(0.25, 192) == short


def test_a_users_long_prompts_may_be_long_as_well(tmp_path: Path) -> None:
    """With their share; the others are cut where prompts are."""
    model = tiny_model(tmp_path)
    frame = frame_of(model)
    recipe = recipe_of(model, Capturing(long_prompts=0.5), ["x"])
    given = ["the " * 1000]
    lengths = {
        len(beginning(i, recipe, model.tokenizer, frame, given, longest=LONGEST).tokens)
        for i in range(40)
    }
    around = len(frame.before + frame.after)
    assert min(lengths) == 192 + around
    assert 400 < max(lengths) - around <= 768


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({"long_prompts": 0, "long_prompt_tokens": 500}, "long_prompts = 0 has none"),
        ({"prompt_tokens": 500, "long_prompt_tokens": 500}, "no more than prompt_tokens = 500"),
        ({"long_prompts": 1.1}, "long_prompts = 1.1"),
    ],
)
def test_lengths_that_contradict_each_other(asked: dict[str, Any], complaint: str) -> None:
    """Refused with both names."""
    with pytest.raises(OptionError, match=complaint):
        Capturing(**asked)


@pytest.mark.parametrize("openings", [OPENINGS, LONG_OPENINGS])
def test_openings_are_diverse_and_complete(openings: tuple[str, ...]) -> None:
    """No opening stands twice, and each subject can be put in."""
    assert len(set(openings)) == len(openings) >= 20
    assert len(OPENINGS) > 90
    assert len(set(TOPICS)) == len(TOPICS) > 60
    assert all(each.replace("{topic}", "x").isprintable() or "\n" in each for each in openings)
    assert not any("{" in each.replace("{topic}", "") for each in openings)


def test_prompts_are_read_from_text_and_from_json(tmp_path: Path) -> None:
    """A text a line; or `prompt`, or the first of `turns`."""
    text, lines = tmp_path / "a.txt", tmp_path / "a.jsonl"
    text.write_text("one\n\n  two \n", "utf-8")
    lines.write_text('{"prompt": "one"}\n{"turns": ["two", "three"]}\n', "utf-8")
    assert read_prompts(str(text)) == read_prompts(str(lines)) == ["one", "two"]


@pytest.mark.parametrize(
    ("name", "data", "complaint"),
    [
        ("a.txt", b"", "no prompt"),
        ("a.txt", b"fine\n\xff\xfe", "line 2"),
        ("a.jsonl", b'{"prompt": "x"}\nno json', "line 2"),
        ("a.jsonl", b'{"prompt": 3}', "no object with a prompt"),
        ("a.jsonl", b"[1]", "no object with a prompt"),
        ("a.jsonl", b"[" * 100_000, "line 1"),
    ],
)
def test_what_is_no_file_of_prompts_is_an_error(
    tmp_path: Path, name: str, data: bytes, complaint: str
) -> None:
    """With the line's number."""
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(OptionError, match=complaint):
        read_prompts(str(path))


def test_prompts_that_are_not_there_are_an_error(tmp_path: Path) -> None:
    """A missing file and a folder."""
    for path, why in ((tmp_path / "none.txt", "can't be read"), (tmp_path, "is a folder")):
        with pytest.raises(OptionError, match=f"{path.name} {why}"):
            read_prompts(str(path))
