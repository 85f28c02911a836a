"""How text is shown."""

from __future__ import annotations

import pytest

from forerun.printable import counted, harmless, printable


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


def test_a_models_text_steers_no_terminal() -> None:
    """Its lines, tabs and joined emoji stay."""
    text = "a\tb\n\U0001f469\u200d\U0001f4bb \u0645\u06cc\u200c\u062e\n"
    assert harmless(text) == text
    assert harmless("\x1b]0;x\x07\x9b2J\r\x00") == "\\x1b]0;x\\x07\\x9b2J\\x0d\\x00"
