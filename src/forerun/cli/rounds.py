"""The rounds of a text, drawn: what was guessed, what held, and who guessed it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from rich.table import Table
from rich.text import Text

from forerun.cli.receipt import style_of_drafter, style_of_target
from forerun.events import Drafted, RoundEvent, TokenEvent

__all__ = ["draw_rounds"]

_ROOT = -1


def draw_rounds(
    rounds: Sequence[RoundEvent],
    tokens: Sequence[TokenEvent],
    spell: Callable[[int], str],
    drafters: list[str],
    *,
    marks: bool = False,
) -> Table:
    """Return a table with a line for each round.

    A draft reads from left to right, the node that held or the likeliest one first; its siblings
    and what follows them stand in brackets. What held is in its drafter's colour, what did not is
    crossed out, and behind each guess is the chance it was given, in percent, where one was
    reckoned.

    Args:
        rounds: In their order.
        tokens: The text's.
        spell: Returns a token's text.
        drafters: Gathers who has drafted so far, each gets its own colour.
        marks: Put what did not hold between tildes as well, for where no colours show.
    """
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("round", "rows", "new"):
        table.add_column(name, justify="right", style="dim")
    guesses = "guessed, ~what failed~" if marks else "guessed"
    table.add_column(guesses, overflow="fold", ratio=3)
    table.add_column("the target's own", overflow="fold", ratio=1)
    draw = partial(_guess, spell, drafters, marks)
    own = {token.round: token for token in tokens if token.drafter is None}
    for one in rounds:
        guessed = Text(" ").join(_branches(one.drafted, _ROOT, draw))
        token = own.get(one.round)
        last = Text(f"{_shown(spell(token.token))} {token.source}") if token else Text()
        if token is not None:
            last.stylize(style_of_target(token.source))
        numbers = (str(one.round), str(len(one.drafted) + 1), str(one.emitted))
        table.add_row(*numbers, guessed, last)
    return table


def _branches(drafted: Sequence[Drafted], root: int, draw: Callable[[Drafted], Text]) -> list[Text]:
    """Return what stands below `root`, as pieces in reading order; a chain needs no brackets."""
    pieces: list[Text] = []
    while children := [i for i, node in enumerate(drafted) if node.parent == root]:
        first, *others = sorted(children, key=lambda i: not drafted[i].accepted)
        pieces.append(draw(drafted[first]))
        for other in others:
            below = _branches(drafted, other, draw)
            branch = Text(" ").join([draw(drafted[other]), *below])
            pieces.append(Text("[", "dim").append_text(branch).append("]", "dim"))
        root = first
    return pieces


def _guess(spell: Callable[[int], str], drafters: list[str], marks: bool, node: Drafted) -> Text:
    style = style_of_drafter(node.drafter, drafters)
    word = _shown(spell(node.token))
    word = f"~{word}~" if marks and not node.accepted else word
    text = Text(word, style if node.accepted else f"dim strike {style}")
    if node.expected is not None:
        text.append(f" {100 * node.expected:.0f}", "dim")
    return text


def _shown(text: str) -> str:
    """A token's text with its spaces and breaks made visible."""
    text = text.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥")
    return text if text.isprintable() and text else repr(text)[1:-1] or "·"
