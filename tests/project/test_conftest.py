"""The markers' plumbing: what cannot run fails or is announced, and is never silently left out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"
SETTINGS = '[tool.pytest.ini_options]\nmarkers = ["model: it", "judge: it", "slow: it"]\n'


def run_suite(folder: Path, test: str, *, ci: str = "", pull: str = "") -> tuple[int, str]:
    """Exit code and output of pytest on one test file beside the project's conftest.

    The judges are two packages that do not exist; `pull` is the body of a stand-in for
    `forerun.models.pull.pull`.
    """
    conftest = CONFTEST.read_text("utf-8")
    absent = conftest.replace('("torch", "transformers")', '("no_such_judge", "nor_this")')
    assert absent != conftest
    files = {
        "pyproject.toml": SETTINGS,
        "conftest.py": absent,
        "test_planted.py": test,
        "forerun/__init__.py": "",
        "forerun/models/__init__.py": "",
        "forerun/models/pull.py": f"def pull(name):\n    {pull}\n" if pull else "",
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder,
        env={**os.environ, "CI": ci, "PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


JUDGE = """
import pytest

@pytest.mark.judge
def test_it(): pass

def test_other(): pass
"""

MODEL = """
import pytest

@pytest.mark.model
def test_it(): pass

@pytest.mark.model
def test_where(default_model): assert default_model == "smollm2.gguf"
"""


def test_judge_tests_without_judges_are_announced(tmp_path: Path) -> None:
    """Elsewhere than in CI they are left out, and the last lines of the run say so."""
    code, output = run_suite(tmp_path, JUDGE)
    assert code == 0
    assert "NOT RUN" in output
    assert "1 judge tests" in output
    assert "1 passed, 1 skipped" in output


def test_judge_tests_without_judges_fail_in_ci(tmp_path: Path) -> None:
    """In CI a judge that is missing is a failure."""
    code, output = run_suite(tmp_path, JUDGE, ci="true")
    assert code == 1
    assert "make judge" in output
    assert "skipped" not in output


def test_a_run_with_nothing_left_out_announces_nothing(tmp_path: Path) -> None:
    """The announcement is about judge tests, not about every skip."""
    test = "import pytest\n\ndef test_it(): pytest.skip('for its own reason')\n"
    code, output = run_suite(tmp_path, test)
    assert code == 0
    assert "NOT RUN" not in output


def test_model_tests_get_the_model(tmp_path: Path) -> None:
    """It is pulled before they run, and they can ask for its path."""
    code, output = run_suite(tmp_path, MODEL, pull="return f'{name}.gguf'")
    assert code == 0, output
    assert "2 passed" in output


@pytest.mark.parametrize("pull", ["raise OSError('no network')", ""])
def test_model_tests_without_a_model_fail(tmp_path: Path, pull: str) -> None:
    """A model that cannot be had is an error of each test, here and in CI."""
    code, output = run_suite(tmp_path, MODEL, pull=pull)
    assert code == 1
    assert "2 errors" in output
    assert "passed" not in output
    assert "skipped" not in output
