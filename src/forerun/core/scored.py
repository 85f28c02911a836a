"""A draft with the target's logits on it: what a rule looks at."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.core.noise import Noise
from forerun.core.tree import ROOT, Draft
from forerun.core.warp import Law, Place, Scores, State, Warp, law
from forerun.errors import EngineError

__all__ = ["ScoredDraft"]


class ScoredDraft:
    """The target's law at the root and at every node of a draft, warped when asked for.

    Args:
        draft: What was proposed.
        logits: float32 [1 + nodes, vocabulary]: the root's row, then a row for each node.
        warp: The request's warp.
        state: The warp's state at the root.
        position: Of the token that follows the root, for the noise's address.
    """

    def __init__(
        self,
        draft: Draft,
        logits: NDArray[np.float32],
        warp: Warp,
        state: State,
        position: int,
    ) -> None:
        if len(logits) != len(draft) + 1:
            raise EngineError(f"{len(draft)} nodes need {len(draft) + 1} rows, not {len(logits)}.")
        self.draft = draft
        self.logits = logits
        self.warp = warp
        self.position = position
        self._states = {ROOT: state}
        self._laws: dict[int, Law] = {}
        # By node, position and noise; None is for what the warp must be asked by itself.
        self._tokens: dict[tuple[int, int, Noise], int | None] = {}
        self._normalisers: dict[int, tuple[float, float]] = {}  # by row

    def state(self, node: int) -> State:
        """Return the warp's state after the path to `node`."""
        if node not in self._states:
            parent, token = self.draft.nodes[node].parent, self.draft.nodes[node].token
            self._states[node] = self.state(parent).advance(token)
        return self._states[node]

    def scores(self, node: int) -> Scores:
        """Return the log-weights of the token after `node`, under the whole warp."""
        return self.warp.scores(self.logits[node + 1], self.state(node))

    def token(self, node: int, noise: Noise, position: int) -> int:
        """Return the target's token after `node`, which stands at `position`."""
        known = self._tokens.get((node, position, noise))
        if known is not None:
            return known
        if (node, position, noise) not in self._tokens:
            self._choose(self.draft.first_line(node), noise, position)
            return self.token(node, noise, position)
        return self.warp.token(self.logits[node + 1], self.state(node), noise, position)

    def _choose(self, line: Sequence[int], noise: Noise, position: int) -> None:
        """Look along a line of nodes, the first of which stands at `position`, in one go."""
        nodes, places = self.draft.nodes, []
        node, state = line[0], self.state(line[0])
        for at, child in enumerate(line[1:], position):
            guess = nodes[child].token
            places.append(Place(node + 1, state, at, guess))
            state = state.advance(guess)
            node, self._states[child] = child, state
        places.append(Place(node + 1, state, position + len(places)))
        chosen = self.warp.choose(self.logits, places, noise)
        for node, place, token in zip(line, places, chosen.tokens, strict=True):
            self._tokens[node, place.position, noise] = token
        for place, normaliser in zip(places, chosen.normalisers, strict=False):
            self._normalisers[place.row] = normaliser

    def log_probabilities(self, nodes: Sequence[int], tokens: Sequence[int]) -> list[float]:
        """Return the model's own log-probability of a token after each of some nodes."""
        rows = [node + 1 for node in nodes]
        return self.warp.log_probabilities_of(tokens, self.logits, rows, self._normalisers)

    def law(self, node: int) -> Law:
        """Return p after `node`: float64 [vocabulary]; do not write to it."""
        if node not in self._laws:  # the rules that sample look several times
            self._laws[node] = self.warp.law(self.logits[node + 1], self.state(node))
        return self._laws[node]

    def ungreedy_law(self, node: int) -> Law:
        """Return p after `node` at temperature 1 and without truncation.

        Lenience at temperature 0 compares these (Leviathan et al., section A.5): argmax leaves
        nothing to be lenient about.
        """
        return law(self.warp.weigh(self.logits[node + 1], self.state(node)))

    def q(self, node: int) -> Law:
        """Return the proposal that `node` was drawn from: float64 [vocabulary]."""
        return self.draft.nodes[node].proposal.dense(self.warp.vocab_size)
