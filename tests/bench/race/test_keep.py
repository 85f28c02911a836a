"""A run's file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forerun.bench.race.keep import Keeper
from forerun.errors import OptionError


def test_records_are_there_as_they_come(tmp_path: Path) -> None:
    """Each is a line before the next is made; two runs of one second have a file each."""
    folder = str(tmp_path / "a" / "b")
    with Keeper(folder) as one, Keeper(folder) as other:
        for number in range(3):
            one.add({"number": number})
            assert len(one.path.read_text().splitlines()) == number + 1
    assert one.path != other.path
    assert [json.loads(line)["number"] for line in one.path.read_text().splitlines()] == [0, 1, 2]


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    """A file is in its place."""
    (tmp_path / "file").touch()
    with pytest.raises(OptionError, match="can't be written"):
        Keeper(str(tmp_path / "file"))
    with pytest.raises(OptionError, match="can't be written"):
        Keeper("a\0b")


def test_a_full_disk_costs_no_race(tmp_path: Path) -> None:
    """What could be written stays, the reason is kept, and nothing is raised."""
    with Keeper(str(tmp_path)) as keeper:
        keeper.add({"a": 1})

        def full() -> None:
            raise OSError(28, "No space left on device")

        keeper._file.flush = full  # type: ignore[method-assign]
        keeper.add({"b": 1})
        keeper.add({"c": 1})
        assert keeper.problem == "No space left on device"
    assert keeper.path.read_text().splitlines()[0] == '{"a": 1}'
    assert '"c"' not in keeper.path.read_text()
