"""What the documentation shows is what happens: every example is run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SETS_UP = ("make demo", "make test")  # they are what runs this test
INTERACTIVE = ("chat",)
LONG = ("audit",)  # has tests of its own


def blocks(language: str) -> list[tuple[str, str]]:
    """Every fenced block of a language, as (page and line, content)."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            line = text[: match.start()].count("\n") + 1
            found.append((f"{page.relative_to(ROOT)}:{line}", match[1]))
    return found


def commands() -> list[tuple[str, str]]:
    """Every line of every shell block, without its comment."""
    return [
        (place, line.split("  #")[0].strip())
        for place, block in blocks("sh")
        for line in block.splitlines()
        if line.strip()
    ]


@pytest.mark.model
@pytest.mark.parametrize(("place", "code"), blocks("python"), ids=lambda v: v.split("\n")[0][:40])
def test_python_examples_run(place: str, code: str) -> None:
    """A block of Python runs as it stands, asserts included."""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"{place}:\n{run.stderr}"
    assert run.stdout.strip(), f"{place} shows nothing"


@pytest.mark.model
@pytest.mark.parametrize(("place", "command"), sorted(set(commands())))
def test_commands_run(place: str, command: str, tmp_path: Path) -> None:
    """A command runs and ends well; what can't be run here is at least there, with its flags."""
    if command in SETS_UP:
        assert command.split()[1] in (ROOT / "Makefile").read_text(encoding="utf-8")
        return
    words = shlex.split(command)
    assert Path(words[0]).name == "forerun", f"{place}: {command}"
    arguments = words[1:]
    if arguments[0] in INTERACTIVE + LONG:
        arguments.append("--help")
    run = subprocess.run(
        [sys.executable, "-m", "forerun", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert run.returncode == 0, f"{place}: {command}\n{run.stderr}"
    assert run.stdout.strip()


def test_links_lead_somewhere() -> None:
    """Every relative link of the documentation names a file that is there."""
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []


def test_the_two_readmes_show_the_same() -> None:
    """The Portuguese README has the English one's commands and links."""
    pages = [(ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.pt-BR.md")]
    shown = [
        re.findall(r"^\.venv/bin/forerun [^#\n]*|^make \w+", page, re.MULTILINE) for page in pages
    ]
    assert [s.strip() for s in shown[0]] == [s.strip() for s in shown[1]] != []
    links = [set(re.findall(r"\]\((docs[^)]*)\)", page)) for page in pages]
    assert links[0] == links[1] != set()
