"""The target drafts for itself: a pass a level for all texts, and nothing is kept of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from drafters.loop import Text
from forerun.drafters.early_exit import EarlyExit
from forerun.drafters.protocol import DraftRequest
from forerun.drafters.table import DrafterKit, make_drafter
from forerun.errors import CapabilityError, EngineError, OptionError
from forerun.targets.protocol import Row, Scores, Target
from forerun.targets.toy import ToyTarget

V = 6
PROMPT = [0, 3, 1, 2, 5]


class Watched(ToyTarget):
    """A toy that notes the rows of each pass, and after how many layers it ended."""

    passes: list[tuple[list[Row], int | None]]

    def score(
        self,
        rows: Sequence[Row],
        *,
        logits: Sequence[int] | None = None,
        layers: Sequence[int] = (),
        until: int | None = None,
    ) -> Scores:
        """Note the pass, then score."""
        assert logits is not None
        self.passes.append((list(rows), until))
        return super().score(rows, logits=logits, layers=layers, until=until)


def watched(order: int = 2, context: int = 4096, vocab_size: int = V) -> Watched:
    target = Watched.random(vocab_size, order, 1, context=context)
    target.passes = []
    return target


def no_model() -> Target:
    raise AssertionError("no second model is opened")


def drafter_of(target: Target | None, layers: int | None = None) -> EarlyExit:
    return EarlyExit(DrafterKit(V, no_model, target=target, draft_layers=layers))


def asked(target: ToyTarget, tokens: list[int], length: int, width: int) -> DraftRequest:
    """Return a request for a text that the target holds."""
    request = Text(1, tokens, target, budget=(length, width)).request()
    return replace(request, target_sequence=target.open(tokens[:-1]))


def test_a_draft_takes_one_pass_a_level_for_all_texts() -> None:
    """Three texts, four levels: four passes of root and trunk; no leaf is ever scored."""
    target = watched()
    requests = [asked(target, PROMPT[i:], 4, 3) for i in range(3)]
    drafts = drafter_of(target).draft(requests)
    assert [len(draft) for draft in drafts] == [12, 12, 12]
    assert [(len(rows), until) for rows, until in target.passes] == [
        (3, 1),
        (6, 1),
        (9, 1),
        (12, 1),
    ]
    for request in requests:
        assert request.target_sequence is not None
        with pytest.raises(EngineError):
            target.commit(request.target_sequence, [0])
        assert target.length(request.target_sequence) == len(request.tokens) - 1


def test_all_layers_are_never_wrong() -> None:
    """With as many layers as there are, noise shared and no filter, the draft is the text."""
    target = watched(order=3)
    text = PROMPT.copy()
    request = asked(target, PROMPT, 9, 1)
    (draft,) = drafter_of(target, 3).draft([request])
    assert request.noise is not None
    assert len(draft) == 9
    for position, node in enumerate(draft.nodes, len(PROMPT)):
        scores = target.logits_after(text) + request.noise.gumbel(position, V)
        assert node.token == int(scores.argmax())
        text.append(node.token)


def test_by_default_a_quarter_of_the_layers_guesses() -> None:
    """At least one; as many as are said, up to all."""
    for order, layers, until in ((1, None, 1), (8, None, 2), (8, 7, 7), (8, 8, 8)):
        target = watched(order, vocab_size=2)
        drafter_of(target, layers).draft([asked(target, [0, 1, 1, 0], 1, 1)])
        assert [ended for _, ended in target.passes] == [until]
    with pytest.raises(OptionError, match="draft_layers = 3: the target has 2"):
        drafter_of(watched(2), 3)


def test_a_target_without_layers_is_refused() -> None:
    """Before anything is drafted, in words that name the way out."""
    for target in (None, ToyTarget.random(V, 0, 1)):
        with pytest.raises(CapabilityError, match="another drafter"):
            drafter_of(target)
    with pytest.raises(CapabilityError):
        make_drafter("lookup,early_exit", DrafterKit(V, no_model))


def test_a_text_that_is_in_no_target_is_refused() -> None:
    """An engine's mistake, and not a silent lack of guesses."""
    target = watched()
    request = replace(asked(target, PROMPT, 2, 1), target_sequence=None)
    with pytest.raises(EngineError, match="in no target"):
        drafter_of(target).draft([request])


def test_a_full_context_ends_the_draft() -> None:
    """Root and trunk are scored up to the last place there is."""
    target = watched(context=7)
    (draft,) = drafter_of(target).draft([asked(target, PROMPT, 9, 2)])
    assert len(draft) == 6
    assert max(row.position for rows, _ in target.passes for row in rows) == 6
