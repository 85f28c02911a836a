"""What the markers `model` and `judge` need, every instruction set, and Hypothesis' settings.

A `model` test gets the default model fetched before it runs, and fails if it cannot be had. A
`judge` test needs torch and transformers; without them it fails in CI, and elsewhere it is left
out and the last lines of the run say so.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when its library is imported: no test asks it

JUDGES = ("torch", "transformers")
LEFT_OUT = "no torch and transformers to judge by"

# No test asserts a time. In CI the examples are the same every time; elsewhere they vary.
settings.register_profile(
    "forerun",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("forerun")


@pytest.fixture(scope="session")
def default_model() -> Path:
    """The default model's file, fetched if it is not in the user's cache yet."""
    from forerun.models.pull import pull

    return pull("smollm2")


@pytest.fixture(params=["portable", "avx2", "avx512"], scope="module")
def each_instruction_set(request: pytest.FixtureRequest) -> Iterator[None]:
    """The tests of a module run on every instruction set that this machine has."""
    from forerun.native import load

    module = load()
    if request.param not in module.instruction_sets():
        pytest.skip(f"this machine has no {request.param}")
    own = module.instruction_set()
    module.use_instruction_set(request.param)
    yield
    module.use_instruction_set(own)


@pytest.fixture(autouse=True)
def _model(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("model"):
        request.getfixturevalue("default_model")


@pytest.fixture(autouse=True)
def _judge(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("judge") and missing_judges():
        if os.environ.get("CI"):
            pytest.fail(f"{LEFT_OUT}: {missing_judges()}; `make judge` says why.")
        pytest.skip(LEFT_OUT)


def missing_judges() -> list[str]:
    """The judges that are not installed."""
    return [name for name in JUDGES if importlib.util.find_spec(name) is None]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many judge tests did not run: a run without them is not a full one."""
    skipped = terminalreporter.stats.get("skipped", [])
    number = sum(LEFT_OUT in str(report.longrepr) for report in skipped)
    if number:
        terminalreporter.section("NOT RUN", red=True, bold=True)
        terminalreporter.write_line(
            f"{number} judge tests: {LEFT_OUT}. `make judge` installs them or says why not."
        )
