"""Files of what was learned online: whole after any end, and refused where they do not belong."""

from __future__ import annotations

import json
import os
import signal
import stat
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.drafters.online import KINDS, Lesson, Limits, Online
from forerun.drafters.online_file import Origin, _checksum, load_online, open_online, save_online
from forerun.errors import StoreFileError

ORIGIN = Origin("a" * 64, "b" * 64)
LESSONS = {
    "": Lesson(np.arange(KINDS) / 3, np.eye(KINDS) * 0.1, 1.5, 300.0),
    "A\n\u00e9\ud800": Lesson(pause=7),
}


def filled(lessons: dict[str, Lesson] = LESSONS) -> Online:
    online = Online()
    for tenant, lesson in lessons.items():
        online.put(tenant, lesson)
    return online


def told(online: Online) -> dict[str, Any]:
    return {
        tenant: (e.boosts.tolist(), e.curvature.tolist(), e.gained, e.judged, e.pause)
        for tenant, e in online.lessons.items()
    }


def refused(path: Path, says: str, limits: Limits = Limits(), origin: Origin = ORIGIN) -> None:  # noqa: B008
    """Assert that a file is refused with a reason and a way out, and nothing of it is kept."""
    online = Online(limits)
    with pytest.raises(StoreFileError, match=says) as error:
        load_online(online, str(path), origin)
    assert error.value.way_out
    assert not online.lessons


def changed(path: Path, **values: object) -> Path:
    """The file with some values changed, and a checksum that fits."""
    save_online(filled(), str(path), ORIGIN)
    kept = {**json.loads(path.read_bytes()), **values}
    path.write_text(json.dumps({**kept, "checksum": _checksum(kept)}))
    return path


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    """To the bit, in the tenants' order; only its owner may read it, and a link stays one."""
    link = tmp_path / "link"
    link.symlink_to("file")
    for _ in range(2):
        save_online(filled(), str(link), ORIGIN)
        online = Online()
        load_online(online, str(link), ORIGIN)
        assert told(online) == told(filled())
        assert list(online.lessons) == list(LESSONS)
    assert link.is_symlink()
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600


def test_of_another_head_or_target_it_is_refused(tmp_path: Path) -> None:
    """And where there is no room for all of it."""
    path = tmp_path / "file"
    save_online(filled(), str(path), ORIGIN)
    refused(path, "another target", origin=Origin("c" * 64, "b" * 64))
    refused(path, "another head", origin=Origin("a" * 64, "c" * 64))
    refused(path, "holds 2 tenants, and 1", Limits(tenants=1))
    refused(path, "a boost of 1.33333, and the limit is 1", Limits(reach=1.0))
    refused(changed(path, version=2), "version 2")
    refused(changed(path, version=True), "version True")
    refused(changed(path, format="x"), "nothing that was learned")
    with pytest.raises(StoreFileError, match="no folder"):
        open_online(Limits(), str(tmp_path / "none" / "file"), ORIGIN)
    with pytest.raises(StoreFileError, match="can't be written"):
        save_online(filled(), str(tmp_path / "none" / "file"), ORIGIN)
    refused(tmp_path, "is a folder")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_anywhere_it_is_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A byte changed, or an end that lacks."""
    path = tmp_path_factory.mktemp("online") / "file"
    save_online(filled(), str(path), ORIGIN)
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != whole[at]))
    path.write_bytes(whole[:at] + bytes([other]) + whole[at + 1 :])
    try:
        load_online(found := Online(), str(path), ORIGIN)
    except StoreFileError:
        pass
    else:  # an escape written another way, such as a capital digit
        assert told(found) == told(filled())
    path.write_bytes(whole[:at])
    refused(path, "is")


SOUND = {
    "name": "A",
    "boosts": [0.0] * KINDS,
    "curvature": [[0.0] * KINDS] * KINDS,
    "gained": 0.0,
    "judged": 0.0,
    "pause": 0,
}


@pytest.mark.parametrize(
    "tenants",
    [
        None,
        {},
        [1],
        [SOUND, SOUND],
        [{**SOUND, "more": 1}],
        [{**SOUND, "name": 1}],
        [{**SOUND, "name": "x" * 257}],
        [{**SOUND, "boosts": [0.0]}],
        [{**SOUND, "boosts": ["0"] * KINDS}],
        [{**SOUND, "boosts": [float("nan")] * KINDS}],
        [{**SOUND, "boosts": None}],
        [{**SOUND, "curvature": [[0.0]] * KINDS}],
        [{**SOUND, "curvature": [[-1.0] * KINDS] * KINDS}],
        [{**SOUND, "curvature": [[1e300] * KINDS] * KINDS}],
        [{**SOUND, "gained": True}],
        [{**SOUND, "judged": float("inf")}],
        [{**SOUND, "pause": -1}],
        [{**SOUND, "pause": 1.0}],
        [{**SOUND, "pause": True}],
    ],
)
def test_values_that_cannot_be_are_refused(tmp_path: Path, tenants: object) -> None:
    """Though the checksum fits."""
    refused(changed(tmp_path / "file", tenants=tenants), "damaged")


def test_killed_at_any_moment_it_leaves_a_good_file(tmp_path: Path) -> None:
    """The last, or the one before, of a process that saves again and again."""
    path = tmp_path / "file"
    states = [filled(), filled({str(i): LESSONS[""] for i in range(200)})]
    for state in states:
        save_online(state, str(path), ORIGIN)
    for place in range(8):
        child = os.fork()
        if child == 0:
            while True:
                for state in states:
                    save_online(state, str(path), ORIGIN)
        time.sleep(0.005 * (1 + place))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        online = Online()
        load_online(online, str(path), ORIGIN)
        assert told(online) in [told(state) for state in states]


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole, and nothing beside it."""
    path = tmp_path / "file"
    save_online(filled(), str(path), ORIGIN)
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for call in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, full)
            with pytest.raises(StoreFileError, match="No space left"):
                save_online(filled({}), str(path), ORIGIN)
        assert path.read_bytes() == before
        assert [each.name for each in tmp_path.iterdir()] == ["file"]
