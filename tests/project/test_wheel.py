"""What is tested is what is shipped: `make test` runs against the built wheel."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import forerun.errors
from forerun.bench.prompts import SHIPPED_TASKS
from forerun.native import load
from models.tiny_gguf import Tiny

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


@pytest.fixture(scope="module")
def without_compiler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as a machine without a C++ compiler builds it."""
    folder = tmp_path_factory.mktemp("pure")
    made = build(folder, FORERUN_COMPILED="0")
    assert made.returncode == 0, made.stderr
    (wheel,) = (folder / "dist").iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")
    zipfile.ZipFile(wheel).extractall(folder / "package")
    return folder / "package"


def build(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Build a wheel of a copy of the sources, where no compiler can be found."""
    source = folder / "source"
    for name in ("pyproject.toml", "CMakeLists.txt", "README.md", "LICENSE"):
        source.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, source)
    built = shutil.ignore_patterns("_native.*.so", "__pycache__")
    shutil.copytree(ROOT / "src", source / "src", ignore=built)
    backend = f"import scikit_build_core.build as b; b.build_wheel({str(folder / 'dist')!r})"
    nowhere = {"CC": "/nowhere/cc", "CXX": "/nowhere/c++"}
    return run(backend, cwd=source, env={**os.environ, **nowhere, **environment})


def run(code: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False, **settings)


def forerun_in(package: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line of a package in a folder."""
    code = f"import sys; sys.argv = {['forerun', *arguments]!r}; from forerun.__main__ import main"
    return run(f"{code}; main()", env={**os.environ, "PYTHONPATH": str(package)})


def test_without_a_compiler_models_run_and_say_that_they_are_slow(
    without_compiler: Path, tmp_path: Path
) -> None:
    """The reference target writes the text; standard error says why, once."""
    model = str(Tiny().write(tmp_path / "tiny.gguf"))
    asked = ("generate", "the", "-m", model, "--raw", "--max-tokens", "4")
    result = forerun_in(without_compiler, *asked)
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("Slow: the reference target runs this.") == 1
    assert "forerun._native is not there. Install a C++ compiler" in result.stderr
    assert result.stdout.strip()


def test_the_wheel_holds_the_prompts(without_compiler: Path) -> None:
    """What `forerun bench generate` lets write comes with the package."""
    shipped = without_compiler / "forerun" / "bench" / "shipped"
    assert {path.stem for path in shipped.iterdir()} == set(SHIPPED_TASKS)


@pytest.mark.parametrize("asked", [("--target", "native"), ("--instruction-set", "portable")])
def test_without_a_compiler_what_needs_it_is_refused(
    without_compiler: Path, tmp_path: Path, asked: tuple[str, str]
) -> None:
    """By name, with what to install."""
    model = str(Tiny().write(tmp_path / "tiny.gguf"))
    result = forerun_in(without_compiler, "generate", "the", "-m", model, "--raw", *asked)
    assert result.returncode == 3
    assert "Install a C++ compiler" in result.stderr


def test_without_a_compiler_doctor_warns(without_compiler: Path) -> None:
    """One of its findings is that the compiled module is not there."""
    findings = json.loads(forerun_in(without_compiler, "doctor", "--json").stdout)["checks"]
    (native,) = (each for each in findings if each["name"] == "native")
    assert native["state"] == "warn"
    assert "Install a C++ compiler" in native["way_out"]


def test_a_build_that_must_compile_does_not_fall_back(tmp_path: Path) -> None:
    """As `make` builds where there is a compiler: what can't be compiled is an error."""
    made = build(tmp_path, FORERUN_COMPILED="1")
    assert made.returncode != 0
    assert not (tmp_path / "dist").exists() or not list((tmp_path / "dist").iterdir())
