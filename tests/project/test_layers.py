"""Imports go downwards only, and the core stays small: read from the syntax tree of every file."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "forerun"

# A room may import itself and rooms further up this table. Rooms of one line are strangers,
# except that everything may raise the errors. `forerun` is the package's own face.
LAYERS = (
    ("errors", "_native", "extras", "fork_lock", "printable", "regular_file"),
    ("events", "config"),
    ("core", "theory"),
    ("models", "cache", "native"),
    ("targets",),
    ("drafters",),
    ("control",),
    ("engine",),
    ("beam",),
    ("api", "hf"),
    ("forerun",),
    ("train", "audit", "bench", "server"),
    ("cli",),
)
RANK = {room: rank for rank, rooms in enumerate(LAYERS) for room in rooms}
HEAVY = ("torch", "transformers", "starlette", "ray", "matplotlib", "llama_cpp")


def room_of(path: Path, source: Path) -> str:
    """The room a file stands in: a package, or a module at the top."""
    first = path.relative_to(source).parts[0].removesuffix(".py")
    return {"__init__": "forerun", "__main__": "cli"}.get(first, first)


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every import, those inside functions and `TYPE_CHECKING` too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def room_imported(name: str, source: Path) -> str | None:
    """The room a dotted name belongs to, `forerun` for the face; None for other packages."""
    package, _, rest = name.partition(".")
    if package != "forerun":
        return None
    room = rest.partition(".")[0] or "forerun"
    is_room = room in RANK or (source / room / "__init__.py").exists()
    return room if is_room or (source / f"{room}.py").exists() else "forerun"


def upward_imports(source: Path) -> list[str]:
    """Every import that goes up or sideways, and every room without a rank."""
    found = []
    for path in sorted(source.rglob("*.py")):
        room = room_of(path, source)
        for line, name in imported(ast.parse(path.read_text("utf-8"))):
            where = f"{path.relative_to(source)}:{line}"
            other = room_imported(name, source)
            if name.startswith("."):
                found.append(f"{where}: relative import {name}")
            elif other is None or other == room:
                continue
            elif room not in RANK or other not in RANK:
                found.append(f"{where}: {room} or {other} has no layer")
            elif RANK[other] >= RANK[room]:
                found.append(f"{where}: {room} imports {other}")
    return found


def strangers_in_core(source: Path) -> list[str]:
    """What `core` imports beside numpy, the standard library and Forerun, and any generator."""
    found = []
    for path in sorted((source / "core").rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        names = [(line, name.split(".")) for line, name in imported(tree)]
        uses = [
            (node.lineno, ["numpy", "random"])
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and ast.unparse(node) in ("np.random", "numpy.random")
        ]
        for line, parts in names + uses:
            where = f"{path.relative_to(source)}:{line}"
            if parts[0] in ("random", "secrets") or parts[:2] == ["numpy", "random"]:
                found.append(f"{where}: random generator {'.'.join(parts)}")
            elif parts[0] not in {"numpy", "forerun", *sys.stdlib_module_names}:
                found.append(f"{where}: {parts[0]}")
    return found


def test_imports_go_downwards_only() -> None:
    """No file of Forerun imports a room above or beside its own."""
    assert upward_imports(SOURCE) == []


def test_core_is_numpy_only_and_has_no_generator() -> None:
    """`core` imports numpy, the standard library and the rooms below, and draws no numbers."""
    assert strangers_in_core(SOURCE) == []


def test_importing_forerun_loads_nothing_heavy() -> None:
    """`import forerun` leaves torch, servers and plotting alone, installed or not."""
    program = f"import sys, forerun; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "[]"


def plant(source: Path, files: dict[str, str]) -> Path:
    """A small package tree of the given texts."""
    for name, text in files.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return source


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("core/a.py", "from forerun.engine.round import Round", "core imports engine"),
        ("core/a.py", "import forerun.models", "core imports models"),
        ("core/a.py", "from forerun import targets", "core imports targets"),
        ("core/a.py", "from forerun.theory import speedup", "core imports theory"),
        ("core/a.py", "from forerun import load", "core imports forerun"),
        ("core/a.py", "def f():\n    import forerun.cli", "core imports cli"),
        ("errors.py", "from forerun.config import Settings", "errors imports config"),
        ("targets/x/y.py", "from forerun.drafters import lookup", "targets imports drafters"),
        ("api.py", "import forerun.cli.main", "api imports cli"),
        ("core/a.py", "from ..engine import round", "relative import"),
        ("shelf/a.py", "import forerun.errors", "no layer"),
        ("engine/a.py", "import forerun.shelf", "engine imports forerun"),
    ],
)
def test_the_checker_flags_a_wrong_import(
    tmp_path: Path, name: str, text: str, complaint: str
) -> None:
    """Each way of importing upwards, sideways, relatively or from nowhere is seen."""
    found = upward_imports(plant(tmp_path, {name: text}))
    assert len(found) == 1
    assert complaint in found[0]
    assert found[0].startswith(name)


def test_the_checker_flags_a_room_without_a_layer(tmp_path: Path) -> None:
    """A new room must be given its place before anything imports it."""
    files = {"shelf/__init__.py": "", "engine/a.py": "from forerun import shelf"}
    assert upward_imports(plant(tmp_path, files)) == ["engine/a.py:1: engine or shelf has no layer"]


def test_the_checker_passes_what_is_right(tmp_path: Path) -> None:
    """Downward, own-room and foreign imports raise no complaint."""
    files = {
        "__init__.py": "from forerun.api import load",
        "__main__.py": "from forerun.cli.main import main",
        "api.py": "from forerun.engine.round import Round\nimport forerun.config",
        "core/a.py": "import numpy as np\nfrom forerun.core.b import c\nimport forerun.errors",
        "cli/a.py": "import forerun\nfrom forerun import load, Model\nimport typer",
    }
    assert upward_imports(plant(tmp_path, files)) == []
    assert strangers_in_core(tmp_path) == []


@pytest.mark.parametrize(
    "text",
    [
        "import random",
        "from random import choice",
        "import numpy.random",
        "from numpy import random",
        "from numpy.random import default_rng",
        "import numpy as np\nx = np.random.default_rng(0)",
        "import numpy\nx = numpy.random.rand()",
        "import secrets",
        "import torch",
        "from pydantic import BaseModel",
    ],
)
def test_the_checker_flags_a_stranger_in_core(tmp_path: Path, text: str) -> None:
    """Each way of reaching a generator or another package from `core` is seen."""
    assert len(strangers_in_core(plant(tmp_path, {"core/a.py": text}))) == 1
    assert strangers_in_core(plant(tmp_path / "else", {"engine/a.py": text})) == []
