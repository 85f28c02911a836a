"""What tells a target from every other by its content: a drafter learned from one is for no other.

A file's checksum is its SHA-256. A folder's is the SHA-256 of its weight files, one behind the
other in the order of their names: how a folder's matrices are rounded when they are read is no part
of it. A model cut to its first layers is another target than the whole one.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from forerun.errors import DownloadError, ModelFileError
from forerun.models.model import Model
from forerun.models.plain_file import FileIdentity, opened
from forerun.models.pull import cached_path
from forerun.models.registry import MODELS

__all__ = ["files_checksum", "target_checksum"]

_CHUNK = 1 << 20


def target_checksum(model: Model) -> str:
    """Return a model's checksum: 64 hexadecimal digits.

    A named model's file was checked when it was fetched; any other file is read whole, once.

    Raises:
        ModelFileError: A file changed since the model was loaded, or cannot be read.
        ModelNotFoundError: A file is gone.
    """
    digest = _of_named(model) or files_checksum(model.file.files)
    layers = model.architecture.num_layers
    if f"blk.{layers}.attn_norm.weight" not in model.file:
        return digest
    return hashlib.sha256(f"{digest}, the first {layers} layers".encode()).hexdigest()


def _of_named(model: Model) -> str | None:
    for name, registered in MODELS.items():
        with suppress(DownloadError):  # there is no cache folder, so nothing was fetched
            if model.path.name == registered.file_name and cached_path(name) == model.path:
                return registered.sha256
    return None


@lru_cache(maxsize=16)
def files_checksum(files: tuple[FileIdentity, ...]) -> str:
    """Return the SHA-256 of some files, one behind the other: 64 hexadecimal digits.

    Raises:
        ModelFileError: A file changed since it was opened, or cannot be read.
        ModelNotFoundError: A file is gone.
    """
    digest = hashlib.sha256()
    for file in files:
        with opened(Path(file.path)) as (stream, identity):
            if identity != file:
                raise ModelFileError(f"{file.path} changed after it was opened.", "Load it again.")
            while data := stream.read(_CHUNK):
                digest.update(data)
    return digest.hexdigest()
