"""A second, smaller model guesses (Leviathan et al., 2023; Chen et al., 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.core.tree import Draft
from forerun.drafters.comb import Comb, grow_together
from forerun.drafters.memory import Followed
from forerun.drafters.protocol import Drafter, DraftRequest, Outcome
from forerun.drafters.retold import Retold
from forerun.drafters.table import DrafterKit
from forerun.errors import VocabularyError
from forerun.targets.protocol import Row, Target

__all__ = ["Model", "open_model"]


@dataclass(slots=True)
class _Twin:
    """The draft model's own copy of a text.

    Attributes:
        sequence: Its name in the draft model; None until the first draft needs it.
        tokens: What it holds: the beginning of the text, then guesses that may not have come true.
        agreed: How many of them are known to be the text's.
    """

    sequence: int | None
    tokens: list[int]
    agreed: int = 0


class Model:
    """Drafts with a target of its own, one sequence a text, all texts in one pass a level.

    A draft of n levels takes n passes; the first also scores what the model has not seen of the
    text. A comb's leaves are never scored: should one come true, the next draft's first pass
    catches up. Where the draft model's context is full it has no guess, and decoding goes on.

    Args:
        model: The draft model.
        vocab_size: Tokens that the target knows.

    Raises:
        VocabularyError: The draft model has another number of tokens than the target.
    """

    name = "model"

    def __init__(self, model: Target, vocab_size: int) -> None:
        if model.vocab_size != vocab_size:
            raise VocabularyError(
                f"The draft model knows {model.vocab_size} tokens, the target {vocab_size}.",
                "Choose a draft model with the target's own vocabulary.",
            )
        self._model = model
        self._twins = Followed[_Twin](self.name)

    def open(self, sequence: int, tokens: Sequence[int]) -> None:
        """Follow a new text; the first draft will read it."""
        self._twins.add(sequence, lambda: _Twin(None, []))

    def fork(self, sequence: int, new: int) -> None:
        """Follow text `new`, which has been `sequence` until now."""
        twin = self._twins[sequence]

        def forked() -> _Twin:
            own = None if twin.sequence is None else self._model.fork(twin.sequence)
            return _Twin(own, twin.tokens.copy(), twin.agreed)

        self._twins.add(new, forked)

    def rollback(self, sequence: int, length: int) -> None:
        """Forget all but the first `length` tokens of the text."""
        self._keep(self._twins[sequence], length)

    def free(self, sequence: int) -> None:
        """Stop following the text."""
        twin = self._twins.leave(sequence)
        if twin.sequence is not None:
            self._model.free(twin.sequence)

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Nothing yet: the next draft finds out what came true."""

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Grow all drafts together, a level a pass."""
        combs = [Comb(request, self.name) for request in requests]
        return grow_together(combs, self._model.context_length, self._pass)

    def _catch_up(self, request: DraftRequest) -> None:
        """Make the twin a beginning of the text, short of its last token at least."""
        twin, tokens = self._twins[request.sequence], request.tokens
        if twin.sequence is None:
            twin.tokens = list(tokens[:-1])
            twin.sequence = self._model.open(twin.tokens, request.source or None)
        else:
            most = min(len(twin.tokens), len(tokens) - 1)
            agreed = min(twin.agreed, most)
            while agreed < most and twin.tokens[agreed] == tokens[agreed]:
                agreed += 1
            self._keep(twin, agreed)
        twin.agreed = len(twin.tokens)

    def _pass(self, combs: Sequence[Comb]) -> NDArray[np.float32]:
        """Score and keep each text's and trunk's unseen tokens.

        Returns:
            The logits after the last of them, float32 [combs, vocabulary].
        """
        rows: list[Row] = []
        paths: list[tuple[_Twin, int, list[int]]] = []
        for comb in combs:
            if not comb.trunk:
                self._catch_up(comb.request)
            twin = self._twins[comb.request.sequence]
            assert twin.sequence is not None, "caught up before its first pass"
            unseen, start = _unseen(comb, len(twin.tokens)), len(rows)
            for i, token in enumerate(unseen):
                parent = -1 if i == 0 else len(rows) - 1
                rows.append(Row(twin.sequence, token, len(twin.tokens) + i, parent))
            paths.append((twin, twin.sequence, list(range(start, len(rows)))))
        scores = self._model.score(rows, logits=[path[-1] for _, _, path in paths])
        for twin, sequence, path in paths:
            self._model.commit(sequence, path)
            twin.tokens += [rows[i].token for i in path]
        return scores.logits

    def _keep(self, twin: _Twin, length: int) -> None:
        if length < len(twin.tokens):
            assert twin.sequence is not None, "only an open sequence holds tokens"
            self._model.rollback(twin.sequence, length)
            del twin.tokens[length:]
        twin.agreed = min(twin.agreed, length)


def open_model(kit: DrafterKit) -> Drafter:
    """Return the drafter behind a draft model: by its tokens, or by text where they are others.

    Raises:
        VocabularyError: The draft model has another number of tokens than the target.
    """
    model, border = kit.open_draft_model(), kit.border()
    return Model(model, kit.vocab_size) if border is None else Retold(model, border)


def _unseen(comb: Comb, seen: int) -> list[int]:
    """Return the tokens of text and trunk after the first `seen`."""
    tokens = comb.request.tokens
    return [*tokens[seen:], *comb.trunk[max(0, seen - len(tokens)) :]]
