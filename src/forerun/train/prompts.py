"""What conversations begin with: the user's own prompts, or ones that the target writes.

Which prompt conversation number i gets depends on the seed and i alone, so that a capture that was
killed goes on as if nothing had happened.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

import numpy as np

from forerun.errors import OptionError
from forerun.models.model import Model
from forerun.models.tokenizer import Tokenizer
from forerun.regular_file import opened_file, reason_of
from forerun.train.openings import LONG_OPENINGS, OPENINGS, TOPICS
from forerun.train.shards import Recipe

__all__ = ["Beginning", "Frame", "beginning", "frame_of", "read_prompts"]

_MARK = "\ufdd0"  # Unicode keeps it out of all text
_FREE = 0.15  # of the prompts have no opening: what the target asks when nobody tells it
_LONGEST_LINE = 1 << 20  # bytes
_MOST_PROMPTS = 1_000_000


@dataclass(frozen=True, slots=True)
class Frame:
    """The chat template around the user's turn, as tokens.

    Attributes:
        before: What stands before the user's words.
        after: What ends the user's turn and begins the answer; empty where there is no template.
        between: What stands between two passages of the user's words.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    between: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Beginning:
    """How one conversation begins.

    Attributes:
        tokens: What is given.
        is_whole: The answer follows; else the target goes on writing the user's turn.
        prompt_temperature: At which the target writes the rest of the prompt.
        temperature: Of the answer; 0 is greedy.
        most: At how many tokens of the user's words they are cut.
        least: Before so many the target goes on with another passage where it would end.
    """

    tokens: tuple[int, ...]
    is_whole: bool
    prompt_temperature: float
    temperature: float
    most: int
    least: int = 0


def frame_of(model: Model) -> Frame:
    """Return the model's template around a user's turn; nothing but its first token without one.

    Raises:
        TemplateError: The template fails.
    """
    tokenizer = model.tokenizer
    between = tuple(tokenizer.encode("\n\n", bos=False))
    if model.chat_template is None:
        first = tokenizer.bos_id if tokenizer.bos_id is not None else min(tokenizer.eos_ids)
        return Frame((first,), (), between)
    text = model.chat_template.render([{"role": "user", "content": _MARK}])
    before, _, after = text.partition(_MARK)
    parts = [tokenizer.encode(part, special=True, bos=False) for part in (before, after)]
    return Frame(tuple(parts[0]), tuple(parts[1]), between)


def beginning(
    index: int,
    recipe: Recipe,
    tokenizer: Tokenizer,
    frame: Frame,
    prompts: Sequence[str],
    *,
    longest: int,
) -> Beginning:
    """Return how conversation `index` begins.

    Args:
        index: 0 and up.
        recipe: Seed, temperatures, and how long a prompt may be: a longer one is cut.
        tokenizer: Reads the words.
        frame: Of the model.
        prompts: The user's own; none lets the target write them.
        longest: Tokens of a long prompt that the context has room for.
    """
    random = np.random.default_rng([recipe.seed, index])
    temperature = float(recipe.temperatures[int(random.integers(len(recipe.temperatures)))])
    prompt_temperature = (0.7, 1.0)[random.integers(2)]
    most, least = _length(index, recipe, longest)
    if least:  # hotter, a small model loses the thread before a long text is over
        prompt_temperature = 0.7
    openings = LONG_OPENINGS if least else OPENINGS
    text = prompts[index % len(prompts)] if prompts else _opening(random, openings)
    words = tuple(tokenizer.encode(text, special=False, bos=False)) if text else ()
    tokens = frame.before + words[:most]
    if prompts:
        tokens += frame.after
    is_whole = bool(prompts) or not frame.after
    return Beginning(tokens, is_whole, prompt_temperature, temperature, most, least)


def _length(index: int, recipe: Recipe, longest: int) -> tuple[int, int]:
    """Return most and least tokens of a prompt; any length will do for most of them."""
    # Numbers of its own: a capture without long prompts draws what it always drew.
    random = np.random.default_rng([recipe.seed, index, 1])
    most = min(recipe.long_prompt_tokens, longest)
    if random.random() >= recipe.long_prompts or most <= recipe.prompt_tokens:
        return recipe.prompt_tokens, 0
    most = int(random.integers(recipe.prompt_tokens, most, endpoint=True))
    return most, most * 3 // 4


def _opening(random: np.random.Generator, openings: tuple[str, ...]) -> str:
    if random.random() < _FREE and openings is OPENINGS:
        return ""
    topic = TOPICS[random.integers(len(TOPICS))]
    return openings[random.integers(len(openings))].replace("{topic}", topic)


def read_prompts(path: str) -> list[str]:
    """Return the prompts of a file: a text a line, or JSON objects with `prompt` or `turns`.

    Raises:
        OptionError: It can't be read or holds something else; the line is named.
    """
    try:
        with opened_file(path) as (file, _):
            prompts = _read(file, path)
    except OSError as error:
        what = f"The file of prompts {path} {reason_of(error)}."
        raise OptionError(what, "Check the path.") from None
    if not prompts:
        raise OptionError(f"{path} holds no prompt.", "Write one a line.")
    return prompts


def _read(file: IO[bytes], path: str) -> list[str]:
    prompts: list[str] = []
    for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE + 1), b""), 1):
        if len(line) > _LONGEST_LINE or len(prompts) == _MOST_PROMPTS:
            raise OptionError(f"{path}, line {number}: too much.", "Give fewer or shorter prompts.")
        try:
            text = line.decode("utf-8").strip()
            prompt = _prompt(text) if path.endswith((".jsonl", ".json")) and text else text
        except (UnicodeDecodeError, ValueError, RecursionError) as error:
            what = f"{path}, line {number}: {error}."
            raise OptionError(what, 'Write {"prompt": "..."} or, in other files, text.') from None
        if prompt:
            prompts.append(prompt)
    return prompts


def _prompt(line: str) -> str:
    record = json.loads(line)
    if isinstance(record, dict):
        turns = record.get("turns")
        prompt = turns[0] if isinstance(turns, list) and turns else record.get("prompt")
        if isinstance(prompt, str):
            return prompt.strip()
    raise ValueError("no object with a prompt")
