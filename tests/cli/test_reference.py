from __future__ import annotations

import re
from pathlib import Path

import pytest

import forerun
from forerun import errors
from forerun.bench.options import Timing
from forerun.cli.main import COMMANDS
from forerun.cli.options import flag_of, variable_of
from forerun.cli.reference import FOLDER, pages, write
from forerun.config import Generation, Loading
from forerun.core.rules import RULES
from forerun.drafters.table import DRAFTERS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", sorted(pages()))
def test_the_checked_in_page_is_what_the_code_says(name: str) -> None:
    """The reference cannot drift; `make docs` writes it anew."""
    assert (ROOT / FOLDER / name).read_text("utf-8") == pages()[name], "run `make docs`"


def test_no_page_is_left_over() -> None:
    """Every file in the folder is generated."""
    assert {path.name for path in (ROOT / FOLDER).iterdir()} == set(pages())


def test_pages_are_written_whole(tmp_path: Path) -> None:
    """What `write` leaves in a folder is what `pages` returns."""
    write(tmp_path / "new")
    assert {p.name: p.read_text("utf-8") for p in (tmp_path / "new").iterdir()} == pages()


def test_everything_declared_is_in_the_reference() -> None:
    """Each option, command, drafter, rule and error has its line."""
    text = pages()
    for options in (Loading, Generation, Timing):
        for name, field in options.model_fields.items():
            rows = [line for line in text["options.md"].splitlines() if f"`{name}`" in line]
            row = next(line for line in rows if (field.description or "?") in line)
            assert f"`{flag_of(name)}`" in row
            assert f"`{variable_of(name)}`" in row
    assert all(f"## forerun {command.__name__}" in text["cli.md"] for command in COMMANDS)
    assert "## forerun bench pass\n" in text["cli.md"]
    assert all(f"### {name}\n" in text["drafters-and-rules.md"] for name in DRAFTERS)
    assert all(f"### Rule {name}\n" in text["drafters-and-rules.md"] for name in RULES)
    assert all(f"`{name}`" in text["errors.md"] for name in errors.__all__)
    assert all(f"| {code} |" in text["errors.md"] for code in (1, 2, 3))
    python = text["python.md"]
    assert all(f"## forerun.{name}\n" in python for name in set(forerun.__all__) - {"__version__"})
    for method in ("generate", "generate_batch", "stream", "pass_cost", "forget", "save_store"):
        assert f"### LanguageModel.{method}\n" in python
    assert "### LanguageModel.add_drafter\n" in python
    assert "generate(prompt: Prompt, **options: Any) -> Result" in python
    for word in ("`tokens_per_pass`", "`finish_reason`", "`drafter`", "`weight_bytes_per_token`"):
        assert word in text["events.md"]


def test_every_public_thing_is_explained() -> None:
    """No heading of the page on Python is followed by another, or by a signature alone."""
    for piece in pages()["python.md"].split("\n#")[1:]:
        title, _, body = piece.partition("\n")
        said = re.sub(r"```text\n.*?```", "", body, flags=re.DOTALL).strip()
        assert len(said) > 10, title
