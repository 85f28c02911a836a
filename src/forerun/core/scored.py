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

    def along(self, line: Sequence[int], noise: Noise, position: int) -> list[int]:
        """Return the target's tokens after the nodes of a line, up to the first that leaves it.

        Args:
            line: Each node the child of the one before (`Draft.first_line`).
            noise: The text's noise.
            position: Of the token that follows the line's first node.
        """
        places = self._places(line, position)
        chosen = self.warp.choose(self.logits, places, noise)
        for place, normaliser in zip(places, chosen.normalisers, strict=False):
            self._normalisers[place.row] = normaliser
        tokens: list[int] = []
        for (row, state, at, guess), token in zip(places, chosen.tokens, strict=True):
            if token is None:  # the warp must be asked by itself
                token = self.warp.token(self.logits[row], state, noise, at)
            tokens.append(token)
            if token != guess:
                break
        return tokens

    def _places(self, line: Sequence[int], position: int) -> list[Place]:
        nodes, state = self.draft.nodes, self.state(line[0])
        guesses = [nodes[child].token for child in line[1:]]
        if self.warp.is_plain:  # no state changes a row
            rows = zip(line, range(position, position + len(line)), [*guesses, None], strict=True)
            return [Place(node + 1, state, at, guess) for node, at, guess in rows]
        places = []
        for place, (child, guess) in enumerate(zip(line[1:], guesses, strict=True)):
            places.append(Place(line[place] + 1, state, position + place, guess))
            self._states[child] = state = state.advance(guess)
        return [*places, Place(line[-1] + 1, state, position + len(guesses))]

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
