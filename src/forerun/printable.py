"""Text from outside, as it may be shown: a hostile name steers no terminal."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    """Return text with all that can't be printed escaped, but for the ends of lines."""
    if text.isprintable():
        return text
    shown = (
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text
    )
    return "".join(shown)
