"""Small functions, small files, few parameters: what keeps the code readable, counted."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[2] / "src"

LONGEST_FUNCTION = 60
SHORT_FUNCTION = 40  # 95 % of functions stay below
LONGEST_FILE = 600
MOST_PARAMETERS = 7
CODE = {".py", ".c", ".cc", ".cpp", ".h", ".hpp"}
SAYS_NOTHING = {"utils", "util", "common", "helpers", "helper", "misc"}


class Function(NamedTuple):
    """One function: where it stands, its lines with signature and docstring, its parameters."""

    where: str
    lines: int
    parameters: int


def functions(source: Path) -> Iterator[Function]:
    """Every function and method of every Python file."""
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                where = f"{path.relative_to(source)}:{node.lineno} {node.name}"
                yield Function(where, node.end_lineno - node.lineno + 1, parameters(node))


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many a caller can pass; `*args` and `**kwargs` count one each, self and cls none."""
    given = node.args
    positional = given.posonlyargs + given.args
    own = sum(1 for argument in positional[:1] if argument.arg in ("self", "cls"))
    packed = sum(1 for argument in (given.vararg, given.kwarg) if argument)
    return len(positional) + len(given.kwonlyargs) + packed - own


def files(source: Path) -> list[Path]:
    """Every file of code, Python and C++."""
    return sorted(path for path in source.rglob("*") if path.suffix in CODE)


def too_large(source: Path) -> list[str]:
    """Every function, file and parameter list over its limit."""
    found = []
    for function in functions(source):
        if function.lines > LONGEST_FUNCTION:
            found.append(f"{function.where}: {function.lines} lines")
        if function.parameters > MOST_PARAMETERS:
            found.append(f"{function.where}: {function.parameters} parameters")
    for path in files(source):
        lines = len(path.read_text("utf-8").splitlines())
        if lines > LONGEST_FILE:
            found.append(f"{path.relative_to(source)}: {lines} lines")
    return found


def share_of_short(source: Path) -> float:
    """The share of functions below `SHORT_FUNCTION` lines."""
    lengths = [function.lines for function in functions(source)]
    return sum(length < SHORT_FUNCTION for length in lengths) / len(lengths)


def says_nothing(source: Path) -> list[str]:
    """Modules and packages whose name says nothing about what is in them."""
    return [
        str(path.relative_to(source))
        for path in sorted(source.rglob("*"))
        if path.stem.lower().strip("_") in SAYS_NOTHING
    ]


def test_nothing_is_too_large() -> None:
    """Functions have at most 60 lines, files 600, and nothing takes more than 7 parameters."""
    assert too_large(SOURCE) == []


def test_nearly_all_functions_are_short() -> None:
    """At least 95 % of functions have fewer than 40 lines."""
    longer = [f"{f.where}: {f.lines}" for f in functions(SOURCE) if f.lines >= SHORT_FUNCTION]
    assert share_of_short(SOURCE) >= 0.95, "\n".join(longer)


def test_names_say_what_is_inside() -> None:
    """No module is called utils, common or helpers."""
    assert says_nothing(SOURCE) == []


def function_of(lines: int, signature: str = "") -> str:
    return "\n".join([f"def f({signature}):", *["    x = 1"] * (lines - 1)])


@pytest.mark.parametrize(
    ("text", "complaints"),
    [
        (function_of(60), 0),
        (function_of(61), 1),
        ("class A:\n" + "\n".join("    " + line for line in function_of(61).split("\n")), 1),
        ("async " + function_of(61), 1),
        (function_of(2, "a, b, c, d, e, f, g"), 0),
        (function_of(2, "a, b, c, d, e, f, g, h"), 1),
        (function_of(2, "self, a, b, c, d, e, f, g"), 0),
        (function_of(2, "a, /, b, c, *, d, e, f, g, h"), 1),
        (function_of(2, "a, b, c, d, e, f, *g, **h"), 1),
        ("class A:\n" + "\n".join(f"    x{i}: int" for i in range(20)), 0),
        ("x = 1\n" * 600, 0),
        ("x = 1\n" * 601, 1),
    ],
)
def test_the_counter_finds_what_is_too_large(tmp_path: Path, text: str, complaints: int) -> None:
    """Each limit holds to the line and to the parameter; fields of a class do not count."""
    (tmp_path / "a.py").write_text(text, "utf-8")
    assert len(too_large(tmp_path)) == complaints


def test_native_files_are_counted_too(tmp_path: Path) -> None:
    """A C++ file over the limit is found."""
    (tmp_path / "pass.cpp").write_text("int x;\n" * 601, "utf-8")
    assert too_large(tmp_path) == ["pass.cpp: 601 lines"]


def test_the_share_of_short_functions_is_counted(tmp_path: Path) -> None:
    """A function of 39 lines is short, one of 40 is not."""
    (tmp_path / "a.py").write_text(function_of(39) + "\n" + function_of(40), "utf-8")
    assert share_of_short(tmp_path) == 0.5


@pytest.mark.parametrize("name", ["utils.py", "_helpers.py", "common/__init__.py"])
def test_empty_names_are_found(tmp_path: Path, name: str) -> None:
    """As a module, a private module or a package."""
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("", "utf-8")
    assert len(says_nothing(tmp_path)) == 1
