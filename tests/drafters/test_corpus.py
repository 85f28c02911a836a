"""Corpora: what is text is read, and nothing else breaks, hangs or is left out in silence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from forerun.drafters import corpus as module
from forerun.drafters.corpus import read_corpus, read_text
from forerun.errors import OptionError
from forerun.events import LoadProgress


def encode(text: str) -> list[int]:
    return [ord(character) for character in text]


def text_of(tokens: object) -> str:
    return "".join(map(chr, tokens))  # type: ignore[call-overload]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two texts, one deeper, and much that is no text."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "deep" / "b.md").write_text("\ufeffdrei \u00fc", "utf-8")
    (tmp_path / ".hidden").write_text("no")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("no")
    (tmp_path / "binary").write_bytes(b"abc\0def")
    (tmp_path / "latin").write_bytes("\u00fcber".encode("latin-1"))
    (tmp_path / "empty").write_text("")
    (tmp_path / "blank").write_text(" \n\n")
    (tmp_path / "broken").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


def test_a_folder_is_all_its_texts(folder: Path) -> None:
    """In order, deeper ones too; what is skipped is told with its reason."""
    corpus = read_corpus([str(folder)], encode, 10**6)
    assert [text_of(text) for text in corpus.texts] == ["one\ntwo\n", "drei \u00fc"]
    assert corpus.tokens == 14
    told = {Path(skipped.path).name: skipped.reason for skipped in corpus.skipped}
    assert told == {
        "binary": "it is binary",
        "latin": "it is no UTF-8 text",
        "empty": "it is empty",
        "blank": "it is empty",
        "broken": "it can't be read (No such file or directory)",
        "pipe": "it is no regular file",
    }


@pytest.mark.parametrize("name", ["binary", "latin", "empty", "broken", "pipe", "missing"])
def test_a_file_that_was_named_has_to_be_a_text(folder: Path, name: str) -> None:
    """Else it is a mistake, told with the path."""
    with pytest.raises(OptionError, match=name):
        read_corpus([str(folder / name)], encode, 10**6)


def test_what_changes_while_it_is_read_is_skipped(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Grown, or written to, between the beginning and the end."""
    path = folder / "a.txt"
    real = os.fstat
    looks = 0

    def later(descriptor: int) -> os.stat_result:
        nonlocal looks
        looks += 1
        if looks == 2:
            path.write_text("something else")
        return real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "fstat", later)
        assert read_text(str(path)) == (None, "it changed while it was read")
    assert read_text(str(path)) == ("something else", "")


def test_large_files_are_left_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their size, before anything is read; so are files that say one size and have another."""
    monkeypatch.setattr(module, "MOST_BYTES", 4)
    assert read_text(str(folder / "a.txt"))[1].startswith("it has more than")
    for device in ("/dev/zero", "/proc/self/mem", "/proc/self/maps"):
        assert read_text(device)[0] is None


def test_a_folder_of_very_many_files_is_read_in_part(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And that is told."""
    monkeypatch.setattr(module, "MOST_FILES", 1)
    corpus = read_corpus([str(folder)], encode, 10**6)
    assert [text_of(text) for text in corpus.texts] == ["one\ntwo\n"]
    assert [skipped.reason for skipped in corpus.skipped] == ["it has more than 1 files"]


def test_no_more_tokens_than_there_is_room_for(folder: Path) -> None:
    """The first that have room, and word of the rest."""
    corpus = read_corpus([str(folder / "a.txt"), str(folder / "deep")], encode, 5)
    assert [text_of(text) for text in corpus.texts] == ["one\nt"]
    assert corpus.tokens == 5
    assert [skipped.reason for skipped in corpus.skipped] == [
        "only the first 5 tokens had room",
        "the corpus has its 5 tokens already",
    ]


def test_long_texts_are_made_tokens_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That end with a line where one ends, and are the text together; progress never falls."""
    monkeypatch.setattr(module, "_PIECE", 8)
    text = "abc\ndefgh\nijklmnopqrstuvw\n\nxyz"
    (tmp_path / "a").write_text(text)
    pieces: list[str] = []
    news: list[LoadProgress] = []

    def noting(piece: str) -> list[int]:
        pieces.append(piece)
        return encode(piece)

    corpus = read_corpus([str(tmp_path)], noting, 10**6, news.append)
    assert pieces == ["abc\n", "defgh\n", "ijklmnop", "qrstuvw\n", "\nxyz"]
    assert text_of(corpus.texts[0]) == text
    done = [one.done for one in news]
    assert done == sorted(done)
    assert news[-1] == LoadProgress("reading", len(text), len(text))
