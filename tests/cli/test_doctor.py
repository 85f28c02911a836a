from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun import __version__
from forerun.errors import NativeModuleError
from forerun.models.registry import find_registered
from forerun.native import load


def checks(run: Any, code: int) -> dict[str, dict[str, str]]:
    """The findings by name, after a run that ends with `code`."""
    result = run("doctor", "--json")
    assert result.exit_code == code
    record = json.loads(result.stdout)
    assert record["ok"] is (code == 0)
    return {check["name"]: check for check in record["checks"]}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("cache")
def test_a_fresh_machine_is_well(run: Any) -> None:
    """No model yet is a warning that names the command; everything known is told."""
    found = checks(run, 0)
    assert found["forerun"]["found"] == __version__
    assert np.__version__ in found["numpy"]["found"]
    names = {"python", "packages", "processor", "instructions", "cores", "memory", "cache", "pip"}
    assert names <= set(found)
    assert found["model smollm2"]["state"] == "warn"
    assert "forerun pull" in found["model smollm2"]["way_out"]


def test_in_a_pipe_each_check_is_a_line(run: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """So a long path is whole, to be found and copied."""
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path / ("long" * 30)))
    lines = run("doctor").stdout.splitlines()
    assert {line.split()[0] for line in lines} <= {"ok", "warn", "fail"}
    assert any(f" {tmp_path / ('long' * 30)}," in line for line in lines)


def test_a_wrong_model_file_fails(run: Any, cache: Path) -> None:
    """A file of the right name and size with another checksum is found, and how to mend it."""
    model = find_registered("smollm2")
    (cache / "models").mkdir()
    with (cache / "models" / model.file_name).open("wb") as file:
        file.truncate(model.size)
    found = checks(run, 1)["model smollm2"]
    assert found["state"] == "fail"
    assert "forerun pull" in found["way_out"]


def test_a_cache_that_cannot_be_written_fails(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache below a file has no place for a model, and FORERUN_CACHE is the way out."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path / "file" / "cache"))
    found = checks(run, 1)["cache"]
    assert found["state"] == "fail"
    assert "FORERUN_CACHE" in found["way_out"]


@pytest.mark.usefixtures("cache")
def test_the_instructions_in_use_are_told(run: Any) -> None:
    """The compiled module is there, and what it runs on is named."""
    found = checks(run, 0)["native"]
    assert found["state"] == "ok"
    assert load().instruction_set() in found["found"]


@pytest.mark.usefixtures("cache")
def test_the_instructions_chosen_are_the_ones_in_use(start: Any) -> None:
    """By variable or flag; the others that the machine has are named beside it."""
    first, *others = load().instruction_sets()
    process = start("doctor", "--json", env={"FORERUN_INSTRUCTION_SET": first})
    found = {check["name"]: check for check in json.loads(process.communicate()[0])["checks"]}
    assert found["native"]["found"].startswith(f"uses {first}")
    assert all(other in found["native"]["found"] for other in others)


@pytest.mark.usefixtures("cache")
def test_instructions_that_the_machine_lacks_fail(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told like everything else that is amiss, with those that are there."""
    monkeypatch.setattr(load(), "instruction_sets", lambda: ["portable"])
    result = run("doctor", "--json", "--instruction-set", "avx512")
    found = {check["name"]: check for check in json.loads(result.stdout)["checks"]}["native"]
    assert (result.exit_code, found["state"]) == (1, "fail")
    assert "this machine has portable" in found["found"]


@pytest.mark.usefixtures("cache")
def test_a_missing_compiled_module_is_a_warning(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources alone run, only slower: what compiles the module is told."""

    def missing() -> None:
        raise NativeModuleError("It is not there.", "Compile it.")

    monkeypatch.setattr("forerun.cli.health.load", missing)
    found = checks(run, 0)["native"]
    assert found["state"] == "warn"
    assert (found["found"], found["way_out"]) == ("It is not there.", "Compile it.")


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("free", "is_compiled", "state"),
    [(10**9, True, "ok"), (10**8, True, "warn"), (10**9, False, "warn"), (None, True, "ok")],
)
def test_too_little_memory_is_a_warning(
    run: Any, monkeypatch: pytest.MonkeyPatch, free: int | None, is_compiled: bool, state: str
) -> None:
    """By what the process may take, and by the target that would run the default model."""

    def missing() -> None:
        raise NativeModuleError("It is not there.")

    monkeypatch.setattr("forerun.cli.health.free_memory", lambda: free)
    if not is_compiled:
        monkeypatch.setattr("forerun.cli.health.load", missing)
    found = checks(run, 0)["memory"]
    assert found["state"] == state
    assert ("wants" in found["way_out"]) is (state == "warn")


@pytest.mark.usefixtures("cache")
def test_the_table_says_the_same(run: Any) -> None:
    """Each finding is a line that begins with its state."""
    names = [*checks(run, 0)]
    lines = [line.split(maxsplit=1) for line in run("doctor").stdout.splitlines()]
    told = [line[1] for line in lines if line[0] in ("ok", "warn", "fail")]
    assert len(told) == len(names)
    assert all(line.startswith(name) for line, name in zip(told, names, strict=True))


@pytest.mark.model
def test_the_default_model_is_sound(run: Any) -> None:
    """The fetched file has the right checksum."""
    assert checks(run, 0)["model smollm2"]["state"] == "ok"
