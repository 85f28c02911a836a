r"""A store in a file: written at once or not at all, read whole or refused.

    magic      16 bytes, b"forerun store\\0\\0\\0"
    version    uint32
    size       uint32, of the header
    header     JSON: {"tokenizer": fingerprint, "tenants": [{"name": ..., "lengths": [...]}]}
    tokens     uint32 each, tenant by tenant, text by text, the oldest first
    checksum   SHA-256 of all before

All numbers are little-endian. The file holds what was prompted and written: only its owner may
read it.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from forerun.config import LEAST_STORE
from forerun.drafters.store import Store
from forerun.errors import StoreFileError
from forerun.regular_file import read_file, reason_of, replace_file

__all__ = ["MOST_BYTES", "VERSION", "check_place", "load_store", "save_store"]

VERSION = 1
MOST_BYTES = 4 << 30
_MAGIC = b"forerun store\0\0\0"
_START = struct.Struct("<16sII")
_CHECKSUM = 32
_AWAY = "Remove the file, or name another one."


def check_place(path: str) -> None:
    """Check that a store can be written to this file, before there is something to write.

    Raises:
        StoreFileError: There is no folder for it, or nothing may be written there.
    """
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(folder):
        raise StoreFileError(f"Store {path!r}: there is no folder {folder!r}.", "Make it first.")
    if not os.access(folder, os.W_OK | os.X_OK):
        what = f"Store {path!r} can't be written: nothing may be written into {folder!r}."
        raise StoreFileError(what, "Name another file.")


def save_store(store: Store, path: str, fingerprint: str) -> None:
    """Write all tenants' texts; the file is either the old or the new one, whatever happens.

    Args:
        store: The store.
        path: Of the file.
        fingerprint: Of the tokenizer whose tokens these are.

    Raises:
        StoreFileError: The file can't be written.
    """
    tenants, parts = [], []
    for name in store.tenants:
        texts = [np.array(text, "<u4") for text in store.texts(name)]
        tenants.append({"name": name, "lengths": [len(text) for text in texts]})
        parts += texts
    header = json.dumps({"tokenizer": fingerprint, "tenants": tenants}).encode()
    data = b"".join(
        [_START.pack(_MAGIC, VERSION, len(header)), header, *(part.tobytes() for part in parts)]
    )
    try:
        replace_file(path, data + hashlib.sha256(data).digest())
    except OSError as error:
        reason = error.strerror or error
        raise StoreFileError(f"Store {path!r} can't be written: {reason}.", "") from error


def load_store(store: Store, path: str, fingerprint: str, vocab_size: int) -> None:
    """Add a file's texts to a store.

    Args:
        store: The store; unchanged if the file is refused.
        path: Of the file.
        fingerprint: Of the tokenizer in use.
        vocab_size: Tokens there are.

    Raises:
        FileNotFoundError: There is no such file.
        StoreFileError: It can't be read, is damaged, is of another version or tokenizer, or holds
            more than the store has room for: what had none would be lost when it is saved.
    """
    kept = _parsed(path, _read(path), fingerprint, vocab_size)
    needed = sum(max(sum(map(len, texts)) + len(texts) + 1, LEAST_STORE) for texts in kept.values())
    if needed > store.most:
        raise StoreFileError(
            f"Store {path!r} holds {needed} tokens, and there is room for {store.most}.",
            f"Set store_tokens to {needed} or more, or name another file.",
        )
    for name, texts in kept.items():
        store.learn(name, texts)


def _read(path: str) -> bytes:
    try:
        return read_file(path, MOST_BYTES)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreFileError(f"Store {path!r} {reason_of(error)}.", _AWAY) from error


def _parsed(
    path: str, data: bytes, fingerprint: str, vocab_size: int
) -> Mapping[str, Sequence[Sequence[int]]]:
    """Return each tenant's texts, once all of the file is known to be sound."""
    if not data.startswith(_MAGIC):
        raise StoreFileError(f"{path!r} is no store file.", _AWAY)
    damaged = StoreFileError(f"Store {path!r} is truncated or damaged.", _AWAY)
    if len(data) < _START.size + _CHECKSUM:
        raise damaged
    _, version, size = _START.unpack_from(data)
    if version != VERSION:
        raise StoreFileError(
            f"Store {path!r} has version {version}; this Forerun reads version {VERSION}.", _AWAY
        )
    body = data[:-_CHECKSUM]
    if hashlib.sha256(body).digest() != data[-_CHECKSUM:]:
        raise damaged
    try:
        header: Any = json.loads(body[_START.size : _START.size + size])
        tokens = np.frombuffer(body[_START.size + size :], "<u4")
        lengths = {one["name"]: one["lengths"] for one in header["tenants"]}
        written_with, count = header["tokenizer"], len(header["tenants"])
        is_sound = count == len(lengths) and all(_is_tenant(*pair) for pair in lengths.items())
    except (ValueError, TypeError, KeyError, RecursionError):
        raise damaged from None
    if written_with != fingerprint:
        raise StoreFileError(f"Store {path!r} was written with another tokenizer.", _AWAY)
    whole = sum(map(sum, lengths.values())) if is_sound else -1
    if whole != len(tokens) or (whole and int(tokens.max()) >= vocab_size):
        raise damaged
    texts: dict[str, list[Any]] = {}
    start = 0
    for name, each in lengths.items():
        borders = list(accumulate(each, initial=start))
        texts[name] = [tokens[first:last] for first, last in pairwise(borders)]
        start = borders[-1]
    return texts


def _is_tenant(name: object, lengths: object) -> bool:
    return (
        isinstance(name, str)
        and isinstance(lengths, list)
        and all(type(each) is int and each > 0 for each in lengths)
    )
