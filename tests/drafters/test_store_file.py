"""Store files: what was kept comes back; what is damaged, or another's, is refused whole."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.drafters import store_file
from forerun.drafters.store import Store
from forerun.drafters.store_file import VERSION, check_place, load_store, save_store
from forerun.errors import StoreFileError

MAGIC = b"forerun store\0\0\0"
KEPT = {"": [[1, 2, 3], [4, 5, 6, 7]], "A\n\u00e9\ud800": [[9, 9, 9]]}


def filled(kept: dict[str, list[list[int]]] = KEPT) -> Store:
    store = Store(100_000)
    for tenant, texts in kept.items():
        store.learn(tenant, texts)
    return store


def texts_of(store: Store) -> dict[str, list[list[int]]]:
    return {tenant: list(store.texts(tenant)) for tenant in store.tenants}


def loaded(path: Path, fingerprint: str = "it", vocab_size: int = 10) -> Store:
    store = Store(100_000)
    load_store(store, str(path), fingerprint, vocab_size)
    return store


def refused(path: Path, says: str, **against: Any) -> None:
    """Assert that a file is refused with a reason, and nothing of it is kept."""
    store = Store(100_000)
    with pytest.raises(StoreFileError, match=says) as error:
        load_store(store, str(path), **{"fingerprint": "it", "vocab_size": 10, **against})
    assert error.value.way_out
    assert len(store) == 0


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=5),
        st.lists(st.lists(st.integers(0, 99_999), min_size=3, max_size=9), min_size=1, max_size=4),
        max_size=4,
    )
)
def test_what_is_saved_is_loaded(
    tmp_path_factory: pytest.TempPathFactory, kept: dict[str, list[list[int]]]
) -> None:
    """Every tenant's texts, in their order; and saved again it is the same file."""
    path = tmp_path_factory.mktemp("store") / "file"
    save_store(filled(kept), str(path), "it")
    store = loaded(path, vocab_size=100_000)
    assert texts_of(store) == kept
    first = path.read_bytes()
    save_store(store, str(path), "it")
    assert path.read_bytes() == first


def test_every_damaged_byte_is_noticed(tmp_path: Path) -> None:
    """Any byte changed, any number of bytes cut off, any byte added."""
    path = tmp_path / "file"
    save_store(filled(), str(path), "it")
    whole = path.read_bytes()
    assert texts_of(loaded(path)) == KEPT
    for place in range(len(whole)):
        for flipped in (0x01, 0x80):
            damaged = bytearray(whole)
            damaged[place] ^= flipped
            path.write_bytes(damaged)
            refused(path, "no store file|version|damaged")
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        refused(path, "no store file|damaged")
    path.write_bytes(whole + b"\0")
    refused(path, "damaged")


def test_another_tokenizer_or_version_is_refused(tmp_path: Path) -> None:
    """With both versions, and without a look at what such a file may hold."""
    path = tmp_path / "file"
    save_store(filled(), str(path), "it")
    refused(path, "another tokenizer", fingerprint="other")
    refused(path, "damaged", vocab_size=9)
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, 16, VERSION + 1)
    path.write_bytes(data)
    refused(path, f"version {VERSION + 1}; this Forerun reads version {VERSION}")


def sealed(header: object, tokens: bytes = b"") -> bytes:
    """Return a file with a right checksum, whatever is in it."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    data = struct.pack("<16sII", MAGIC, VERSION, len(text)) + text + tokens
    return data + hashlib.sha256(data).digest()


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\xff",
        b"[" * 100_000,
        [],
        {},
        {"tokenizer": "it"},
        {"tokenizer": "it", "tenants": [1]},
        {"tokenizer": "it", "tenants": [{"name": "", "lengths": 3}]},
        {"tokenizer": "it", "tenants": [{"name": "", "lengths": ["x"]}]},
        {"tokenizer": "it", "tenants": [{"name": "", "lengths": [[3]]}]},
        {"tokenizer": "it", "tenants": [{"name": "", "lengths": [4]}]},
        {"tokenizer": "it", "tenants": [{"name": "", "lengths": [-1, 4]}]},
        {"tokenizer": "it", "tenants": [{"name": "", "lengths": [0, 3]}]},
        {"tokenizer": "it", "tenants": [{"name": "", "lengths": [2**70]}]},
        {"tokenizer": "it", "tenants": [{"name": "", "lengths": [3]}, {"name": "", "lengths": []}]},
    ],
)
def test_a_sound_checksum_proves_no_sound_file(tmp_path: Path, header: object) -> None:
    """Headers that nobody wrote are refused, too."""
    path = tmp_path / "file"
    path.write_bytes(sealed(header, struct.pack("<3I", 1, 2, 3)))
    refused(path, "damaged")


def test_what_is_no_file_is_no_store_file(tmp_path: Path) -> None:
    """A folder, a pipe that nobody writes to, a device without an end, a name that can't be."""
    os.mkfifo(tmp_path / "pipe")
    reasons = {tmp_path: "a folder", tmp_path / "pipe": "no regular", Path("nul\0"): "can't be"}
    reasons |= {Path("/dev/zero"): "no regular", tmp_path / ("x" * 300): "can't be read"}
    for path, reason in reasons.items():
        refused(path, reason)
    with pytest.raises(FileNotFoundError):
        loaded(tmp_path / "missing")


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole, and nothing beside it."""
    path = tmp_path / "file"
    save_store(filled(), str(path), "it")
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for call in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(store_file.os, call, full)
            with pytest.raises(StoreFileError, match="No space left"):
                save_store(filled({"B": [[1, 1, 1]]}), str(path), "it")
        assert path.read_bytes() == before
        assert [each.name for each in tmp_path.iterdir()] == ["file"]
    with pytest.raises(StoreFileError, match="can't be written"):
        save_store(filled(), str(tmp_path / "no folder" / "file"), "it")


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    """It holds what was prompted."""
    path = tmp_path / "file"
    save_store(filled(), str(path), "it")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("kept", [{"": [[5] * 90] * 100}, {str(i): [[5] * 9] for i in range(71)}])
def test_a_file_larger_than_the_store_is_refused(
    tmp_path: Path, kept: dict[str, list[list[int]]]
) -> None:
    """What had no room would be lost when it is saved; as much as is needed is enough."""
    path = tmp_path / "file"
    save_store(filled(kept), str(path), "it")
    needed = 9101 if len(kept) == 1 else 71 * 128
    store = Store(needed - 1)
    with pytest.raises(StoreFileError, match=f"holds {needed} tokens") as refusal:
        load_store(store, str(path), "it", 10)
    assert f"store_tokens to {needed} or more" in refusal.value.way_out
    assert len(store) == 0
    store = Store(needed)
    load_store(store, str(path), "it", 10)
    assert store.tenants == list(kept)


@settings(max_examples=30, deadline=None)
@given(st.integers(128, 3000), st.lists(st.tuples(st.sampled_from("abcde"), st.integers(3, 400))))
def test_what_a_store_saved_it_can_load(
    tmp_path_factory: pytest.TempPathFactory, most: int, texts: list[tuple[str, int]]
) -> None:
    """However full it was: the same room is enough."""
    path = tmp_path_factory.mktemp("store") / "file"
    store = Store(most)
    for tenant, length in texts:
        store.learn(tenant, [[7] * length])
    save_store(store, str(path), "it")
    load_store(Store(most), str(path), "it", 10)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """What it leads to is written, wherever that is."""
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to("far/file")
    for _ in range(2):
        save_store(filled(), str(tmp_path / "link"), "it")
        assert (tmp_path / "link").is_symlink()
        assert texts_of(loaded(tmp_path / "far" / "file")) == KEPT
    assert [each.name for each in (tmp_path / "far").iterdir()] == ["file"]


def test_the_place_of_a_store_is_checked_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that isn't there, or that nothing may be written into."""
    check_place(str(tmp_path / "file"))
    check_place("file")
    with pytest.raises(StoreFileError, match="no folder"):
        check_place(str(tmp_path / "none" / "file"))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(StoreFileError, match="nothing may"):
        check_place(str(tmp_path / "file"))
