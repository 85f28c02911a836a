"""Style, format and types: `make lint` is this file and its neighbours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*command: str, text: str | None = None) -> tuple[int, str]:
    """Exit code and output of a tool, run from the root so that it finds its settings."""
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        input=text,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    "command",
    [("ruff", "check", "."), ("ruff", "format", "--check", "."), ("mypy", "--strict")],
    ids=["check", "format", "types"],
)
def test_the_tree_is_clean(command: tuple[str, ...]) -> None:
    """Ruff's rules, docstrings among them, its format, and mypy's strict types."""
    code, output = run(*command)
    assert code == 0, output


def ruff_on(text: str, name: str = "src/forerun/planted.py") -> str:
    """What the project's rules say of a text at that place."""
    code, output = run("ruff", "check", "--stdin-filename", name, "-", text=text)
    assert (code == 0) == ("All checks passed" in output)
    return output


CLEAN = '''"""A module."""

from __future__ import annotations


def double(x: int) -> int:
    """Twice x."""
    return 2 * x
'''


def test_clean_code_passes() -> None:
    """The planted texts below fail for their fault alone."""
    assert "All checks passed" in ruff_on(CLEAN)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (CLEAN.replace('"""A module."""\n', ""), "D100"),
        (CLEAN.replace('    """Twice x."""\n', ""), "D103"),
        (CLEAN + "\n\nclass Thing:\n    x = 1\n", "D101"),
        (
            CLEAN + '\n\nclass Thing:\n    """It."""\n\n    def go(self) -> None:\n        ...\n',
            "D102",
        ),
        (CLEAN.replace("2 * x", "print(2 * x)"), "T201"),
        (CLEAN.replace("2 * x", "2 * y"), "F821"),
        (CLEAN.replace("Twice x.", "Twice x" + " and so on" * 12 + "."), "E501"),
        (CLEAN + "\n\ntry:\n    double(1)\nexcept:\n    double(2)\n", "E722"),
    ],
)
def test_the_rules_in_force_flag_a_fault(text: str, rule: str) -> None:
    """A missing docstring, a print, an unknown name, a long line, a bare except."""
    assert rule in ruff_on(text)


def test_the_format_check_can_fail() -> None:
    """Unformatted text is seen."""
    name = "src/forerun/planted.py"
    code, _ = run("ruff", "format", "--check", "--stdin-filename", name, "-", text="x   = 1\n")
    assert code == 1


def test_the_type_check_can_fail(tmp_path: Path) -> None:
    """A missing annotation and a wrong type are seen under the project's settings."""
    (tmp_path / "planted.py").write_text('def f(x):\n    return x\n\n\ny: int = "1"\n', "utf-8")
    code, output = run("mypy", "--strict", str(tmp_path / "planted.py"))
    assert code == 1
    assert "no-untyped-def" in output
    assert "assignment" in output
