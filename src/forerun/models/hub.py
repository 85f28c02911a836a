"""Models of the Hugging Face hub, by id: what is in its cache, else what can be fetched.

Only configuration, tokenizer and safetensors are fetched, never code and never pickled weights.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

from forerun.errors import DownloadError, ModelNotFoundError

__all__ = ["hub_folder", "is_hub_id"]

_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_WANTED = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]


def is_hub_id(name: str) -> bool:
    """Whether a name can be a model's id: `owner/name`, and no file that was mistyped."""
    return bool(_ID.fullmatch(name)) and not name.endswith((".gguf", ".safetensors", ".bin"))


def hub_folder(name: str) -> Path:
    """Return the folder of a model of the hub, fetched if it is not in the cache.

    Raises:
        ModelNotFoundError: It is not in the cache, and there is none or no way to it.
        DownloadError: It could not be fetched whole.
    """
    hub: Any = importlib.import_module("huggingface_hub")
    errors: Any = importlib.import_module("huggingface_hub.errors")
    try:
        return Path(hub.snapshot_download(name, allow_patterns=_WANTED, local_files_only=True))
    except errors.LocalEntryNotFoundError:
        pass
    try:
        return Path(hub.snapshot_download(name, allow_patterns=_WANTED))
    except (errors.RepositoryNotFoundError, errors.LocalEntryNotFoundError) as error:
        told = str(error).splitlines()[0][:120]
        raise ModelNotFoundError(
            f"There is no file or folder {name!r}, and no such model in the Hugging Face cache or "
            f"hub ({told}).",
            "Check the name, and the network.",
        ) from error
    except (errors.HfHubHTTPError, OSError) as error:
        told = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise DownloadError(f"{name} could not be fetched: {told}.", "Try again.") from error
