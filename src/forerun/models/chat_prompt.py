"""Messages to tokens, so that nothing a message says can pass for the template's own words.

A template writes control tokens such as `<|im_end|>` around the messages. A message that holds the
same letters means the letters: else whoever writes one could end their turn and begin another's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forerun.errors import PromptError
from forerun.models.chat_template import ChatTemplate
from forerun.models.tokenizer import Tokenizer

__all__ = ["chat_tokens"]

_GUARDS = [chr(code) for code in range(0xFDD0, 0xFDF0)]  # Unicode keeps these out of all text


def chat_tokens(
    tokenizer: Tokenizer, template: ChatTemplate, messages: Sequence[Mapping[str, object]]
) -> tuple[int, ...]:
    """Return the tokens of a chat, up to where the model's answer begins.

    Args:
        tokenizer: The model's.
        template: The model's.
        messages: Mappings with role and content.

    Raises:
        TemplateError: The template fails on these messages.
        PromptError: A message is not valid text.
    """
    guard = _unused(template.source + repr(messages))
    guarded = [_guarded(message, tokenizer.control_texts, guard) for message in messages]
    text = template.render(guarded, add_generation_prompt=True)
    return tuple(tokenizer.encode(text, special=True, bos=False, guard=guard))


def _unused(text: str) -> str:
    for guard in _GUARDS:
        # repr writes them as escapes, so both spellings are looked for.
        if guard not in text and f"\\u{ord(guard):04x}" not in text:
            return guard
    raise PromptError("The messages hold every character that Unicode keeps out of text.")


def _guarded(value: Any, control_texts: Sequence[str], guard: str) -> Any:
    """Return a message in which the guard stands inside of each control token's text."""
    if isinstance(value, str):
        for text in control_texts:
            if text in value:
                value = value.replace(text, text[0] + guard + text[1:])
        return value
    if isinstance(value, Mapping):
        return {key: _guarded(item, control_texts, guard) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_guarded(item, control_texts, guard) for item in value]
    return value
