"""Files and folders that the user gives for texts to be guessed from.

Whatever lies there: a file that can't be read, is no UTF-8 text, or changes while it is read is
skipped, and said so. Nothing is waited for, as a pipe would have it, and nothing read without end.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from forerun.errors import OptionError
from forerun.events import LoadProgress
from forerun.printable import counted
from forerun.regular_file import read_file, reason_of

__all__ = ["MOST_BYTES", "MOST_FILES", "Corpus", "Skipped", "read_corpus", "read_text"]

MOST_FILES = 100_000
MOST_BYTES = 64 << 20  # of one file
_PIECE = 1 << 16  # characters that are made tokens at a time


@dataclass(frozen=True, slots=True)
class Skipped:
    """What was left out.

    Attributes:
        path: A file, or a folder.
        reason: Why.
    """

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Corpus:
    """What was read.

    Attributes:
        texts: Token ids, one text a file.
        tokens: How many they are.
        skipped: What was left out, and why.
    """

    texts: tuple[array[int], ...] = ()
    tokens: int = 0
    skipped: tuple[Skipped, ...] = ()


def read_corpus(
    paths: Sequence[str],
    encode: Callable[[str], Sequence[int]],
    most: int,
    progress: Callable[[LoadProgress], None] | None = None,
) -> Corpus:
    """Read files, and folders with all that is in them but hidden names.

    Args:
        paths: Files and folders.
        encode: Makes tokens of a text.
        most: Tokens at most; what goes beyond is skipped.
        progress: Told how many bytes are done.

    Raises:
        OptionError: A path that was named leads nowhere, or to a file that can't be used.
    """
    skipped: list[Skipped] = []
    files = [file for path in paths for file in _files(path, skipped)]
    whole = sum(size for _, size, _ in files)
    texts: list[array[int]] = []
    left, done = most, 0
    for path, size, named in files:
        if left <= 0:
            skipped.append(Skipped(path, f"the corpus has its {counted(most, 'token')} already"))
            continue
        text, reason = read_text(path)
        if text is None and named:
            raise OptionError(f"corpus = {path!r}: {reason}.", "Give a text in UTF-8, or a folder.")
        if text is None:
            skipped.append(Skipped(path, reason))
        else:
            tokens = array("I")
            for piece in _pieces(text):
                tokens.extend(encode(piece))
                if progress is not None:
                    progress(LoadProgress("reading", min(done + len(tokens), whole), whole))
                if len(tokens) >= left:
                    skipped.append(
                        Skipped(path, f"only the first {counted(left, 'token')} had room")
                    )
                    del tokens[left:]
                    break
            texts.append(tokens)
            left -= len(tokens)
        done += size
        if progress is not None:
            progress(LoadProgress("reading", done, whole))
    return Corpus(tuple(texts), most - left, tuple(skipped))


def read_text(path: str) -> tuple[str | None, str]:
    """Return a file's text, or None and why there is none; never waits, never reads without end."""
    try:
        data = read_file(path, MOST_BYTES)
    except OSError as error:
        return None, f"it {reason_of(error)}"
    if not data.strip():
        return None, "it is empty"
    if b"\0" in data:
        return None, "it is binary"
    try:
        return data.decode("utf-8-sig"), ""
    except UnicodeDecodeError:
        return None, "it is no UTF-8 text"


def _files(path: str, skipped: list[Skipped]) -> Iterator[tuple[str, int, bool]]:
    """Yield each file's path and size, and whether the user named it."""
    if not os.path.isdir(path):
        if not os.path.lexists(path):
            raise OptionError(f"corpus = {path!r}: there is nothing.", "Give a file or a folder.")
        yield path, _size(path), True
        return
    count = 0

    def tell(error: OSError) -> None:
        skipped.append(Skipped(str(error.filename), f"it can't be read ({error.strerror})"))

    for folder, inner, names in os.walk(path, onerror=tell):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        for name in sorted(name for name in names if not name.startswith(".")):
            if count == MOST_FILES:
                skipped.append(Skipped(path, f"it has more than {MOST_FILES} files"))
                return
            count += 1
            file = str(Path(folder, name))
            yield file, _size(file), False


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _pieces(text: str) -> Iterator[str]:
    """Yield a text in pieces that end where a line does, if one ends near."""
    start = 0
    while start < len(text):
        end = start + _PIECE
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or end
        yield text[start:end]
        start = end
