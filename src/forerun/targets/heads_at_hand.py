"""The learned heads that there are for a target: the one that was named, and those that come along.

Each is opened once, when a drafter asks for it.
"""

from __future__ import annotations

import os
from functools import cached_property

from forerun.errors import OptionError
from forerun.models.head_file import HeadFile
from forerun.models.head_shapes import EAGLE
from forerun.models.model import Model
from forerun.models.shipped_head import shipped_head
from forerun.models.target_checksum import files_checksum, target_checksum
from forerun.targets.head import Head
from forerun.targets.protocol import Target
from forerun.targets.readout import Readout
from forerun.targets.table import HEADS, check_beside, open_head, open_readout

__all__ = ["HeadsAtHand"]


class HeadsAtHand:
    """Finds and opens the heads of one target.

    Args:
        model: The target's.
        target: Beside which they run.
        named: The file of the user's; None if there is none.
        force: Take that one though it was learned from another target, if its sizes fit.
        kv_bits: 16 or 32, of each number in a head's keys and values; None is 16.
    """

    def __init__(
        self,
        model: Model,
        target: Target,
        named: str | os.PathLike[str] | None = None,
        *,
        force: bool = False,
        kv_bits: int | None = None,
    ) -> None:
        self._model, self._target = model, target
        self._path, self._force, self._kv_bits = named, force, kv_bits
        self._head: Head | None = None
        self._readouts: dict[str, Readout] = {}

    @property
    def kind(self) -> str:
        """Of the head that `auto` asks: the named one, else one that comes along; empty for none.

        Raises:
            StartError: A file can't be read.
        """
        head = self._shipped if self._named is None else self._named
        return "" if head is None else head.kind

    def head(self) -> Head:
        """Return the head of a decoder layer.

        Raises:
            OptionError: There is none.
            StartError: Its file can't be read, or it is of another target.
        """
        if self._head is None:
            file = self._file(EAGLE, "eagle")
            self._head = open_head(
                file, self._model, self._target, kv_bits=self._kv_bits, force=self._forces(file)
            )
        return self._head

    def checksums(self) -> tuple[str, str]:
        """Return the checksums of the target and of the head of a decoder layer.

        Raises:
            OptionError: There is no such head.
            StartError: A file can't be read.
        """
        head = self._file(EAGLE, "eagle")
        return target_checksum(self._model), files_checksum(head.file.files)

    def readout(self, kind: str) -> Readout:
        """Return the head without attention of a kind; raises what `head` raises."""
        if kind not in self._readouts:
            file = self._file(kind, kind)
            force = self._forces(file)
            self._readouts[kind] = open_readout(file, self._model, self._target, force=force)
        return self._readouts[kind]

    @cached_property
    def _named(self) -> HeadFile | None:
        return None if self._path is None else HeadFile.open(self._path)

    @cached_property
    def _shipped(self) -> HeadFile | None:
        runs_beside = self._target.capabilities.name in HEADS
        return shipped_head(self._model) if runs_beside else None

    def _forces(self, file: HeadFile) -> bool:
        return self._force and file is self._named

    def _file(self, kind: str, drafter: str) -> HeadFile:
        check_beside(self._target)
        if self._named is not None and self._named.kind == kind:
            return self._named
        if self._shipped is not None and self._shipped.kind == kind:
            return self._shipped
        if self._named is not None:
            self._named.check_kind(kind)
        raise OptionError(
            f"Drafter {drafter!r} needs a head, and none comes with {self._model.name}.",
            "Name the file of one that was learned from this model: head, or --head.",
        )
