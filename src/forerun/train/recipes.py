"""From captured text to a file that drafts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from forerun.errors import StartError
from forerun.extras import pip_command
from forerun.models.head_file import HeadFile
from forerun.models.head_shapes import MEDUSA
from forerun.models.model import Model
from forerun.models.plain_file import read_json
from forerun.targets.protocol import Target
from forerun.train.folder import working_folder, write_record
from forerun.train.options import Capturing, HeadLearning, Hours, Learning

try:
    import torch  # noqa: F401
except ImportError as error:
    raise StartError(
        f"Training needs PyTorch: {error}.", f"Install it: {pip_command('forerun[train]')}"
    ) from None

from forerun.train.capture import CaptureNews, capture
from forerun.train.kinds import KINDS
from forerun.train.learner import Learner, TrainingNews
from forerun.train.loop import state_folder, train
from forerun.train.medusa_folder import export_medusa, import_medusa
from forerun.train.plan import Schedule, seconds_to_measure
from forerun.train.shards import Recipe, Shards
from forerun.train.speculators import export_speculators, import_speculators

__all__ = ["exported", "head_for_hours", "imported", "learned_from"]

_LONGEST_CONFIG = 16 << 20


def learned_from(
    kind: str,
    model: Model,
    target: Target,
    options: Learning,
    *,
    report: Callable[[TrainingNews], None],
    is_over: Callable[[], bool],
    seconds: float | None = None,
) -> dict[str, object] | None:
    """Train a drafter on a folder's text, and write its files and its card, `KIND.json`, there.

    Args:
        kind: One of `KINDS`.
        model: The target.
        target: Its passes.
        options: How to train, and in which folder.
        report: Told how far it is after each step.
        is_over: Asked between steps whether to end early; the same call goes on.
        seconds: Learn for so long instead of to the options' budget.

    Returns:
        The card, or None if it ended early: then nothing is written but the training's state.

    Raises:
        TrainingError: As `train`; or another works in the folder.
        ModelFileError: A file can't be written.
    """
    folder = Path(options.folder)
    Shards(folder)  # whose lack is told before a folder is made

    def make(recipe: Recipe) -> Learner:
        return KINDS[kind](model, target, recipe, options)

    with working_folder(state_folder(folder, kind)):
        trained = train(make, folder, options, report=report, is_over=is_over, seconds=seconds)
        if not trained.is_over:
            return None
        card = trained.learner.export(trained, folder)
        write_record(
            folder / f"{kind}.json", {**card, "history": [asdict(look) for look in trained.history]}
        )
    return card


def head_for_hours(
    model: Model,
    target: Target,
    options: Hours,
    *,
    told: Callable[[str], None],
    captured: Callable[[CaptureNews], None],
    learned: Callable[[TrainingNews], None],
    is_over: Callable[[], bool],
) -> dict[str, object] | None:
    """Capture, train and export within some hours; return the card, or None if it ended early.

    Args:
        model: The target.
        target: Its passes.
        options: How long, and where.
        told: Told the plan, and what follows from it once the capture is over.
        captured: Told how far the capture is.
        learned: Told how far the training is.
        is_over: Asked between passes and steps whether to end early; the same call goes on.

    Raises:
        TrainingError: As `capture` and `train`.
    """
    schedule = Schedule(model, target, options)
    told(schedule.plan.text())

    def heard(news: CaptureNews) -> None:
        captured(news)
        schedule.captured(news)

    capturing = Capturing(tokens=schedule.plan.tokens, folder=options.folder, seed=options.seed)
    news = capture(
        model,
        target,
        Path(options.folder),
        capturing,
        report=heard,
        is_over=lambda: schedule.has_text or is_over(),
    )
    if news.tokens < schedule.plan.tokens:
        return None
    learning = HeadLearning(folder=options.folder, seed=options.seed, threads=options.threads)
    seconds = schedule.learning(lambda: seconds_to_measure(model, target, learning))
    told(schedule.plan.text())
    return learned_from(
        "head", model, target, learning, report=learned, is_over=is_over, seconds=seconds
    )


def exported(head: HeadFile, model: Model, folder: Path) -> None:
    """Write a head in the folder layout of other engines that have its kind.

    Raises:
        OptionError: None has, or not in this shape.
        OtherTargetError: The head is of another target.
        TrainingError: The files can't be written.
    """
    export = export_medusa if head.kind == MEDUSA else export_speculators
    export(head, model, folder)


def imported(folder: Path, model: Model, path: Path) -> None:
    """Write the head of such a folder, of either layout, as a file of ours.

    Raises:
        ModelFileError: The folder is damaged, or does not fit the model.
        OptionError: It is a head of another kind.
    """
    config = read_json(folder / "config.json", _LONGEST_CONFIG)
    if "medusa_num_heads" in config:
        import_medusa(folder, model, path)
    else:
        import_speculators(folder, model, path)
