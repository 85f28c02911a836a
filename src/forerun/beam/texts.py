"""The running beams as a drafter follows them: each a text of its own, forked where beams part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forerun.beam.ask import BeamAsk
from forerun.beam.drafts import Extent, guess_levels
from forerun.beam.tree import TextNode, path
from forerun.core.tree import Draft
from forerun.drafters.protocol import Drafter, DraftRequest, Outcome, Watcher, layers_of
from forerun.native import fast_noise

__all__ = ["DraftedTexts"]


class _Text(NamedTuple):
    """The drafter's name for a beam, and all of its tokens."""

    name: int
    tokens: tuple[int, ...]


class DraftedTexts:
    """What one drafter knows of one search.

    Args:
        drafter: Who guesses.
        ask: What is searched for.
        names: Gives names for texts, each once.
        prompt: The first running beam.
        in_target: Whether the drafter looks at a text in the target, and can't guess elsewhere.
    """

    def __init__(
        self,
        drafter: Drafter,
        ask: BeamAsk,
        names: Callable[[], int],
        prompt: TextNode,
        *,
        in_target: bool,
    ) -> None:
        self._drafter, self._ask, self._names = drafter, ask, names
        self._in_target = in_target
        self._noise = fast_noise(0)  # asked for by the protocol; at temperature 0 nobody looks
        self._round = 0
        self.layers = layers_of(drafter)
        first = _Text(names(), ask.prompt)
        drafter.open(first.name, first.tokens)
        self._texts = {prompt: first}

    def see(self, start: int, hidden: Mapping[int, NDArray[np.float32]]) -> None:
        """Show a part of the prompt's hidden states."""
        assert isinstance(self._drafter, Watcher)
        (text,) = self._texts.values()
        self._drafter.see(text.name, start, hidden)

    def guess(
        self,
        running: Sequence[tuple[TextNode, float]],
        extent: Extent,
        sequence_of: Callable[[TextNode], int | None],
    ) -> list[list[TextNode]]:
        """Return the texts that are expected to run after each of the next steps.

        Args:
            running: The beams, best first, with their scores.
            extent: How much is wanted.
            sequence_of: Returns the target's sequence that holds a beam but for its last token.
        """
        requests = [self._request(node, extent, sequence_of(node)) for node, _ in running]
        asked = [
            None if self._in_target and request.target_sequence is None else request
            for request in requests
        ]
        ends = self._ask.rule.ends
        levels = guess_levels(
            self._drafter, asked, running, extent, lambda token: token not in ends
        )
        self._round += 1
        return levels

    def follow(self, running: Sequence[tuple[TextNode, TextNode]]) -> None:
        """Take the running beams that a pass has led to, and let the drafter learn.

        Args:
            running: Each new beam and the old one that it begins with, best first. Of the texts in
                between all is known that the target said.
        """
        old, taken = self._texts, set[TextNode]()
        self._texts = dict(old)  # whatever fails, all that is open will be freed
        new: dict[TextNode, _Text] = {}
        outcomes: list[Outcome] = []
        for beam, before in running:
            nodes = path(beam, before)
            tokens = (*old[before].tokens, *(node.token for node in nodes))
            name = old[before].name
            if before in taken:
                name = self._names()
                self._drafter.fork(old[before].name, name)
            taken.add(before)
            new[beam] = self._texts[beam] = _Text(name, tokens)
            outcomes.append(self._outcome(new[beam], [before, *nodes[:-1]]))
        self._drafter.observe(outcomes)
        for before in old.keys() - taken:
            self._let_go(self._texts.pop(before), is_kept=False)
        self._texts = new

    def free(self) -> None:
        """Have the drafter let go; the best running beam is what it may remember."""
        texts, self._texts = dict.fromkeys(self._texts.values()), {}
        names = {text.name: text for text in texts}
        with ExitStack() as all_of_them:
            for place, text in enumerate(names.values()):
                all_of_them.callback(self._let_go, text, is_kept=place == 0)

    def _let_go(self, text: _Text, *, is_kept: bool) -> None:
        if not is_kept:  # a beam that came to nothing is not to be learned from
            self._drafter.rollback(text.name, 0)
        self._drafter.free(text.name)

    def _request(self, node: TextNode, extent: Extent, sequence: int | None) -> DraftRequest:
        text, ask = self._texts[node], self._ask
        return DraftRequest(
            sequence=text.name,
            tokens=text.tokens,
            prompt_length=len(ask.prompt),
            length=extent.levels,
            width=extent.width,
            warp=ask.warp,
            state=node.state,
            round=self._round,
            noise=self._noise,
            ends=ask.rule.ends,
            target_sequence=sequence,
            tenant=ask.tenant,
            prediction=ask.prediction,
            source=ask.source or (),
        )

    def _outcome(self, text: _Text, scored: Sequence[TextNode]) -> Outcome:
        """Return what became of a beam: the texts on its way whose rows it took, first to last."""
        rows = [node.logits for node in scored]
        return Outcome(
            sequence=text.name,
            draft=Draft.chain([node.token for node in scored[1:]], self._drafter.name),
            accepted=tuple(range(len(scored) - 1)),
            tokens=text.tokens,
            emitted=len(scored),
            logits=np.stack([row for row in rows if row is not None]),
            hidden={
                layer: np.stack([node.hidden[layer] for node in scored]) for layer in self.layers
            },
        )
