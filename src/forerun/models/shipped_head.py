"""The heads that come with Forerun: a file each, found by the target that it was learned from."""

from __future__ import annotations

from pathlib import Path

from forerun.errors import OtherTargetError
from forerun.models.head_file import HeadFile
from forerun.models.model import Model

__all__ = ["shipped_head"]

_FOLDER = Path(__file__).parents[1] / "heads"


def shipped_head(model: Model, folder: Path = _FOLDER) -> HeadFile | None:
    """Return the head that was learned from a model; None if there is none for it.

    Args:
        model: The target.
        folder: Where the heads are.

    Raises:
        ModelFileError: A head is damaged, or the model's file changed.
    """
    for path in sorted(folder.glob("*.gguf")):
        head = HeadFile.open(path)
        try:
            head.check_target(model)
        except OtherTargetError:
            continue
        return head
    return None
