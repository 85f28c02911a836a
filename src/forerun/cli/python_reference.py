"""The page of the reference on Python: public names, their signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import forerun
from forerun import hf
from forerun.drafters import protocol

__all__ = ["python_page"]

_WIDTH = 88
_ELSEWHERE = {
    "Generation": "options.md",
    "Loading": "options.md",
    "Result": "events.md#result",
    "RoundEvent": "events.md#roundevent",
    "Stats": "events.md#stats",
    "TokenEvent": "events.md#tokenevent",
    "BeamResult": "events.md#beamresult",
    "ForerunError": "errors.md",
}
"""Names that have tables of their own."""
_OURS = {"Stream.hear", "Stats.count_pass", "Stats.count_draft", "Stats.add"}
_OURS |= {"Generation.has_penalties"}
"""Methods that only the package calls."""
_SECTIONS = ("Args", "Attributes", "Returns", "Raises", "Yields", "Example")


class _Written:
    """An annotation as it stands in the source: `inspect` would put it in quotes."""

    def __init__(self, text: object) -> None:
        self._text = text if isinstance(text, str) else getattr(text, "__name__", repr(text))

    def __repr__(self) -> str:
        return self._text


def python_page() -> Iterator[str]:
    """Yield the page's lines."""
    yield from ("# Python", "", *_prose(inspect.getdoc(forerun) or ""))
    first = ["load", "LanguageModel", "Stream"]
    rest = sorted(set(forerun.__all__) - {*first, "__version__"})
    for name in (*first, *rest):
        yield from _thing(f"forerun.{name}", getattr(forerun, name))
    yield from ("", "## Inside transformers", "", *_prose(inspect.getdoc(hf) or ""))
    for name in hf.__all__:
        yield from _thing(f"forerun.hf.{name}", getattr(hf, name), level=3)
    yield from ("", "## Drafters of your own", "")
    yield "In `forerun.drafters.protocol`; `add_drafter` takes a `Drafter` or `Guesser`."
    for name in protocol.__all__:
        yield from _thing(name, getattr(protocol, name), level=3)


def _thing(name: str, thing: Any, level: int = 2) -> Iterator[str]:
    short = name.rpartition(".")[2]
    yield from ("", f"{'#' * level} {name}", "")
    if inspect.isfunction(thing):
        yield from _signature(name, thing)
    said = inspect.getdoc(thing) or ""
    if short in _ELSEWHERE:
        page = _ELSEWHERE[short]
        said = said.partition("\nAttributes:\n")[0].rstrip()
        said += f"\n\nIts table: [{page.partition('.')[0]}]({page})."
    yield from _prose(said)
    if inspect.isclass(thing):
        for method, value in _members(short, thing):
            yield from ("", f"{'#' * (level + 1)} {short}.{method}", "")
            if isinstance(value, property):
                gives = value.fget.__annotations__["return"]
                yield from ("```text", f"{method}: {gives}", "```", "")
            else:
                yield from _signature(method, value)
            yield from _prose(inspect.getdoc(value) or "")


def _members(short: str, thing: type) -> Iterator[tuple[str, Any]]:
    """Its own public methods and properties, in the order of the source."""
    for base in reversed(thing.__mro__):
        is_told = base is not thing and base.__name__ in protocol.__all__
        if is_told or not base.__module__.startswith("forerun"):
            continue
        for name, value in vars(base).items():
            value = getattr(value, "__func__", value)  # of a class method
            is_shown = isinstance(value, property) or inspect.isfunction(value)
            if is_shown and not name.startswith("_") and f"{short}.{name}" not in _OURS:
                yield name, value


def _signature(name: str, function: Any) -> Iterator[str]:
    """A function's call, a parameter a line where one line is too short."""
    signature = inspect.signature(function)
    parameters = [
        parameter.replace(annotation=_Written(parameter.annotation))
        if parameter.annotation is not parameter.empty
        else parameter
        for parameter in signature.parameters.values()
        if parameter.name not in ("self", "cls")
    ]
    gives = signature.return_annotation
    whole = signature.replace(parameters=parameters, return_annotation=_Written(gives))
    text = f"{name}{whole}"
    if len(text) > _WIDTH:
        inner, _, after = text[len(name) + 1 :].rpartition(") -> ")
        lines = [f"    {part}," for part in _parted(inner)]
        text = "\n".join([f"{name}(", *lines, f") -> {after}"])
    yield from ("```text", *text.splitlines(), "```", "")


def _parted(text: str) -> list[str]:
    """Split at the commas that stand in no brackets."""
    parts, depth, start = [], 0, 0
    for place, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
    return [*parts, text[start:].strip()]


def _prose(docstring: str) -> Iterator[str]:
    """A docstring as Markdown: sections of names become lists, an example a block."""
    section = ""
    for line in docstring.splitlines():
        head = line.removesuffix(":")
        if head in _SECTIONS and line.endswith(":"):
            section = head
            yield from (f"**{head}**", "")
            if section == "Example":
                yield "```text"
        elif section == "Example":
            if not line.strip():
                yield "```"
                section = ""
            yield line[4:]
        elif section:
            item = re.match(r"    (\**\w+): (.+)", line)
            yield f"- `{item[1]}`: {item[2]}" if item else f"  {line.strip()}".rstrip()
            section = section if line.strip() else ""
        else:
            yield line
    if section == "Example":
        yield "```"
