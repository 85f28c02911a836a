from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import forerun
from forerun.cli.receipt import coloured, legend, print_receipt, style_of
from forerun.events import Result, Source, Stats, TokenEvent

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def token(text: str, source: Source, drafter: str | None = None) -> TokenEvent:
    return TokenEvent(0, 0, 0, text, source, drafter, None, 0.0, (), 0)


WRITTEN = (
    token("a", "accepted", "suffix"),
    token("b", "corrected"),
    token("c", "accepted", "bigram"),
    token("d", "bonus"),
    token("e", "accepted", "suffix"),
)


def test_each_writer_has_a_colour_of_its_own() -> None:
    """Every drafter, corrected and bonus look different, and the same writer the same."""
    drafters: list[str] = []
    styles = [style_of(each, drafters) for each in WRITTEN]
    assert len(set(styles)) == 4
    assert styles[0] == styles[4]
    assert drafters == ["suffix", "bigram"]


def test_without_colours_marks_tell_who_wrote_each_token() -> None:
    """Corrected and bonus tokens stand in quotes of their own, which the legend explains."""
    assert coloured(WRITTEN, [], marks=True).plain == "a«b»c‹d›e"
    shown = legend(["suffix", "bigram"], marks=True).plain
    assert all(
        part in shown
        for part in ("no mark: accepted from suffix, bigram", "«…» corrected", "‹…› bonus")
    )


def test_the_coloured_text_is_the_text() -> None:
    """Colours add nothing and lose nothing; each piece has its writer's."""
    drafters: list[str] = []
    text = coloured(WRITTEN, drafters)
    assert text.plain == "abcde"
    spans = {text.plain[span.start : span.end]: span.style for span in text.spans}
    assert spans == {each.text: style_of(each, drafters) for each in WRITTEN}


def test_the_legend_names_every_colour() -> None:
    """All drafters seen, corrected and bonus, each in its own colour."""
    said = legend(["suffix", "bigram"])
    for word in ("accepted from suffix", "accepted from bigram", "corrected", "bonus"):
        assert word in said.plain
    drafters: list[str] = []
    assert {style_of(each, drafters) for each in WRITTEN} <= {s.style for s in said.spans}


def receipt(result: Result) -> str:
    paper = io.StringIO()
    print_receipt(Console(file=paper, width=100), result)
    return " ".join(paper.getvalue().split())


def test_the_receipt_says_what_it_cost_and_what_is_promised() -> None:
    """Every figure is the one of the statistics, by drafter too."""
    stats = Stats(tokens=10, passes=4, seconds=2.0, weight_bytes=40_000_000)
    for drafter, accepted in (("suffix", True), ("suffix", False), ("bigram", True)):
        stats.count_draft(drafter, accepted)
    result = Result(0, "t", (1,), "stop", "end of text", True, "bitwise", 7, (), stats, "native")
    said = receipt(result)
    for words in (
        "tokens 10 in 4 passes",
        "tokens per pass 2.50",
        "acceptance 2 of 3 drafted tokens (67%)",
        "suffix 1 of 2 drafted tokens (50%)",
        "bigram 1 of 1 drafted token (100%)",
        "tokens per second 5.0",
        "4.0 MB per token",
        "guarantee bitwise",
        "target native",
        "seed 7",
        "ended by end of text",
    ):
        assert words in said
    assert "NOT" not in said


def test_an_inexact_receipt_says_so() -> None:
    """Lenient is not to be overlooked; a text of no drafts has no acceptance to boast of."""
    result = Result(0, "t", (1,), "stop", "x", False, "lenient", 7, (), Stats(tokens=1, passes=1))
    assert "lenient: NOT the target's exact law" in receipt(result)
    assert "0 of 0 drafted tokens tokens per second" in receipt(result)


@pytest.mark.parametrize("mode", ["--show", "--compare"])
def test_a_terminal_sees_the_same_text_in_colour(
    run: Any, tiny: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """With colours stripped, what a terminal shows while it grows is the text."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    lm = forerun.load(str(tiny))
    truth = lm.generate("the then he in", max_tokens=9, seed=1, banned_tokens=range(2, 40))
    banned = ",".join(map(str, range(2, 40)))
    ask = ("generate", "the then he in", "--max-tokens=9", "--seed=1", "--banned-tokens", banned)
    result = run(*ask, mode)
    assert result.exit_code == 0
    assert "\x1b[" in result.stdout
    assert truth.text in ANSI.sub("", result.stdout)


def test_a_terminal_without_colours_sees_marks(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Around the target's own tokens, and around guesses that failed; a pipe gets the text."""
    ask = ("generate", "the then he in", "--max-tokens=9", "--seed=1", "--drafter=random")
    ask += ("--draft-length=3", "--show")
    piped = run(*ask)
    assert "«" not in piped.stdout
    assert "~" in piped.stderr
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = run(*ask)
    assert "«" not in ANSI.sub("", coloured.stdout)
    assert "~" not in ANSI.sub("", coloured.stderr)
    monkeypatch.setenv("NO_COLOR", "1")
    marked = run(*ask)
    assert "«" in ANSI.sub("", marked.stdout)
    assert "«…» corrected" in ANSI.sub("", marked.stderr)
    assert "~" in ANSI.sub("", marked.stderr)
