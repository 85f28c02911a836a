"""Rounds as a reader sees them."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from forerun.cli.rounds import draw_rounds
from forerun.events import Drafted, RoundEvent, TokenEvent


def token(index: int, token: int, round: int, drafter: str | None = None) -> TokenEvent:
    """Return a token of the text."""
    source = "accepted" if drafter else "corrected"
    return TokenEvent(0, index, token, "", source, drafter, None, 0.0, (), round)


def drawn(rounds: list[RoundEvent], tokens: list[TokenEvent], **how: bool) -> list[list[str]]:
    """Return the table's lines as words."""
    console = Console(width=120, no_color=True, file=StringIO(), record=True)
    console.print(
        draw_rounds(rounds, tokens, lambda t: [" a", "b\n", " ", "\x07", "é"][t], [], **how)
    )
    return [line.split() for line in console.export_text().splitlines()]


def test_a_tree_reads_from_left_to_right_what_held_first() -> None:
    """Siblings in brackets with what follows them; chances in percent; the target's own last."""
    tree = (
        Drafted(0, -1, "suffix", False, 0.61),
        Drafted(1, -1, "bigram", True, 0.2),
        Drafted(2, 0, "suffix", False, 0.5),
        Drafted(4, 1, "bigram", True, 0.1),
    )
    tokens = [token(0, 1, 3, "bigram"), token(1, 4, 3, "bigram"), token(2, 3, 3)]
    header, line = drawn([RoundEvent(0, 3, tree, 3)], tokens)
    assert header[:4] == ["round", "rows", "new", "guessed"]
    assert line == [
        "3",
        "5",
        "3",
        "b⏎",
        "20",
        "[␣a",
        "61",
        "␣",
        "50]",
        "é",
        "10",
        "\\x07",
        "corrected",
    ]


def test_a_round_without_a_draft_has_one_row() -> None:
    """And the token that the target wrote."""
    assert drawn([RoundEvent(0, 0, (), 1)], [token(0, 0, 0)])[1] == [
        "0",
        "1",
        "1",
        "␣a",
        "corrected",
    ]


def test_a_round_cut_by_the_texts_end_has_no_token_of_the_targets() -> None:
    """The draft's own token ended it; nobody reckoned a chance."""
    one = RoundEvent(0, 0, (Drafted(0, -1, "suffix", True), Drafted(1, 0, "suffix", False)), 1)
    assert drawn([one], [token(0, 0, 0, "suffix")])[1] == ["0", "3", "1", "␣a", "b⏎"]


def test_where_no_colours_show_what_failed_is_marked() -> None:
    """And only that; the head says how."""
    one = RoundEvent(0, 0, (Drafted(0, -1, "suffix", True), Drafted(1, 0, "suffix", False)), 1)
    head, line = drawn([one], [token(0, 0, 0, "suffix")], marks=True)
    assert head[3:6] == ["guessed,", "~what", "failed~"]
    assert line == ["0", "3", "1", "␣a", "~b⏎~"]
