"""Words that have no place in a published file: machine paths, issue numbers, registry hosts."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def spell(*words: str) -> list[str]:
    """Words written with a bar inside, so that this file does not contain what it looks for."""
    return [word.replace("|", "") for word in words]


MACHINE = spell("/wo|rk/", "/ro|ot/", "/op|t/")
HOSTS = spell("py|pi.org", "python|hosted.org", "download.py|torch.org", "npm|js.org")
HOSTS += spell("deb.|debian.org", "crates|.io", "proxy.go|lang.org")
# A machine's path begins a word: behind a letter, dot or slash it is a relative path or a URL.
PATHS = rf"(?<![\w.~/-])(?:{'|'.join(map(re.escape, MACHINE))})"
THREADS = "|".join([r"\bissue\s+#?\d", r"\bissue\s+#", *spell(r"\bissues sh|ow\b")])
FORBIDDEN = re.compile(f"{PATHS}|{'|'.join(map(re.escape, HOSTS))}|{THREADS}", re.IGNORECASE)


def tracked() -> list[Path]:
    """Every file git tracks."""
    done = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, timeout=60, check=False
    )
    if done.returncode != 0:
        pytest.skip("not a git checkout: nothing is tracked")
    names = done.stdout.decode().split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def forbidden_in(data: bytes) -> list[str]:
    """Each forbidden word with its line number; a binary file has no words."""
    if b"\0" in data:
        return []
    lines = data.decode("utf-8", errors="replace").splitlines()
    return [
        f"{number}: {match.group()}"
        for number, line in enumerate(lines, start=1)
        for match in FORBIDDEN.finditer(line)
    ]


def test_no_forbidden_word_in_any_tracked_file() -> None:
    """The project speaks of itself alone."""
    found = [
        f"{path.relative_to(ROOT)}:{word}"
        for path in tracked()
        for word in forbidden_in(path.read_bytes())
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        *(f"see {path}main/x" for path in MACHINE),
        *(f"'{path}x'" for path in MACHINE),
        *(f"https://{host}/simple" for host in HOSTS),
        *spell("fixes Iss|ue #12", "of iss|ue 2", "fine\nbut iss|ues show 2"),
    ],
)
def test_the_search_finds_a_planted_word(text: str) -> None:
    """Each forbidden kind is found wherever it stands in a line."""
    assert len(forbidden_in(text.encode())) == 1


@pytest.mark.parametrize(
    "text",
    [
        "a network issue, an issue of trust",
        "transformers #32867",
        *spell("docs/op|t/page and src/wo|rk/x", "https://host.example/wo|rk/x"),
        "~/.cache and /home/me",
    ],
)
def test_the_search_leaves_plain_words_alone(text: str) -> None:
    """Issues in general, other projects' threads, relative paths and URLs may be named."""
    assert forbidden_in(text.encode()) == []


def test_binary_files_are_left_alone() -> None:
    """A model or an image is no text, whatever bytes it holds."""
    assert forbidden_in(b"\0" + MACHINE[0].encode()) == []
