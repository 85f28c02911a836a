"""`forerun generate --beams N`: the likeliest text that beam search finds."""

from __future__ import annotations

from forerun.beam.options import BeamGeneration, Beaming
from forerun.cli.consoles import print_json, read_input, stdout, write
from forerun.cli.memory import keep_store
from forerun.cli.waiting import open_model
from forerun.config import Generation, Loading
from forerun.errors import OptionError
from forerun.printable import harmless

__all__ = ["as_beams", "run_beams"]


def as_beams(generation: Generation, beaming: Beaming, show: bool, compare: bool) -> BeamGeneration:
    """Return what a search is asked for.

    Raises:
        OptionError: Something was asked for that does not go with beams.
    """
    for flag, is_given in (("--show", show), ("--compare", compare)):
        if is_given:
            what = f"{flag} follows a text as it grows, and beams are known at the end."
            raise OptionError(what, "Use --json to see all beams, or leave --beams out.")
    return BeamGeneration.make(**dict(generation), **dict(beaming))


def run_beams(prompt: str, loading: Loading, asked: BeamGeneration, *, as_json: bool) -> None:
    """Print the best beam's text; or all beams, and what they cost, as one line of JSON."""
    text = read_input() if prompt == "-" else prompt
    lm = open_model(loading, begin=asked.begin)
    result = lm.beam_search(text, **dict(asked))
    keep_store(lm)
    if as_json:
        print_json(result.as_json())
        return
    best = result.beams[0].text
    write((harmless(best) if stdout().is_terminal else best) + "\n")
