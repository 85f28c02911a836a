"""Who wrote each token, in colour, and the receipt: what a text cost and what is promised."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from forerun.events import Result, Source, Stats, TokenEvent
from forerun.printable import counted, harmless, printable

__all__ = ["coloured", "legend", "marked", "print_receipt", "style_of", "style_of_drafter"]
__all__ += ["style_of_target"]

_ACCEPTED = ("green", "cyan", "blue", "bright_green", "bright_cyan", "bright_blue")
_TARGET = {"corrected": "yellow", "bonus": "magenta"}
_MARKS = {"corrected": "«{}»", "bonus": "‹{}›", "accepted": "{}"}  # where there are no colours
_MEANING = {
    "corrected": "the target's own, where the draft failed",
    "bonus": "the target's own, behind a draft that held to its end or where nothing was drafted",
}


def style_of(token: TokenEvent, drafters: list[str]) -> str:
    """The colour of a token; `drafters` gathers who has written so far, each gets its own."""
    if token.drafter is None:
        return style_of_target(token.source)
    return style_of_drafter(token.drafter, drafters)


def style_of_target(source: Source) -> str:
    """The colour of the target's own tokens."""
    return _TARGET[source]


def style_of_drafter(drafter: str, drafters: list[str]) -> str:
    """The colour of a drafter; `drafters` gathers those met so far."""
    if drafter not in drafters:
        drafters.append(drafter)
    return _ACCEPTED[drafters.index(drafter) % len(_ACCEPTED)]


def coloured(tokens: Iterable[TokenEvent], drafters: list[str], *, marks: bool = False) -> Text:
    """The text of these tokens, each piece in the colour of who wrote it.

    Args:
        tokens: In their order.
        drafters: Gathers who has written so far, each gets its own colour.
        marks: Put the target's own tokens in quotes as well, for where no colours show.
    """
    text = Text()
    for token in tokens:
        shown = harmless(token.text)
        shown = marked(shown, token.source) if marks else shown
        text.append(shown, style_of(token, drafters))
    return text


def marked(text: str, source: Source) -> str:
    """Return a token's text in the quotes of who wrote it; blanks are left as they are."""
    return _MARKS[source].format(text) if text.strip() else text


def legend(drafters: list[str], *, marks: bool = False) -> Text:
    """What the colours mean, or the marks: a line each."""
    accepted = [
        (f"■ accepted from {printable(name)}", _ACCEPTED[index % len(_ACCEPTED)])
        for index, name in enumerate(drafters)
    ]
    if marks and drafters:
        accepted = [(f"no mark: accepted from {printable(', '.join(drafters))}", _ACCEPTED[0])]
    own = [
        (f"{_MARKS[source].format('…') if marks else '■'} {source}: {_MEANING[source]}", style)
        for source, style in _TARGET.items()
    ]
    return Text("\n").join(Text(*part) for part in accepted + own)


def print_receipt(console: Console, result: Result) -> None:
    """Print what a text cost and what is promised about it."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    for name, value in _lines(result):
        table.add_row(Text(printable(name)), Text(printable(value)))
    console.print(table)


def _lines(result: Result) -> Iterable[tuple[str, str]]:
    stats = result.stats
    yield "tokens", f"{stats.tokens} in {counted(stats.passes, 'pass')} of the target"
    yield "tokens per pass", f"{stats.tokens_per_pass:.2f}"
    yield "acceptance", _kept(stats.accepted, stats.drafted)
    for drafter, (drafted, accepted) in stats.by_drafter.items():
        if len(stats.by_drafter) > 1:
            yield f"  {drafter}", _kept(accepted, drafted)
    yield "tokens per second", f"{stats.tokens_per_second:.1f}"
    yield "time", _times(stats)
    yield "weights read", f"{stats.weight_bytes_per_token / 1e6:.1f} MB per token"
    yield "guarantee", result.guarantee + ("" if result.exact else ": NOT the target's exact law")
    yield "target", result.target
    yield "seed", str(result.seed)
    yield "ended by", result.finish_detail or result.finish_reason


def _kept(accepted: int, drafted: int) -> str:
    share = f" ({accepted / drafted:.0%})" if drafted else ""
    return f"{accepted} of {counted(drafted, 'drafted token')}{share}"


def _times(stats: Stats) -> str:
    drafting = stats.draft_seconds + stats.choice_seconds
    return (
        f"{stats.seconds:.2f} s, of it {drafting:.2f} s drafting; "
        f"prompt of {counted(stats.prompt_tokens, 'token')} {stats.prompt_seconds:.2f} s"
    )
