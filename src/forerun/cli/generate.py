"""`forerun generate`: one prompt, one text, streamed as it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from forerun.beam.options import Beaming
from forerun.cli.beams import as_beams, run_beams
from forerun.cli.consoles import has_colours, print_json, read_input, stderr, stdout, write
from forerun.cli.guard import INTERRUPTED
from forerun.cli.interrupt import patient
from forerun.cli.memory import check_kept, keep_store, with_prediction
from forerun.cli.options import with_options
from forerun.cli.receipt import legend, marked, print_receipt, style_of
from forerun.cli.waiting import open_model
from forerun.config import Generation, Loading, check_together
from forerun.errors import ForerunError, OptionError
from forerun.events import Event, Result, RoundEvent, Source, TokenEvent
from forerun.printable import harmless

if TYPE_CHECKING:
    from forerun.api import Stream

__all__ = ["Printer", "generate", "run_stream"]


@with_options
def generate(
    prompt: Annotated[
        str,
        typer.Argument(metavar="PROMPT", help="The text to go on from; - reads standard input."),
    ],
    loading: Loading,
    generation: Generation,
    beaming: Beaming,
    show: Annotated[
        bool,
        typer.Option(
            "--show", help="Colour tokens by who wrote them; draw each round; print a receipt."
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line: rounds, tokens, the result.")
    ] = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="Write it plainly too, and show both side by side.")
    ] = False,
) -> None:
    """Write a text that goes on from PROMPT."""
    _check(generation, show, compare, as_json=as_json)
    check_together(loading, generation)
    check_kept(loading)
    generation = with_prediction(generation)
    if beaming.beams is not None:
        run_beams(prompt, loading, as_beams(generation, beaming, show, compare), as_json=as_json)
        return
    text = read_input() if prompt == "-" else prompt
    if compare:
        from forerun.cli.compare import run_compare

        run_compare(text, loading, generation)
        return
    lm = open_model(loading, begin=generation.begin)
    stream = lm.stream(text, **dict(generation))
    printer = _JsonPrinter() if as_json else Printer(coloured=show)
    result = run_stream(stream, printer)
    keep_store(lm)
    if show:
        from forerun.cli.rounds import draw_rounds

        bytes_of = lm.model.tokenizer.token_bytes
        console = stderr()
        console.print(
            draw_rounds(
                printer.rounds,
                result.tokens,
                lambda token: bytes_of(token).decode(errors="replace"),
                printer.drafters,
                marks=not has_colours(console),
            )
        )
        print_receipt(console, result)
    if result.finish_reason == "interrupted":
        raise SystemExit(INTERRUPTED)


def _check(generation: Generation, show: bool, compare: bool, *, as_json: bool) -> None:
    """Refuse flags that leave each other without effect."""
    if as_json and (show or compare):
        other = "--show" if show else "--compare"
        raise OptionError(f"--json and {other} contradict each other.", "Leave one out.")
    if show and compare:
        what = "--compare colours both texts and prints a receipt, and draws no rounds."
        raise OptionError(what, "Leave --show or --compare out.")
    if generation.top_logprobs and not as_json:
        what = f"Only --json tells log-probabilities: top_logprobs = {generation.top_logprobs}."
        raise OptionError(what, "Add --json, or leave it out.")


class Printer:
    """Writes a text to stdout as it grows.

    Args:
        coloured: Each token in the colour of who wrote it, a legend at the end.

    Attributes:
        drafters: Who has written so far, in the order of their colours.
        rounds: All rounds of a coloured text.
    """

    def __init__(self, *, coloured: bool = False) -> None:
        self._coloured = coloured
        self._is_watched = stdout().is_terminal
        self._console = stdout() if coloured and self._is_watched else None
        # Where a terminal has no colours; what a pipe gets is the text and nothing else.
        self._marks = self._console is not None and not has_colours(self._console)
        self.drafters: list[str] = []
        self.rounds: list[RoundEvent] = []
        self._written = 0

    def hear(self, event: Event) -> None:
        """Write what this event brought."""
        if isinstance(event, TokenEvent):
            self._write(event.text, style_of(event, self.drafters), event.source)
        elif isinstance(event, RoundEvent) and self._coloured:
            self.rounds.append(event)

    def end(self, result: Result) -> None:
        """Write what was still held back, and end the line."""
        self._write(result.text[self._written :])
        write("\n")
        if self._coloured:
            stderr().print(legend(self.drafters, marks=self._marks))

    def _write(self, text: str, style: str = "", source: Source = "accepted") -> None:
        self._written += len(text)
        text = harmless(text) if self._is_watched else text
        text = marked(text, source) if self._marks else text
        if self._console is None or not text:
            write(text)
        else:
            self._console.print(Text(text, style), end="", soft_wrap=True)


class _JsonPrinter(Printer):
    """Writes every event as one line of JSON, the result last."""

    def hear(self, event: Event) -> None:
        if not isinstance(event, Result):
            print_json(event.as_json())

    def end(self, result: Result) -> None:
        print_json(result.as_json())


def run_stream(stream: Stream, printer: Printer) -> Result:
    """Print a text as it grows, until it ends or Ctrl-C ends it; return what there is of it."""
    with patient() as interruption:
        try:
            for event in interruption.heard(stream.events()):
                printer.hear(event)
                if interruption.came and not stream.has_news:  # a round is told to its end
                    break
        except KeyboardInterrupt:  # before there was any text, or the second one
            pass
        except ForerunError:
            # What was written before something broke stays, as after Ctrl-C.
            if stream.result.token_ids:
                printer.end(stream.result)
            raise
        finally:
            stream.close()
        printer.end(stream.result)
    return stream.result
