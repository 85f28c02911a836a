from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import forerun
from models.tiny_gguf import Tiny

ASK = ("--max-tokens", "6", "--seed", "3", "--temperature", "1")


@pytest.fixture(scope="session")
def lm(tiny: Path) -> forerun.LanguageModel:
    return forerun.load(str(tiny))


def answers(lm: forerun.LanguageModel, *questions: str) -> list[str]:
    """What one conversation answers, turn by turn."""
    messages: list[dict[str, str]] = []
    for question in questions:
        messages.append({"role": "user", "content": question})
        text = lm.generate(messages, max_tokens=6, seed=3, temperature=1).text
        messages.append({"role": "assistant", "content": text})
    return [each["content"] for each in messages[1::2]]


def chatted(run: Any, *lines: str, options: tuple[str, ...] = ASK) -> Any:
    result = run("chat", *options, stdin="".join(f"{line}\n" for line in lines))
    assert result.exit_code == 0
    return result


def test_every_turn_knows_the_turns_before(run: Any, lm: forerun.LanguageModel) -> None:
    """The second answer is the one to both questions and the first answer; EOF ends the chat."""
    first, second = answers(lm, "the", "then")
    assert second != answers(lm, "then")[0]
    assert chatted(run, "the", "then").stdout == f"{first}\n{second}\n"


def test_clear_begins_anew(run: Any, lm: forerun.LanguageModel) -> None:
    """After /clear a question is answered as the first one of a conversation."""
    first, second = answers(lm, "the")[0], answers(lm, "then")[0]
    assert chatted(run, "the", "/clear", "then").stdout == f"{first}\n{second}\n"


def test_exit_ends_it(run: Any, lm: forerun.LanguageModel) -> None:
    """Nothing after /exit is heard."""
    assert chatted(run, "the", "/exit", "then").stdout == answers(lm, "the")[0] + "\n"


def test_show_switches_receipts(run: Any) -> None:
    """/show turns the receipt on and off again."""
    errors = chatted(run, "the", "/show", "then", "/show", "in").stderr
    assert errors.count("tokens per pass") == 1


def test_an_unknown_command_and_an_empty_line_are_no_turns(
    run: Any, lm: forerun.LanguageModel
) -> None:
    """A slip does not reach the model; it is told with the commands that there are."""
    result = chatted(run, "/shwo", "", "the")
    assert result.stdout == answers(lm, "the")[0] + "\n"
    assert result.stderr.count("/clear") == 2
    assert "There is no /shwo." in result.stderr


@pytest.mark.parametrize(("flag", "said"), [("--raw", "--raw"), ("--top-logprobs=2", "= 2")])
def test_what_a_chat_has_no_use_for_is_refused(run: Any, flag: str, said: str) -> None:
    """Before the model is opened: nothing is ignored in silence."""
    result = run("chat", flag)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_a_question_too_long_leaves_the_conversation(run: Any, lm: forerun.LanguageModel) -> None:
    """What does not fit is refused with a way on, and the next turn knows the ones before."""
    first, second = answers(lm, "the", "then")
    result = chatted(run, "the", "in " * 3000, "then")
    assert result.stdout == f"{first}\n{second}\n"
    assert "the context 4096" in " ".join(result.stderr.split())
    assert "The conversation is kept" in result.stderr


def test_a_full_context_is_said(run: Any) -> None:
    """An answer that the context cuts says so and names the way on."""
    options = ("--max-tokens", "500", "--ignore-eos", "--context", "64")
    result = chatted(run, "the", options=options)
    assert "The context is full" in result.stderr


def test_a_model_without_a_template_cannot_chat(run: Any, tmp_path: Path) -> None:
    """It is refused before the first question, with another way to use the model."""
    path = Tiny().write(tmp_path / "raw.gguf")
    result = run("chat", "-m", str(path), stdin="the\n")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "generate --raw" in result.stderr


def test_a_template_that_refuses_a_turn_leaves_the_conversation(run: Any, tmp_path: Path) -> None:
    """The turn is taken back with the template's reason, whose control characters are escaped."""
    template = (
        "{% for m in messages %}{% if 'bad' in m.content %}{{ raise_exception('no \x1b[31m') }}"
        "{% endif %}{{ m.content }}{% endfor %}"
    )
    metadata = {"tokenizer.chat_template": template}
    path = Tiny(context=4096, metadata=metadata).write(tmp_path / "strict.gguf")
    result = chatted(run, "the", "bad", "then", options=(*ASK, "-m", str(path)))
    assert result.stdout == chatted(run, "the", "then", options=(*ASK, "-m", str(path))).stdout
    assert "The conversation is kept" in result.stderr
    assert "no \\x1b[31m" in result.stderr
    assert "\x1b" not in result.stderr


def test_a_broken_template_is_told_before_the_first_question(run: Any, tmp_path: Path) -> None:
    """It is called broken, not missing."""
    metadata = {"tokenizer.chat_template": "{% if"}
    path = Tiny(metadata=metadata).write(tmp_path / "broken.gguf")
    result = run("chat", "-m", str(path), stdin="the\n")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "not valid" in result.stderr
    assert "--raw" in result.stderr
