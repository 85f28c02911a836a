"""Prompts to measure with: those that Forerun ships, and files of the same format.

The format is Spec-Bench's, one JSON object a line: `question_id`, a number or text that no other
line has; `task`, or its `category`; `turns`, a list of texts. Ours also know `prediction`, text
that is likely to stand in the answer. Other keys are left alone.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import IO, Any

from forerun.errors import OptionError
from forerun.regular_file import opened_file, reason_of

__all__ = ["SHIPPED_TASKS", "Prompt", "choose", "read_prompts", "shipped_prompts"]

SHIPPED_TASKS = (
    "mt_bench",
    "translation",
    "summarization",
    "qa",
    "math_reasoning",
    "rag",
    "code_editing",
    "copying",
    "rewriting",
    "reasoning",
    "adversarial",
)
"""Spec-Bench's six tasks, and five of our own."""

# What Spec-Bench's own file calls the parts of that task.
_MT_BENCH = {"writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem"}
_MT_BENCH |= {"humanities"}
_LONGEST_LINE = 1 << 20  # bytes
_LARGEST_FILE = 1 << 26
_MOST_PROMPTS = 20_000
_LONGEST_NAME = 100  # characters


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question, of one turn or several.

    Attributes:
        question_id: Its name; no other prompt of the run has it.
        task: What kind of question it is.
        turns: What the user says; the model's answers come between.
        prediction: Text that is likely to stand in the first answer, or None.
    """

    question_id: str
    task: str
    turns: tuple[str, ...]
    prediction: str | None = None


def shipped_prompts() -> list[Prompt]:
    """Return the prompts that come with Forerun, task by task."""
    prompts: list[Prompt] = []
    for task in SHIPPED_TASKS:
        with files("forerun.bench").joinpath("shipped", f"{task}.jsonl").open("rb") as file:
            prompts += _read(file, f"{task}.jsonl")
    return prompts


def read_prompts(path: str) -> list[Prompt]:
    """Return the prompts of a file.

    Raises:
        OptionError: It can't be read, is no such file or too large; the line is named.
    """
    try:
        with opened_file(path) as (file, _):
            return _read(file, path)
    except OSError as error:
        raise OptionError(f"prompts = {path!r} {reason_of(error)}.", "Name a file.") from None


def choose(
    prompts: Iterable[Prompt], tasks: Iterable[str] = (), limit: int | None = None
) -> list[Prompt]:
    """Return the prompts of these tasks, or of all; of each task the first `limit`.

    Raises:
        OptionError: There is no prompt of a task.
    """
    prompts = list(prompts)
    known = list(dict.fromkeys(prompt.task for prompt in prompts))
    wanted = [name.strip() for each in tasks for name in each.split(",") if name.strip()] or known
    for task in wanted:
        if task not in known:
            what = f"There is no prompt of task {task[:80]!r}."
            raise OptionError(what, f"Tasks: {', '.join(known)[:400]}.")
    taken: Counter[str] = Counter()
    chosen: list[Prompt] = []
    for prompt in prompts:
        if prompt.task in wanted and (limit is None or taken[prompt.task] < limit):
            taken[prompt.task] += 1
            chosen.append(prompt)
    return chosen


def _read(file: IO[bytes], name: str) -> list[Prompt]:
    prompts: dict[str, Prompt] = {}
    lines: dict[str, int] = {}
    for number, line in _lines(file, name):
        where = f"{name}, line {number}"
        prompt = _prompt(_record(line, where), where)
        if prompt.question_id in prompts:
            before = lines[prompt.question_id]
            what = f"{where}: question_id {prompt.question_id[:80]!r} stands in line {before} too."
            raise OptionError(what, "Give each prompt an id of its own.")
        if len(prompts) == _MOST_PROMPTS:
            what = f"{where}: more than {_MOST_PROMPTS} prompts."
            raise OptionError(what, "Measure with a part of them.")
        prompts[prompt.question_id] = prompt
        lines[prompt.question_id] = number
    if not prompts:
        raise OptionError(f"{name} holds no prompt.", "Write one JSON object a line.")
    return list(prompts.values())


def _lines(file: IO[bytes], name: str) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that hold something, with their numbers; never more than a bounded part."""
    size, number = 0, 0
    while line := file.readline(_LONGEST_LINE + 1):
        number += 1
        size += len(line)
        if len(line) > _LONGEST_LINE:
            what = f"{name}, line {number}: longer than {_LONGEST_LINE >> 10} KiB."
            raise OptionError(what, "Write one JSON object a line.")
        if size > _LARGEST_FILE:
            what = f"{name}, line {number}: more than {_LARGEST_FILE >> 20} MiB so far."
            raise OptionError(what, "Measure with a part of them.")
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if line.strip():
            yield number, line


def _record(line: bytes, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError:
        raise OptionError(f"{where}: not UTF-8.", "Save the file as UTF-8.") from None
    except (ValueError, RecursionError) as error:
        reason = str(error)[:80] or type(error).__name__
        raise OptionError(f"{where}: not JSON: {reason}.", "One object a line.") from None
    if not isinstance(record, dict):
        raise OptionError(f"{where}: {_shown(record)} is no JSON object.", "One object a line.")
    return record


def _prompt(record: dict[str, Any], where: str) -> Prompt:
    for key in ("question_id", "turns"):
        if key not in record:
            raise OptionError(f"{where}: there is no {key!r}.", "Each prompt needs it.")
    question, turns = record["question_id"], record["turns"]
    if isinstance(question, bool) or not isinstance(question, int | str) or question == "":
        raise OptionError(f"{where}: question_id = {_shown(question)}.", "Give a number or a text.")
    if not isinstance(turns, list) or not turns:
        raise OptionError(f"{where}: turns = {_shown(turns)}.", "Give a list of one text or more.")
    texts = tuple(_text(turn, "turn", where) for turn in turns)
    prediction = record.get("prediction")
    if prediction is not None:
        prediction = _text(prediction, "prediction", where)
    name = _name(str(question), "question_id", where)
    return Prompt(name, _task(record, where), texts, prediction)


def _task(record: dict[str, Any], where: str) -> str:
    for key in ("task", "category"):
        if key in record:
            named = _name(record[key], key, where)
            return "mt_bench" if key == "category" and named in _MT_BENCH else named
    raise OptionError(f"{where}: there is neither 'task' nor 'category'.", "Each needs one.")


def _name(value: object, what: str, where: str) -> str:
    """Return what stands in tables, on a terminal and in Markdown."""
    text = _text(value, what, where)
    if not text.isprintable():
        raise OptionError(f"{where}: {what} = {_shown(text)} can't be printed.", "Use one line.")
    if len(text) > _LONGEST_NAME:
        what = f"{where}: a {what} of {len(text)} characters."
        raise OptionError(what, f"Use {_LONGEST_NAME} at most.")
    return text


def _text(value: object, what: str, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise OptionError(f"{where}: {what} = {_shown(value)}.", "Give some text.")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise OptionError(f"{where}: a {what} holds half a character.", "Write it whole.") from None
    return value


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return "something very large"
    return text if len(text) <= 80 else f"{text[:77]}..."
