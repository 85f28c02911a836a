"""The draft model that there is for a target: the one that was named, or the target's first layers.

It is opened once, when a drafter asks for it.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable

from forerun.config import Loading
from forerun.drafters.retold import Border
from forerun.errors import OptionError
from forerun.models.model import Model, load_model
from forerun.targets.protocol import Target

__all__ = ["DraftModelAtHand"]


class DraftModelAtHand:
    """Opens the draft model of one target.

    Args:
        model: The target's.
        target: For which it drafts.
        loading: What the target was opened with, and the draft model is.
        open_target: Opens a target for a model, in a context of so many tokens.

    Attributes:
        border: Both tokenizers, once it is open, if it has one of its own.
    """

    def __init__(
        self,
        model: Model,
        target: Target,
        loading: Loading,
        open_target: Callable[[Model, int | None], Target],
    ) -> None:
        self.border: Border | None = None
        self._model, self._for, self._loading = model, target, loading
        self._open_target = open_target
        self._opened: Target | None = None

    def target(self) -> Target:
        """Return the draft model.

        Raises:
            StartError: It cannot be opened.
            OptionError: It has an encoder and the target has none, or the other way about.
        """
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def _open(self) -> Target:
        loading, own = self._loading, self._model
        named, layers = loading.draft_model, loading.draft_layers
        if named is None:
            # Cheap, and real enough to try the drafter with; untrained layers guess little.
            quarter = max(1, own.architecture.num_layers // 4)
            return self._open_target(own.cut(layers or quarter), loading.context)
        # A folder is read as the target's is; a GGUF file has its own types.
        weights = loading.weights if os.path.isdir(named) else "auto"
        foreign = loading.target in ("auto", "transformers")
        model = load_model(named, layers=layers, weights=weights, foreign=foreign)
        if model.tokenizer.fingerprint != own.tokenizer.fingerprint:
            what = f"Draft model {model.name} has another tokenizer than {own.name}: "
            warnings.warn(what + "drafts pass as text, and fewer of them hold.", stacklevel=2)
            self.border = Border.between(own.tokenizer, model.tokenizer)
        # A shorter one's drafts end where its context does; decoding goes on.
        context = min(self._for.context_length, model.architecture.context_length)
        opened = self._open_target(model, context)
        if (opened.capabilities.encoder is None) != (self._for.capabilities.encoder is None):
            what = f"Of {named!r} and {own.name!r} one has an encoder, the other has none."
            raise OptionError(what, "Choose a draft model of the target's kind.")
        return opened
