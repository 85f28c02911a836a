"""`forerun generate --beams N`: the likeliest text that beam search finds."""

from __future__ import annotations

from forerun.cli.consoles import print_json, stdout, write
from forerun.cli.memory import keep_store
from forerun.cli.waiting import open_model
from forerun.config import BeamGeneration, Loading
from forerun.printable import harmless

__all__ = ["run_beams"]


def run_beams(prompt: str, loading: Loading, asked: BeamGeneration, *, as_json: bool) -> None:
    """Print the best beam's text; or all beams, and what they cost, as one line of JSON."""
    lm = open_model(loading)
    result = lm.beam_search(prompt, **dict(asked))
    keep_store(lm)
    if as_json:
        print_json(result.as_json())
        return
    text = result.beams[0].text
    write((harmless(text) if stdout().is_terminal else text) + "\n")
