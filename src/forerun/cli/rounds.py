"""The rounds of a text, drawn: what was guessed, what held, and who guessed it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
    """
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("round", "rows", "new"):
        table.add_column(name, justify="right", style="dim")
    table.add_column("guessed", overflow="fold", ratio=3)
    table.add_column("the target's own", overflow="fold", ratio=1)
    own = {token.round: token for token in tokens if token.drafter is None}
    for one in rounds:
        guessed = Text(" ").join(_branches(one.drafted, _ROOT, spell, drafters))
        token = own.get(one.round)
        last = Text(f"{_shown(spell(token.token))} {token.source}") if token else Text()
        if token is not None:
            last.stylize(style_of_target(token.source))
        numbers = (str(one.round), str(len(one.drafted) + 1), str(one.emitted))
        table.add_row(*numbers, guessed, last)
    return table


def _branches(
    drafted: Sequence[Drafted], root: int, spell: Callable[[int], str], drafters: list[str]
) -> list[Text]:
    """Return what stands below `root`, as pieces in reading order; a chain needs no brackets."""
    pieces: list[Text] = []
    while children := [i for i, node in enumerate(drafted) if node.parent == root]:
        first, *others = sorted(children, key=lambda i: not drafted[i].accepted)
        pieces.append(_guess(drafted[first], spell, drafters))
        for other in others:
            below = _branches(drafted, other, spell, drafters)
            branch = Text(" ").join([_guess(drafted[other], spell, drafters), *below])
            pieces.append(Text("[", "dim").append_text(branch).append("]", "dim"))
        root = first
    return pieces


def _guess(node: Drafted, spell: Callable[[int], str], drafters: list[str]) -> Text:
    style = style_of_drafter(node.drafter, drafters)
    text = Text(_shown(spell(node.token)), style if node.accepted else f"dim strike {style}")
    if node.expected is not None:
        text.append(f" {100 * node.expected:.0f}", "dim")
    return text


def _shown(text: str) -> str:
    """A token's text with its spaces and breaks made visible."""
    text = text.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥")
    return text if text.isprintable() and text else repr(text)[1:-1] or "·"
