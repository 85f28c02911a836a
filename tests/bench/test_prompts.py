"""Prompt files: what is shipped, what is read, and what is refused with its line."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from forerun.bench import prompts as module
from forerun.bench.prompts import SHIPPED_TASKS, Prompt, choose, read_prompts, shipped_prompts
from forerun.errors import OptionError

LINE = {"question_id": 81, "task": "qa", "turns": ["Who?", "Why?"]}


def lines(path: Path, *records: Any) -> str:
    """A file of these records, one a line."""
    text = "\n".join(r if isinstance(r, str) else json.dumps(r) for r in records)
    path.write_text(text, "utf-8")
    return str(path)


def test_each_shipped_task_has_a_dozen_prompts() -> None:
    """Under ids of their own."""
    prompts = shipped_prompts()
    counts = Counter(prompt.task for prompt in prompts)
    assert set(counts) == set(SHIPPED_TASKS)
    assert min(counts.values()) >= 12
    assert len({prompt.question_id for prompt in prompts}) == len(prompts)


def test_a_shipped_prediction_stands_in_its_prompt() -> None:
    """It is what the user gave, never what a model wrote."""
    predicted = [prompt for prompt in shipped_prompts() if prompt.prediction is not None]
    assert len(predicted) >= 12
    for prompt in predicted:
        assert prompt.prediction in prompt.turns[0]


def test_spec_bench_s_lines_are_read(tmp_path: Path) -> None:
    """With task, or with category alone; other keys are left alone; blank lines are none."""
    by_category = {"question_id": "x", "category": "summarization", "turns": ["Sum."], "z": [1]}
    roleplay = {"question_id": 3, "category": "roleplay", "turns": ["Act."]}
    path = lines(tmp_path / "p.jsonl", LINE, "", by_category, roleplay)
    assert read_prompts(path) == [
        Prompt("81", "qa", ("Who?", "Why?")),
        Prompt("x", "summarization", ("Sum.",)),
        Prompt("3", "mt_bench", ("Act.",)),
    ]


def test_a_byte_order_mark_is_no_letter(tmp_path: Path) -> None:
    """Some editors write one before the first line."""
    path = tmp_path / "p.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(LINE).encode() + b"\r\n")
    assert read_prompts(str(path))[0].question_id == "81"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({**LINE, "turns": []}, "turns = []"),
        ({**LINE, "turns": "Who?"}, "turns = 'Who?'"),
        ({**LINE, "turns": ["Who?", "  "]}, "turn = '  '"),
        ({**LINE, "turns": [None]}, "turn = None"),
        ({"task": "qa", "turns": ["Who?"]}, "there is no 'question_id'"),
        ({"question_id": 1, "task": "qa"}, "there is no 'turns'"),
        ({"question_id": 1, "turns": ["Who?"]}, "neither 'task' nor 'category'"),
        ({**LINE, "question_id": None}, "question_id = None"),
        ({**LINE, "question_id": True}, "question_id = True"),
        ({**LINE, "question_id": ""}, "question_id = ''"),
        ({**LINE, "task": 7}, "task = 7"),
        ({**LINE, "prediction": ""}, "prediction = ''"),
        ([1], "no JSON object"),
        ('{"question_id": 1', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"question_id": ' + "9" * 5000 + "}", "not JSON"),
        ('{"question_id": 2, "task": "qa", "turns": ["\\ud800"]}', "half a character"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: Any, said: str) -> None:
    """With its number in the file, and in one short line."""
    path = lines(tmp_path / "p.jsonl", {**LINE, "question_id": "a"}, "", line)
    with pytest.raises(OptionError) as error:
        read_prompts(path)
    assert said in error.value.what
    assert "line 3" in error.value.what
    assert len(error.value.what) < len(path) + 200


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_another_encoding_is_refused(tmp_path: Path, encoding: str) -> None:
    """By name of the right one."""
    path = tmp_path / "p.jsonl"
    text = json.dumps({**LINE, "turns": ["Où?"]}, ensure_ascii=False)
    path.write_bytes(text.encode(encoding))
    with pytest.raises(OptionError, match=r"line 1: not UTF-8"):
        read_prompts(str(path))


def test_an_id_stands_once(tmp_path: Path) -> None:
    """81 and "81" are the same; the error names both lines."""
    path = lines(tmp_path / "p.jsonl", LINE, {**LINE, "question_id": "81"})
    with pytest.raises(OptionError, match=r"line 2: .*'81' stands in line 1 too"):
        read_prompts(path)


@pytest.mark.parametrize(
    ("bound", "value", "said"),
    [
        ("_MOST_PROMPTS", 3, "line 4: more than 3 prompts"),
        ("_LARGEST_FILE", 1 << 8, "line 5: more than 0 MiB"),
        ("_LONGEST_LINE", 32, "line 1: longer than 0 KiB"),
    ],
)
def test_reading_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, value: int, said: str
) -> None:
    """A file of any size is read up to where it is too much, and no further."""
    monkeypatch.setattr(module, bound, value)
    many = [{**LINE, "question_id": i} for i in range(1000)]
    with pytest.raises(OptionError, match=said):
        read_prompts(lines(tmp_path / "p.jsonl", *many))


@pytest.mark.parametrize("content", [b"", b"\n \n"])
def test_an_empty_file_holds_no_prompt(tmp_path: Path, content: bytes) -> None:
    """An error, and no empty measurement."""
    path = tmp_path / "p.jsonl"
    path.write_bytes(content)
    with pytest.raises(OptionError, match="holds no prompt"):
        read_prompts(str(path))


@pytest.mark.parametrize(
    ("path", "reason"),
    [("nowhere.jsonl", "can't be read"), (".", "is a folder"), ("a\0b", "can't be a file's name")],
)
def test_a_file_that_cannot_be_read(path: str, reason: str) -> None:
    """The system's reason, in an error of ours."""
    with pytest.raises(OptionError, match=reason):
        read_prompts(path)


def test_tasks_and_limit_choose() -> None:
    """The first of each task, in the file's order."""
    given = [Prompt(str(i), "ab"[i % 2], ("?",)) for i in range(6)]
    assert [p.question_id for p in choose(given, limit=2)] == ["0", "1", "2", "3"]
    assert [p.question_id for p in choose(given, ("b",))] == ["1", "3", "5"]
    assert choose(given, ("a,b",), 1) == given[:2]
    with pytest.raises(OptionError, match=r"no prompt of task 'c'.*Tasks: a, b"):
        choose(given, ("a", "c"))


@pytest.mark.parametrize("key", ["task", "category", "question_id"])
@pytest.mark.parametrize("name", ["a\nb", "\x1b[2Jgone", "a\u202eb", "a\u2028b", "x" * 101])
def test_names_that_no_table_shows_are_refused(tmp_path: Path, key: str, name: str) -> None:
    """They would steer the terminal, or break a table; the line is named, the name not obeyed."""
    record = {"question_id": 1, "turns": ["Who?"], **({"task": "qa"} if key[0] == "q" else {})}
    with pytest.raises(OptionError, match=r"line 2: .*" + key) as refused:
        read_prompts(lines(tmp_path / "p.jsonl", LINE, {**record, key: name}))
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("name", ["[/x]", "[red]", "a|b", "数学", "$a$", "x" * 100])
def test_other_names_are_read_as_they_are(tmp_path: Path, name: str) -> None:
    """What is markup elsewhere is a name here."""
    path = lines(tmp_path / "p.jsonl", {**LINE, "task": name})
    assert read_prompts(path)[0].task == name


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """Nor is a device read that never ends."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(OptionError, match=r"no regular file|a folder"):
            read_prompts(str(path))
