"""The error tree: its drawing, its exit codes, and what each error says."""

from __future__ import annotations

import pickle
import re

import pytest

from forerun import errors
from forerun.errors import ForerunError, OptionError, StartError, UsageError

TREE = [getattr(errors, name) for name in errors.__all__]


def test_the_drawing_at_the_top_is_the_tree() -> None:
    """Each error stands there below its own base, and no other does."""
    assert errors.__doc__ is not None
    drawn: dict[str, str] = {}
    above = {-1: ""}
    for line in errors.__doc__.splitlines():
        match = re.match(r"^    ([│├└─ ]*)([A-Z]\w*Error)\b", line)
        if match:
            depth = len(match[1]) // 4
            drawn[match[2]] = above[depth - 1]
            above[depth] = match[2]
    real = {error.__name__: error.__base__.__name__ for error in TREE if error is not ForerunError}
    assert drawn == {"ForerunError": "", **real}


def test_every_error_defined_is_exported() -> None:
    """The list of names is complete."""
    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert defined == set(errors.__all__)


@pytest.mark.parametrize("error", TREE)
def test_exit_codes_follow_the_branch(error: type[ForerunError]) -> None:
    """2 for wrong use, 3 for what could not start, 1 for a broken promise."""
    expected = 2 if issubclass(error, UsageError) else 3 if issubclass(error, StartError) else 1
    assert error.exit_code == expected


@pytest.mark.parametrize("error", TREE)
def test_an_error_says_what_is_wrong_and_the_way_out(error: type[ForerunError]) -> None:
    """Both in its text, each by itself, and the second may be missing."""
    full = error("It is 7.", "Make it 8.")
    assert (str(full), full.what, full.way_out) == ("It is 7. Make it 8.", "It is 7.", "Make it 8.")
    assert str(error("It is 7.")) == "It is 7."
    assert error.__doc__


@pytest.mark.parametrize("error", TREE)
def test_an_error_survives_the_way_between_processes(error: type[ForerunError]) -> None:
    """A worker's error arrives with all it said."""
    there = pickle.loads(pickle.dumps(error("It is 7.", "Make it 8.")))
    assert type(there) is error
    assert (str(there), there.what, there.way_out) == (
        "It is 7. Make it 8.",
        "It is 7.",
        "Make it 8.",
    )


def test_option_errors_are_not_value_errors() -> None:
    """pydantic swallows a ValueError raised while it validates; ours must get through."""
    assert not issubclass(OptionError, ValueError)
