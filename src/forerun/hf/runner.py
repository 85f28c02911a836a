"""The engine behind a model of transformers that somebody else has loaded."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from forerun.config import Loading
from forerun.control.control import Control
from forerun.drafters.protocol import Drafter
from forerun.drafters.store import Store
from forerun.drafters.table import DrafterKit, drafter_names, make_drafter
from forerun.engine.request import Ask
from forerun.engine.scheduler import Scheduler
from forerun.errors import OptionError
from forerun.events import Event
from forerun.models.model import load_model
from forerun.targets.protocol import Target
from forerun.targets.transformers import TransformersTarget
from forerun.targets.transformers_load import Placing, open_transformers

__all__ = ["Runner", "forget", "runner_of"]


class Runner:
    """Writes with one model; what drafters learn of texts stays with it.

    Args:
        model: In evaluation mode.

    Raises:
        UnsupportedModelError: It can't be a target.

    Attributes:
        target: The model as a target.
        lock: Held while texts are written: passes of one model follow each other.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.target = TransformersTarget(model)
        self.lock = threading.RLock()
        self._control = Control(self.target)
        self._store = Store(Loading().store_tokens)
        self._drafters: dict[tuple[Any, ...], Drafter | None] = {}
        self._draft_targets: dict[int | str, tuple[Any, Target]] = {}

    def run(
        self, asks: Sequence[Ask], draft_model: Any = None, draft_layers: int | None = None
    ) -> Iterator[Event]:
        """Write texts to their ends, all in the same passes.

        Args:
            asks: One a text.
            draft_model: For drafter `model`.
            draft_layers: For drafter `early_exit`.
        """

        def drafter_for(spec: str) -> Drafter | None:
            return self._drafter(spec, draft_model, draft_layers)

        scheduler = Scheduler(self.target, drafter_for, control=self._control)
        return scheduler.run(asks)

    def _drafter(self, spec: str, draft_model: Any, draft_layers: int | None) -> Drafter | None:
        is_named = isinstance(draft_model, str | os.PathLike)
        who = os.fspath(draft_model) if is_named else id(draft_model)
        key = (*drafter_names(spec), who, draft_layers)
        if key not in self._drafters:
            kit = DrafterKit(
                vocab_size=self.target.vocab_size,
                open_draft_model=lambda: self._draft_target(draft_model),
                target=self.target,
                draft_layers=draft_layers,
                store=self._store,
            )
            self._drafters[key] = make_drafter(spec, kit)
        return self._drafters[key]

    def _draft_target(self, model: Any) -> Target:
        if model is None:
            what = "Drafter 'model' needs a draft model, and there is none."
            raise OptionError(what, "Give draft_model=, a causal language model or its folder.")
        is_folder = isinstance(model, str | os.PathLike)
        key = os.path.abspath(model) if is_folder else id(model)
        if key not in self._draft_targets:
            opened = self._from(key) if isinstance(key, str) else TransformersTarget(model)
            if (opened.capabilities.encoder is None) != (self.target.capabilities.encoder is None):
                what = "Of the draft model and the target one has an encoder, the other has none."
                raise OptionError(what, "Give a draft model of the target's kind.")
            self._draft_targets[key] = model, opened
        return self._draft_targets[key][1]

    def _from(self, folder: str) -> Target:
        """Return a draft model from its folder, beside the target and in its type."""
        dtype = str(self.model.dtype).removeprefix("torch.")
        placing = Placing(str(self.model.device), dtype)
        return open_transformers(load_model(folder, foreign=True), placing=placing)


_LAST: list[Runner] = []
_LOCK = threading.Lock()


def runner_of(model: Any) -> Runner:
    """Return what runs a model; the last one's is kept, for it was tried and timed at load.

    Raises:
        UnsupportedModelError: It can't be a target.
        OptionError: It is being trained.
    """
    with _LOCK:
        if not (_LAST and _LAST[0].model is model):
            _LAST[:] = [Runner(model)]
        return _LAST[0]


def forget() -> None:
    """Let go of the last model that was written with, its keys and values, and all drafts."""
    with _LOCK:
        _LAST.clear()
