"""How text is shown: a hostile name steers no terminal, and one thing is not called several."""

from __future__ import annotations

__all__ = ["counted", "printable"]


def printable(text: str) -> str:
    """Return text with all that can't be printed escaped, but for the ends of lines."""
    if text.isprintable():
        return text
    shown = (
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text
    )
    return "".join(shown)


def counted(count: int, noun: str) -> str:
    """Return a number of things: "1 text", "2 texts", "2 passes"."""
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"
