"""The target's own first layers guess: its final norm and head read an early layer's output.

As in LayerSkip (Elhoushi et al., 2024) and Draft & Verify (Zhang et al., 2024) the target drafts
for itself: no second model, and no second cache, for the keys and values of the text's tokens are
there already. What it guesses is another matter. The layers of a model that was not trained to be
left early say little: of SmolLM2-135M's 30, the first 5 to 10 alone find the whole's likeliest
token at 2 to 3 % of a text's positions, 15 at 13 %, 24 at 34 %, 28 at 48 %. So no choice that is
left to Forerun takes this drafter; it is what trained exits stand on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.core.tree import Draft
from forerun.drafters.comb import Comb, grow_together
from forerun.drafters.memory import Memoryless
from forerun.drafters.protocol import DraftRequest
from forerun.drafters.table import DrafterKit
from forerun.errors import CapabilityError, EngineError, OptionError
from forerun.targets.protocol import Row

__all__ = ["EarlyExit"]


class EarlyExit(Memoryless):
    """Drafts with the target's first layers, all texts in one pass a level.

    Each pass scores the draft anew, from the root on: rows of such a pass can't be kept, and a few
    of them cost about what one does.

    Args:
        kit: The target, and how many of its layers; by default a quarter.

    Raises:
        CapabilityError: The target's passes are whole.
        OptionError: It has fewer layers.
    """

    name = "early_exit"

    def __init__(self, kit: DrafterKit) -> None:
        layers = 0 if kit.target is None else kit.target.capabilities.layers
        if kit.target is None or layers == 0:
            raise CapabilityError(
                "Drafter 'early_exit' runs the target's first layers alone, and this target's "
                "passes are whole.",
                "Choose another drafter.",
            )
        self._target = kit.target
        self._until = kit.draft_layers or max(1, layers // 4)
        if self._until > layers:
            what = f"draft_layers = {self._until}: the target has {layers}."
            raise OptionError(what, f"Choose 1 to {layers}.")

    def guess(self, request: DraftRequest) -> Draft:
        """Return a draft for one text."""
        return self.draft([request])[0]

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Grow all drafts together, a level a pass."""
        combs = [Comb(request, self.name) for request in requests]
        return grow_together(combs, self._target.context_length, self._pass)

    def _pass(self, combs: Sequence[Comb]) -> NDArray[np.float32]:
        """Return what the first layers make of each text's tip, float32 [combs, vocabulary]."""
        rows: list[Row] = []
        tips: list[int] = []
        for comb in combs:
            request = comb.request
            if request.target_sequence is None:
                raise EngineError(f"Text {request.sequence} is in no target, to be left early.")
            root = len(request.tokens) - 1
            for depth, token in enumerate((request.tokens[root], *comb.trunk)):
                parent = -1 if depth == 0 else len(rows) - 1
                rows.append(Row(request.target_sequence, token, root + depth, parent))
            tips.append(len(rows) - 1)
        return self._target.score(rows, logits=tips, until=self._until).logits
