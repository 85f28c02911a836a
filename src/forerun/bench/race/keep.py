"""The file in which a run keeps its samples, line by line as they come."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from forerun.errors import OptionError

__all__ = ["Keeper"]


class Keeper:
    """Writes JSON lines into a new file: a name by the time, and a number if it is taken.

    Args:
        folder: Made if it is not there.

    Attributes:
        problem: Why not all could be written, once that is so; what was measured is worth more.

    Raises:
        OptionError: Nothing can be written there.
    """

    def __init__(self, folder: str) -> None:
        self.problem = ""
        stamp = time.strftime("%Y-%m-%dT%H-%M-%S")
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            for number in range(1000):
                name = f"{stamp}-generate{f'-{number}' if number else ''}.jsonl"
                self.path = Path(folder) / name
                try:
                    self._file = self.path.open("x", encoding="ascii")
                    return
                except FileExistsError:
                    continue
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            what = f"keep = {folder!r} can't be written: {reason}."
            raise OptionError(what, "Name another folder.") from None
        raise OptionError(f"keep = {folder!r} is full of runs of this second.", "Name another.")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(OSError):  # what had no room before has none now
            self._file.close()

    def add(self, record: Mapping[str, Any]) -> None:
        """Write one record, at once; from the first that can't be written on, none is."""
        line = json.dumps(record, allow_nan=False) + "\n"
        if self.problem:
            return
        try:
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            self.problem = error.strerror or str(error)
