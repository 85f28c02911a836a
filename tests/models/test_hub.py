"""Models of the hub: what is an id, where its folder comes from, what is fetched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

from forerun.errors import DownloadError, ModelNotFoundError
from forerun.models.hub import hub_folder, is_hub_id
from forerun.models.model import load_model
from models.tiny_folder import TinyFolder
from models.tiny_gguf import Tiny


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("owner/name", True),
        ("Owner-1/name.v2_3", True),
        ("name", False),
        ("a/b/c", False),
        ("./name", False),
        ("../name", False),
        ("/name", False),
        ("models/tiny.gguf", False),
        ("~/model", False),
        ("a/" + "x" * 97, False),
    ],
)
def test_what_an_id_is(name: str, expected: bool) -> None:
    """An owner and a name; paths and files are none."""
    assert is_hub_id(name) == expected


def test_the_cache_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there is taken; else it is fetched, without code or pickled weights."""
    path = TinyFolder(Tiny()).write(tmp_path)
    asked: list[dict[str, Any]] = []

    def fetch(name: str, **how: Any) -> str:
        asked.append(how)
        if how.get("local_files_only") and len(asked) == 1:
            raise LocalEntryNotFoundError("not there")
        return str(path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    assert load_model("owner/name").architecture.num_layers == 2
    assert [how.get("local_files_only", False) for how in asked] == [True, False]
    assert "*.safetensors" in asked[1]["allow_patterns"]
    assert not any(end in ("*", "*.py", "*.bin") for end in asked[1]["allow_patterns"])
    assert load_model("owner/name").name == "owner/name"
    assert len(asked) == 3


def test_what_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """No such model, no network, or a fetch that breaks off; a path's folder is no owner."""
    with pytest.raises(ModelNotFoundError, match="no such model"):
        hub_folder("owner/name")  # tests ask no network

    def fail(name: str, **how: Any) -> str:
        if how.get("local_files_only"):
            raise LocalEntryNotFoundError("not there")
        raise OSError("No space left on device")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(DownloadError, match="No space left"):
        hub_folder("owner/name")
    assert issubclass(HfHubHTTPError, Exception)


def test_a_mistyped_path_is_no_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the folder is there, what is missing in it is a file."""

    def never(name: str, **how: Any) -> str:
        raise AssertionError(name)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", never)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    with pytest.raises(ModelNotFoundError, match="There is no file or folder 'models/tiny'"):
        load_model("models/tiny")
