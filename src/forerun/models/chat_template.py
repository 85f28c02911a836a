"""Messages to the prompt text a model was trained on, by the template in its file.

The output is what transformers' `apply_chat_template` gives for the same template and messages.
The template is a program that came with the file and is not trusted: `template_sandbox` keeps it
from Python, from hanging and from filling the memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2

from forerun.errors import TemplateError
from forerun.fork_lock import fork_lock
from forerun.models.template_costs import Budget
from forerun.models.template_sandbox import TemplateSandbox

__all__ = ["ChatTemplate"]

MAX_SOURCE = 64_000
MAX_DEPTH = 64
STEPS = 1_000_000  # some tenths of a second
STEPS_PER_INPUT = 100
REASONING = ("reasoning_content", "thinking", "reasoning")
REMEDY = "Give the prompt as raw text (`--raw`), or choose another model."


class ChatTemplate:
    """A compiled chat template.

    Args:
        source: Jinja2 source.
        bos_token: Text of the begin-of-text token, for templates that write it.
        eos_token: Text of the end-of-text token.

    Raises:
        TemplateError: The source is too long, no valid jinja2, or uses what is not allowed.
    """

    def __init__(self, source: str, *, bos_token: str = "", eos_token: str = "") -> None:
        if len(source) > MAX_SOURCE:
            raise TemplateError(
                f"The chat template has {len(source)} characters; {MAX_SOURCE} is the limit.",
                REMEDY,
            )
        self.source = source
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self._sandbox = TemplateSandbox(
            {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
        )
        self._sandbox.install("tojson", _to_json)
        self._sandbox.budget = Budget(STEPS)
        self._lock = fork_lock(3)  # the sandbox has one budget
        try:
            self._template = self._sandbox.compile_metered(source)
        except TemplateError:
            raise
        except Exception as error:  # a template can make jinja2 and Python raise anything
            raise TemplateError(
                f"The chat template is not valid: {_reason(error)}.", REMEDY
            ) from error

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        add_generation_prompt: bool = True,
        **variables: object,
    ) -> str:
        """Return the prompt text of a conversation.

        Args:
            messages: Each with a `role` and a `content`: text, or a list of parts as the template
                expects them. Further keys are the template's. What is None is left out.
            add_generation_prompt: End with what begins the model's answer.
            variables: Anything else the template reads, such as `tools`; plain data only.

        Raises:
            TemplateError: The messages are not of that shape, the template refuses them or fails,
                or it takes more than its share of steps.
        """
        chat = [_message(message, index) for index, message in enumerate(_messages(messages))]
        values = {"tools": None, "documents": None, **self._tokens, **_plain(variables, "variable")}
        values |= {"messages": chat, "add_generation_prompt": add_generation_prompt}
        size = Budget(STEPS * STEPS_PER_INPUT).weigh(values)
        with self._lock:
            self._sandbox.budget = Budget(STEPS + STEPS_PER_INPUT * size)
            try:
                context = self._template.new_context(values)
                return "".join(self._template.root_render_func(context))
            except TemplateError:
                raise
            except Exception as error:  # a template can make jinja2 and Python raise anything
                raise _translated(error) from error


def _messages(messages: object) -> Sequence[Any]:
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        _misshaped(f"The messages are of type {type(messages).__name__}, not a list")
    return messages


def _message(message: object, index: int) -> dict[str, Any]:
    """Return a checked copy of one message, without its empty keys."""
    if not isinstance(message, Mapping):
        _misshaped(f"Message {index} is of type {type(message).__name__}, not a mapping")
    copy = {key: value for key, value in _plain(message, "message").items() if value is not None}
    role, content = copy.get("role"), copy.get("content", "")
    if not isinstance(role, str) or not role:
        _misshaped(f"Message {index} has the role {role!r:.60}")
    if not isinstance(content, (str, list)):
        _misshaped(f"The content of message {index} is of type {type(content).__name__}")
    reasoning = next((copy[key] for key in REASONING if key in copy), None)
    if reasoning is not None:  # one thing under three names
        copy = {"thinking": reasoning, **copy, "reasoning_content": reasoning}
    return copy


def _misshaped(what: str) -> NoReturn:
    raise TemplateError(
        f"{what}.",
        'Messages are a list such as [{"role": "user", "content": "Hello"}].',
    )


def _plain(value: Any, where: str, depth: int = 0) -> Any:
    """Return a deep copy in plain types, so that a template meets no object with a will."""
    if depth > MAX_DEPTH:
        _misshaped(f"A {where} is nested more than {MAX_DEPTH} deep")
    if value is None or isinstance(value, bool):
        return value
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, Mapping):
        return {_plain(key, where, depth + 1): _plain(item, where, depth + 1)
                for key, item in value.items()}  # fmt: skip
    if isinstance(value, (list, tuple)):
        return [_plain(item, where, depth + 1) for item in value]
    _misshaped(f"A {where} holds a {type(value).__name__}, which is no plain data")


class _RefusedError(jinja2.TemplateError):
    """The template called `raise_exception`."""


def _raise_exception(message: object) -> NoReturn:
    raise _RefusedError(str(message))


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _reason(error: Exception) -> str:
    text = str(error).rstrip(".")
    text = text if len(text) <= 200 else text[:200] + "..."
    line = f" (line {error.lineno})" if isinstance(error, jinja2.TemplateSyntaxError) else ""
    return f"{text or type(error).__name__}{line}"


def _translated(error: Exception) -> TemplateError:
    if isinstance(error, _RefusedError):
        return TemplateError(
            f"The chat template refuses these messages: {_reason(error)}.",
            "Change the messages as it says.",
        )
    return TemplateError(
        f"The chat template fails on these messages: {type(error).__name__}: {_reason(error)}.",
        REMEDY,
    )
