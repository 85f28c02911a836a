"""How text is shown: a hostile name steers no terminal, and one thing is not called several."""

from __future__ import annotations

import re

__all__ = ["counted", "harmless", "printable", "shown"]

_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # but for tabs and ends of lines


def printable(text: str) -> str:
    """Return text with all that can't be printed escaped, but for the ends of lines."""
    if text.isprintable():
        return text
    shown = (
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text
    )
    return "".join(shown)


def harmless(text: str) -> str:
    """Return a model's text as a terminal may show it: what would steer it is escaped.

    All else stays, unlike in names: a joiner between two emoji can't be printed either.
    """
    return _STEERING.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def counted(count: int, noun: str) -> str:
    """Return a number of things: "1 text", "2 texts", "2 passes"."""
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"


def shown(value: object) -> str:
    """Return a wrong value as an error shows it; it may be of any length."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
