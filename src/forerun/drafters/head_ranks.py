"""From a head's logits over its draft vocabulary to ranked guesses.

At temperature 0 tokens rank by logit. Above it they rank by log q + g, g the noise that will choose
the target's token. The confidence is each one's share of exp(score) among all: of two scores that
are close, either token may be the target's, since q is not quite p. Above temperature 0 there is
less of it to share: where p and q part, the noise may pick a token that q knows nothing of.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from forerun.core.warp import State
from forerun.drafters.protocol import DraftRequest, Guess
from forerun.native import fast_likeliest

__all__ = ["HeadRanks"]

_SHARING = 8  # guesses at least that share out what is likely
_TRUST = 0.6  # above temperature 0, how often the target's token is one of those
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
        self._trust = 1.0 if self._noise is None else _TRUST
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
        asked = max(most if self._warp is None else most + _SHORTLIST, _SHARING)
        ranked, rest = self._ranked(logits, position, asked)
        if self._warp is not None and ranked:
            highest = ranked[0][1]
            ranked = self._weighed([at for at, _ in ranked], logits, position, state)
            if ranked:
                rest *= math.exp(min(highest - ranked[0][1], 600.0))
        if not ranked:
            return []
        best, drafter = ranked[0][1], self._drafter
        shares = [math.exp(score - best) for _, score in ranked]
        unit = self._trust / (sum(shares) + rest)
        return [
            Guess(int(self._tokens[at]), share * unit, drafter, rank)
            for rank, ((at, _), share) in enumerate(zip(ranked[:most], shares, strict=False))
        ]

    def _ranked(
        self, logits: NDArray[np.float32], position: int, most: int
    ) -> tuple[list[tuple[int, float]], float]:
        """Return places in the draft vocabulary and scores, and the share of all others.

        Above temperature 0 the few best have all but a little of it.
        """
        if self._noise is not None:
            args = position, self._tokens, logits, self._temperature, most
            return self._noise.ranked(*args), 0.0
        found = fast_likeliest(logits[None], most)
        pairs = zip(found.tokens[0].tolist(), found.logits[0].tolist(), strict=True)
        return [(at, logit) for at, logit in pairs if at >= 0], float(found.rest[0])

    def _weighed(
        self, places: list[int], logits: NDArray[np.float32], position: int, state: State
    ) -> list[tuple[int, float]]:
        """Return places and scores after masks, bias and penalties, ranked; what is banned, not."""
        assert self._warp is not None
        tokens = self._tokens[places]
        weighed = self._warp.weigh_few(tokens.tolist(), logits[places].tolist(), state)
        highest = max(weighed)
        if self._noise is not None and highest > -math.inf:
            noise = self._noise.at(position, tokens.tolist())
            weighed = [
                (score - highest) / self._temperature + g
                for score, g in zip(weighed, noise, strict=True)
            ]
        pairs = [pair for pair in zip(places, weighed, strict=True) if pair[1] > -math.inf]
        return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))
