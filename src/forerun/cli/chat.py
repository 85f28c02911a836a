"""`forerun chat`: a conversation in the terminal."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from rich.text import Text

from forerun.cli.consoles import read_input, stderr
from forerun.cli.generate import Printer, run_stream
from forerun.cli.memory import check_kept, keep_store, with_prediction
from forerun.cli.options import with_options
from forerun.cli.receipt import print_receipt
from forerun.cli.waiting import open_model
from forerun.config import Generation, Loading, check_together
from forerun.errors import OptionError, PromptError, TemplateError
from forerun.events import Result
from forerun.printable import printable

if TYPE_CHECKING:
    from forerun.api import LanguageModel

__all__ = ["chat"]

_HELP = "/show colours who wrote what, /clear begins anew, /exit ends; Ctrl-C stops an answer."


@with_options
def chat(loading: Loading, generation: Generation) -> None:
    """Talk with the model, turn by turn."""
    _check(generation)
    check_together(loading, generation)
    check_kept(loading)
    generation = with_prediction(generation)
    lm = open_model(loading, begin=generation.begin)
    if lm.model.chat_template is None:
        raise lm.model.template_error or TemplateError(
            f"{lm.model.name} has no chat template, so it cannot hold a conversation.",
            "Use `forerun generate --raw` with it.",
        )
    _say(_HELP)
    conversation = _Conversation(lm, generation)
    while (line := _read_line()) is not None and line != "/exit":
        conversation.hear(line)
    keep_store(lm)


def _check(generation: Generation) -> None:
    """Refuse what a conversation in a terminal has no use for."""
    if generation.raw:
        raise OptionError("A chat goes through the model's template, and --raw leaves it out.")
    if generation.top_logprobs:
        what = f"A chat shows no log-probabilities: top_logprobs = {generation.top_logprobs}."
        raise OptionError(what, "Leave it out, or use `forerun generate --json`.")


class _Conversation:
    """The turns so far; a turn that fails is taken back, the others stay."""

    def __init__(self, lm: LanguageModel, generation: Generation) -> None:
        self._lm = lm
        self._generation = generation
        self._messages: list[dict[str, object]] = []
        self._shows = False

    def hear(self, line: str) -> None:
        """Do what a line of the user says."""
        if line == "/clear":
            self._messages.clear()
            _say("A new conversation.")
        elif line == "/show":
            self._shows = not self._shows
            _say(f"Colours and receipts are {'on' if self._shows else 'off'}.")
        elif line.startswith("/"):
            _say(f"There is no {line.split()[0]}. {_HELP}")
        elif line:
            self._answer(line)

    def _answer(self, line: str) -> None:
        self._messages.append({"role": "user", "content": line})
        try:
            stream = self._lm.stream(self._messages, **dict(self._generation))
        except (PromptError, TemplateError) as error:
            self._messages.pop()
            _say(f"{error} The conversation is kept; ask something else, or /clear it.")
            return
        result = run_stream(stream, Printer(coloured=self._shows))
        self._messages.append({"role": "assistant", "content": result.text})
        if self._shows:
            print_receipt(stderr(), result)
        _explain_end(result)


def _explain_end(result: Result) -> None:
    if result.finish_reason == "interrupted":
        _say("Stopped; the answer so far is kept.")
    elif result.finish_detail == "context":
        _say("The context is full: the answer is cut here. /clear begins a new conversation.")
    elif result.finish_detail == "max_tokens":
        _say("Cut at --max-tokens.")


def _read_line() -> str | None:
    """The next line without the blanks around it; None at the end of the input."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        line = read_input(line=True)
        return line.strip() if line else None
    with suppress(ImportError):
        import readline  # noqa: F401 (from then on, `input` edits and remembers lines)
    try:
        return input("> ").strip()
    except EOFError:
        return None


def _say(what: str) -> None:
    stderr().print(Text(printable(what), "dim"))
