"""From a head's logits over its draft vocabulary to ranked guesses.

At temperature 0 tokens rank by logit. Above it they rank by log q + g, g the noise that will choose
the target's token. The confidence is each one's share of exp(score) among all: of two scores that
are close, either token may be the target's, since q is not quite p.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from forerun.core.noise import Noise
from forerun.core.warp import State
from forerun.drafters.protocol import DraftRequest, Guess
from forerun.native import fast_likeliest

__all__ = ["HeadRanks"]

_COLDEST, _STEEPEST = 1e-300, 3e38
_SHORTLIST = 64  # tokens besides those asked for that masks, bias and penalties are applied to


class HeadRanks:
    """Ranks one request's guesses.

    Args:
        request: Gives temperature, noise and warp.
        tokens: The draft vocabulary, uint32 [R], ascending.
        drafter: Whose guesses they are.
    """

    def __init__(self, request: DraftRequest, tokens: NDArray[np.uint32], drafter: str) -> None:
        self._tokens, self._drafter = tokens, drafter
        self._temperature = request.warp.sampling.temperature
        self._noise = request.noise if self._temperature > 0 else None
        self._made: dict[int, NDArray[np.float32]] = {}  # by position: nodes of a depth share it
        self._warp = None if request.warp.is_plain else request.warp

    def guesses(
        self, logits: NDArray[np.float32], position: int, state: State, most: int
    ) -> list[Guess]:
        """Return the best guesses, distinct tokens.

        Args:
            logits: The head's, float32 [R].
            position: Where the guessed token would stand in the text.
            state: The warp's, before it.
            most: How many, at most.
        """
        noise = None
        scores = logits
        if self._noise is not None:
            noise = self._noise_at(position, self._noise)
            scores = self._with(logits, noise)
        asked = most if self._warp is None else most + _SHORTLIST
        found = fast_likeliest(scores[None], asked)
        best = [at for at in found.tokens[0].tolist() if at >= 0]
        if not best:
            return []
        ranked = list(zip(found.logits[0].tolist(), self._tokens[best].tolist(), strict=False))
        rest = float(found.rest[0])
        if self._warp is not None:
            highest = ranked[0][0]
            few = None if noise is None else noise[best]
            ranked = self._weighed(logits[best], few, [token for _, token in ranked], state)
            if not ranked:
                return []
            rest *= math.exp(min(highest - ranked[0][0], 600.0))
        shares = [math.exp(score - ranked[0][0]) for score, _ in ranked]
        whole = sum(shares) + rest
        return [
            Guess(token, share / whole, self._drafter, rank)
            for rank, (share, (_, token)) in enumerate(zip(shares, ranked[:most], strict=False))
        ]

    def _with(self, logits: NDArray[np.float32], noise: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return log q + g up to a constant, float32; at a tiny temperature all but one fall."""
        slope = np.float32(min(1.0 / max(self._temperature, _COLDEST), _STEEPEST))
        with np.errstate(over="ignore", invalid="ignore"):
            scores: NDArray[np.float32] = (logits - logits.max()) * slope + noise
        return scores

    def _noise_at(self, position: int, noise: Noise) -> NDArray[np.float32]:
        """Return the draft vocabulary's noise; rounded, for it only ranks."""
        if position not in self._made:
            self._made[position] = noise.among(position, self._tokens).astype(np.float32)
        return self._made[position]

    def _weighed(
        self,
        logits: NDArray[np.float32],
        noise: NDArray[np.float32] | None,
        tokens: list[int],
        state: State,
    ) -> list[tuple[float, int]]:
        """Return scores and tokens after masks, bias and penalties, ranked; what is banned, not."""
        assert self._warp is not None
        weighed = self._warp.weigh_few(tokens, logits.tolist(), state)
        if noise is not None:
            highest = max(weighed)
            weighed = [
                (score - highest) / self._temperature + g
                for score, g in zip(weighed, noise.tolist(), strict=True)
                if highest > -math.inf
            ]
        pairs = zip(weighed, tokens, strict=False)
        return sorted(
            [pair for pair in pairs if pair[0] > -math.inf], key=lambda pair: (-pair[0], pair[1])
        )
