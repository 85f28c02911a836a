"""From captured text to a file that drafts, one function a kind of drafter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from forerun.errors import StartError
from forerun.models.model import Model
from forerun.targets.protocol import Target
from forerun.train.folder import working_folder, write_record
from forerun.train.options import HeadLearning

try:
    import torch  # noqa: F401
except ImportError as error:
    raise StartError(
        f"Training needs PyTorch: {error}.", "Install it: pip install 'forerun[train]'."
    ) from None

from forerun.train.export import export_head
from forerun.train.loop import HeadNews, head_state, train_head
from forerun.train.shards import Shards

__all__ = ["head_from"]


def head_from(
    model: Model,
    target: Target,
    folder: Path,
    options: HeadLearning,
    *,
    report: Callable[[HeadNews], None],
    is_over: Callable[[], bool],
) -> dict[str, object]:
    """Train a head on a folder's text, write `head.gguf` and `head.json` there; return the card.

    Raises:
        TrainingError: As `train_head`; or another works in the folder.
        ModelFileError: The head's file can't be written.
    """
    recipe = Shards(folder).recipe
    with working_folder(head_state(folder)):
        trained = train_head(model, folder, options, report=report, is_over=is_over)
        card = export_head(trained, model, target, recipe, options, folder / "head.gguf")
        write_record(folder / "head.json", card)
    return card
