"""How text is shown."""

from __future__ import annotations

import pytest

from forerun.printable import counted, printable


@pytest.mark.parametrize(
    ("count", "noun", "said"),
    [(1, "text", "1 text"), (0, "text", "0 texts"), (2, "pass", "2 passes"), (1, "pass", "1 pass")],
)
def test_one_thing_is_not_called_several(count: int, noun: str, said: str) -> None:
    """And several are."""
    assert counted(count, noun) == said


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, and\nüber", "plain, and\nüber"),
        ("\x1b[2J\r\t", "\\x1b[2J\\r\\t"),
        ("a\u202eb\udc80", "a\\u202eb\\udc80"),
    ],
)
def test_what_steers_a_terminal_is_escaped(text: str, shown: str) -> None:
    """All but the ends of lines."""
    assert printable(text) == shown
