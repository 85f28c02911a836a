"""`forerun generate --compare`: the same text written plainly and speculatively, side by side."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from itertools import zip_longest
from typing import TYPE_CHECKING

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from forerun.cli.consoles import has_colours, stderr, stdout
from forerun.cli.guard import INTERRUPTED
from forerun.cli.interrupt import Interruption, patient
from forerun.cli.memory import keep_store
from forerun.cli.receipt import coloured, legend, print_receipt
from forerun.cli.waiting import open_model
from forerun.config import Generation, Loading
from forerun.errors import OptionError
from forerun.events import Result
from forerun.printable import counted

if TYPE_CHECKING:
    from forerun.api import LanguageModel, Stream

__all__ = ["run_compare"]


def run_compare(prompt: str, loading: Loading, generation: Generation) -> None:
    """Write the text twice with one seed; exit code 1 if the two differ in any token."""
    _check(generation)
    seed = secrets.randbits(64) if generation.seed is None else generation.seed
    lm = open_model(loading, begin=generation.begin)
    plainly = generation.replace(seed=seed, drafter="none", draft_width=1)
    results = _write_both(lm, prompt, [plainly, generation.replace(seed=seed)])
    keep_store(lm)
    if any(result.finish_reason == "interrupted" for result in results) or len(results) < 2:
        raise SystemExit(INTERRUPTED)
    plain, speculative = results
    _conclude(stdout(), plain, speculative)
    print_receipt(stderr(), speculative)
    if plain.token_ids != speculative.token_ids:
        raise SystemExit(1)


def _check(generation: Generation) -> None:
    if generation.drafter.strip() == "none":
        raise OptionError("--compare with drafter 'none' compares nothing.", "Name a drafter.")
    if generation.rule == "lenient" or (generation.rule != "match" and generation.temperature > 0):
        raise OptionError(
            f"--compare with rule {generation.rule!r}: the same law, but not the same tokens.",
            "Use rule match, or an exact rule at temperature 0.",
        )


def _write_both(lm: LanguageModel, prompt: str, asks: list[Generation]) -> list[Result]:
    """Write one after the other, so that neither slows the other; a terminal sees them grow."""
    console = stdout()
    panes: list[Panel] = []
    drafters: list[str] = []
    results: list[Result] = []
    with patient() as interruption, ExitStack() as stack:
        live = None
        if console.is_terminal:
            live = stack.enter_context(Live(console=console, transient=True, refresh_per_second=8))
        for title, ask in zip(("plain", "speculative"), asks, strict=True):
            panes.append(Panel(""))
            for result in _growing(lm.stream(prompt, **dict(ask)), interruption):
                panes[-1] = _pane(title, result, drafters, marks=not has_colours(console))
                if live is not None:
                    live.update(_side_by_side(console, panes, drafters))
            results.append(result)
            if interruption.came:
                break
    console.print(_side_by_side(console, panes, drafters))
    return results


def _growing(stream: Stream, interruption: Interruption) -> Iterator[Result]:
    """The text after each round, at last the whole."""
    with closing(stream), suppress(KeyboardInterrupt):  # before there was any text
        for _ in interruption.heard(stream.events()):
            if not stream.has_news:
                yield stream.result
                if interruption.came:
                    break
    yield stream.result


def _pane(title: str, result: Result, drafters: list[str], *, marks: bool) -> Panel:
    stats = result.stats
    speed = f"{stats.tokens_per_second:.1f} tokens/s, {stats.tokens_per_pass:.2f} per pass"
    # All of the plain text is the target's own: only the speculative one wants marks.
    marks = marks and result.stats.drafted > 0
    text = coloured(result.tokens, drafters, marks=marks)
    return Panel(text, title=title, subtitle=speed, title_align="left", subtitle_align="left")


def _side_by_side(console: Console, panes: list[Panel], drafters: list[str]) -> RenderableType:
    width = console.width // 2 - 1
    columns = Columns(panes, width=width) if console.width >= 80 else Group(*panes)
    return Group(columns, legend(drafters, marks=not has_colours(console)))


def _conclude(console: Console, plain: Result, speculative: Result) -> None:
    ours, theirs = speculative, plain
    if ours.token_ids != theirs.token_ids:
        pairs = enumerate(zip_longest(ours.token_ids, theirs.token_ids))
        place = next(index for index, (mine, other) in pairs if mine != other)
        console.print(Text(f"DIFFERENT from token {place} on: a broken promise.", "bold red"))
        return
    passes = f"{counted(ours.stats.passes, 'pass')} of the target instead of {theirs.stats.passes}"
    time = f"{ours.stats.seconds:.2f} s instead of {theirs.stats.seconds:.2f} s"
    same = f"The same {counted(len(ours.token_ids), 'token')}: {passes}, {time}."
    console.print(Text(same, "bold green"), soft_wrap=True)
