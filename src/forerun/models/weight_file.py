"""What a target asks of a file of weights, whatever its format.

Tensors have the names that GGUF gives them: `token_embd.weight`, `blk.0.attn_q.weight`, ...
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from forerun.models.plain_file import FileIdentity

__all__ = ["WeightFile"]


class WeightFile(Protocol):
    """Weights that lie in files until a target asks for them, tensor by tensor."""

    @property
    def path(self) -> Path:
        """Where the file or the folder is, absolute."""
        ...

    @property
    def identity(self) -> Hashable:
        """The files as they were when they were opened, and how they are read."""
        ...

    @property
    def files(self) -> tuple[FileIdentity, ...]:
        """The files as they were when they were opened, in the order of their names."""
        ...

    @property
    def file_bytes(self) -> int:
        """Size of all files of weights."""
        ...

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """Names of all tensors; one that no network here has keeps the name it has in the file."""
        ...

    def __contains__(self, name: object) -> bool: ...

    def own_name(self, name: str) -> str:
        """Return what the format itself calls a tensor."""
        ...

    def tensor_shape(self, name: str) -> tuple[int, ...]:
        """Return a tensor's shape, row-major: a matrix is (outputs, inputs)."""
        ...

    def tensor_type(self, name: str) -> str:
        """Return the type of what `raw` returns, as GGML names it."""
        ...

    def nbytes(self, name: str) -> int:
        """Return how many bytes `raw` returns; -1 if the type is not known."""
        ...

    def raw(self, name: str) -> NDArray[np.uint8]:
        """Return a tensor's bytes in its type: uint8, one axis, its own memory."""
        ...

    def tensor(self, name: str) -> NDArray[np.float32]:
        """Return a tensor as numbers: float32, C-contiguous, its own memory, all finite."""
        ...
