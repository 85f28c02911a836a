"""The one way in which files are read that others wrote."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from forerun.regular_file import UnfitFileError, opened_file, read_file, reason_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What may lie where a file should be."""
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "large").write_bytes(b"abcd")
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    for name, target in {"link": "file", "loop": "loop", "zero": "/dev/zero"}.items():
        (tmp_path / name).symlink_to(target)
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(3 << 30)
    return tmp_path


def test_a_regular_file_is_read_whole(folder: Path) -> None:
    """Through a link, too; up to what its reader allows."""
    assert read_file(folder / "file", 3) == read_file(str(folder / "link"), 3) == b"abc"
    assert read_file(folder / "empty", 0) == b""


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (".", "is a folder"),
        ("pipe", "is no regular file"),
        ("zero", "is no regular file"),
        ("large", "has more than 0 KiB"),
        ("huge", "has more than 0 KiB"),
        ("nul\0", "can't be a file's name: embedded null byte"),
        ("loop", "can't be read (Too many levels of symbolic links)"),
        ("missing", "can't be read (No such file or directory)"),
    ],
)
def test_nothing_else_is(folder: Path, name: str, reason: str) -> None:
    """Whatever it is, the answer comes at once."""
    with pytest.raises(OSError, match=r".") as refused:
        read_file(f"{folder}/{name}", 3)
    assert reason_of(refused.value) == reason


def test_what_becomes_a_pipe_is_not_waited_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the question what it is and the opening."""
    before = os.stat(folder / "file")
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", lambda path: before)
        with pytest.raises(UnfitFileError, match="no regular"), opened_file(folder / "pipe"):
            pass


def test_what_grows_meanwhile_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the old and half of the new would be neither."""
    real = os.fstat

    def grown(descriptor: int) -> os.stat_result:
        there = real(descriptor)
        with (folder / "file").open("ab") as file:
            file.write(b"d")
        return there

    monkeypatch.setattr(os, "fstat", grown)
    with pytest.raises(UnfitFileError, match="changed"):
        read_file(folder / "file", 100)
