"""What is tested is what is shipped: `make test` runs against the built wheel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import forerun.errors
from forerun.native import load

ROOT = Path(__file__).parents[2]


def test_forerun_comes_from_where_it_should() -> None:
    """From the unpacked wheel under `make test`, else from this checkout's source."""
    expected = Path(os.environ.get("FORERUN_UNDER_TEST", ROOT / "src"))
    assert Path(forerun.errors.__file__).is_relative_to(expected)


def test_the_package_says_that_it_is_typed() -> None:
    """Type checkers read the annotations only where `py.typed` lies beside the code."""
    assert (Path(forerun.errors.__file__).parent / "py.typed").exists()


def test_the_wheel_holds_the_compiled_module() -> None:
    """Under `make test` it is the wheel's own; a checkout alone may do without."""
    wheel = os.environ.get("FORERUN_UNDER_TEST")
    if wheel is None:
        pytest.skip("the sources are tested, not the wheel")
    assert Path(str(load().__file__)).is_relative_to(wheel)
