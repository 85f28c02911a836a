"""Numbers that a file claims about its network, typed and checked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import NoReturn

from forerun.errors import ModelFileError, UnsupportedModelError
from forerun.extras import pip_command
from forerun.models.plain_file import DAMAGED

__all__ = ["UNSUPPORTED", "Facts"]

UNSUPPORTED = (
    "Forerun's own engines run llama (with mistral), qwen2, qwen3 and smollm3 without such extras. "
    f"All else that transformers knows runs on it: {pip_command('forerun[hf]')}, and a folder."
)
_LARGEST_HEAD = 1 << 14


class Facts(ABC):
    """What a file says, by name; whatever is impossible is an error that shows the value.

    Args:
        path: The file or folder, for errors.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def get(self, key: str, default: object = None) -> object:
        """Return what the file says under a key."""

    def damaged(self, what: str) -> NoReturn:
        """Raise the error for a number that cannot be."""
        raise ModelFileError(f"{self.path} claims {what}.", DAMAGED)

    def unsupported(self, what: str) -> NoReturn:
        """Raise the error for what is not implemented."""
        raise UnsupportedModelError(f"{self.path} needs {what}.", UNSUPPORTED)

    def whole(self, key: str, default: int | None = None) -> int:
        """Return a count of 1 or more."""
        value = self.get(key, default)
        if isinstance(value, list) and value:
            if any(other != value[0] for other in value):
                self.unsupported(f"layers that differ in {key}")
            value = value[0]
        if type(value) is not int or not 1 <= value < 1 << 31:
            raise ModelFileError(f"{self.path}: {key} is {value!r:.80}.", DAMAGED)
        return value

    def head_dim(self, key: str, default: int) -> int:
        """Return a head's size, small enough to compute with before the tensors confirm it."""
        size = self.whole(key, default)
        if size > _LARGEST_HEAD:
            self.damaged(f"heads of {size} components")
        return size

    def real(self, key: str, default: float | None = None, *, upper: float = 1e30) -> float:
        """Return a positive number up to `upper`."""
        return self.checked_real(key, self.get(key, default), upper)

    def checked_real(self, key: str, value: object, upper: float = 1e30) -> float:
        """Return a value as a positive number up to `upper`."""
        if type(value) not in (int, float) or not 0 < value <= upper:  # type: ignore[operator]
            raise ModelFileError(f"{self.path}: {key} is {value!r:.80}.", DAMAGED)
        return float(value)  # type: ignore[arg-type]
