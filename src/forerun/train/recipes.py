"""From captured text to a file that drafts, one function a kind of drafter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from forerun.errors import StartError
from forerun.models.model import Model
from forerun.targets.protocol import Target
from forerun.train.folder import working_folder, write_record
from forerun.train.options import Capturing, HeadLearning, Hours

try:
    import torch  # noqa: F401
except ImportError as error:
    raise StartError(
        f"Training needs PyTorch: {error}.", "Install it: pip install 'forerun[train]'."
    ) from None

from forerun.train.capture import CaptureNews, capture
from forerun.train.export import export_head
from forerun.train.loop import HeadNews, head_state, train_head
from forerun.train.plan import plan_for
from forerun.train.shards import Shards

__all__ = ["head_for_hours", "head_from", "speculators"]


def head_from(
    model: Model,
    target: Target,
    folder: Path,
    options: HeadLearning,
    *,
    report: Callable[[HeadNews], None],
    is_over: Callable[[], bool],
) -> dict[str, object] | None:
    """Train a head on a folder's text, and write `head.gguf` and its card, `head.json`, there.

    Returns:
        The card, or None if it ended early: then nothing is written but the training's state.

    Raises:
        TrainingError: As `train_head`; or another works in the folder.
        ModelFileError: The head's file can't be written.
    """
    recipe = Shards(folder).recipe
    with working_folder(head_state(folder)):
        trained = train_head(model, folder, options, report=report, is_over=is_over)
        if not trained.is_over:
            return None
        card = export_head(trained, model, target, recipe, options, folder / "head.gguf")
        write_record(folder / "head.json", {**card, "history": list(trained.history)})
    return card


def head_for_hours(
    model: Model,
    target: Target,
    options: Hours,
    *,
    told: Callable[[str], None],
    captured: Callable[[CaptureNews], None],
    learned: Callable[[HeadNews], None],
    is_over: Callable[[], bool],
) -> dict[str, object] | None:
    """Capture, train and export within some hours; return the card, or None if it ended early.

    Args:
        model: The target.
        target: Its passes.
        options: How long, and where.
        told: Told the plan.
        captured: Told how far the capture is.
        learned: Told how far the training is.
        is_over: Asked between passes and steps whether to end early; the same call goes on.

    Raises:
        TrainingError: As `capture` and `train_head`.
    """
    folder = Path(options.folder)
    plan = plan_for(model, target, options)
    told(plan.text())
    capturing = Capturing(tokens=plan.tokens, folder=options.folder, seed=options.seed)
    news = capture(model, target, folder, capturing, report=captured, is_over=is_over)
    if news.tokens < plan.tokens:
        return None
    learning = HeadLearning(
        budget=plan.budget, folder=options.folder, seed=options.seed, threads=options.threads
    )
    return head_from(model, target, folder, learning, report=learned, is_over=is_over)


def speculators() -> ModuleType:
    """Return the module that knows that format, now that PyTorch is there."""
    from forerun.train import speculators as module

    return module
