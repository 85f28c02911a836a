"""Guesses from a law that names a few tokens: how they rank, and how sure that is.

At temperature 0 tokens rank by their probability. Above it they rank by log q + g, g the noise at
the token's own position. Were q the target's law, the best of them, with score s, would be the
target's token unless one that is not listed has a higher score. The highest of those is Gumbel
too, shifted by the logarithm of their mass r: so with probability exp(-r exp(-s)) it is not. What
that leaves is shared out by how close the others came, since q is not quite the target's law.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from forerun.core.noise import Noise
from forerun.core.warp import State, Warp
from forerun.drafters.protocol import DraftRequest, Guess

__all__ = ["Listed", "Ranker"]

_NEARNESS = 1.0  # a score lower by this is e times less likely to have been the best


class Listed:
    """A law that names a few tokens, and says what all others have together.

    Args:
        tokens: Named ones, the most probable first.
        q: Their probabilities.
        log_q: The same, as logarithms.
        rest: That of all others together.
    """

    __slots__ = ("log_q", "q", "rest", "tokens")

    def __init__(
        self, tokens: Sequence[int], q: Sequence[float], log_q: Sequence[float], rest: float
    ) -> None:
        self.tokens, self.q, self.log_q, self.rest = tokens, q, log_q, rest

    @classmethod
    def of_logits(
        cls, tokens: Sequence[int], logits: Sequence[float], rest: float, temperature: float
    ) -> Listed:
        """Return the law of logits, at a temperature above 0, or at 1 where it is 0.

        Args:
            tokens: Some tokens, the likeliest first; none is an empty law.
            logits: Theirs, finite.
            rest: Sum of exp(logit - highest) over the others, none of which has a higher one than
                the last of these: at another temperature it counts as many tokens like that one.
            temperature: The request's.
        """
        if not tokens:
            return cls((), (), (), 1.0)
        slope = 1.0 / temperature if temperature > 0 else 1.0
        highest = logits[0]
        below = [(logit - highest) * slope for logit in logits]
        weights = list(map(math.exp, below))
        if slope != 1.0 and rest > 0.0:
            rest *= math.exp(min((logits[-1] - highest) * (slope - 1.0), 600.0))
        total = sum(weights) + rest
        log_total = math.log(total)
        return cls(
            tokens,
            [weight / total for weight in weights],
            [each - log_total for each in below],
            rest / total,
        )


class Ranker:
    """Ranks one request's guesses.

    Args:
        request: Gives temperature, noise and warp. Without noise tokens rank by probability.
        drafter: Whose guesses they are.

    Attributes:
        warp: The request's, if it changes logits; else None.
        temperature: The request's.
    """

    __slots__ = ("_drafter", "_noise", "temperature", "warp")

    def __init__(self, request: DraftRequest, drafter: str) -> None:
        self._drafter = drafter
        self.temperature = request.warp.sampling.temperature
        self._noise: Noise | None = request.noise if self.temperature > 0 else None
        self.warp: Warp | None = None if request.warp.is_plain else request.warp

    def weighed(
        self,
        tokens: Sequence[int],
        logits: Sequence[float],
        rest: float,
        state: State,
        temperature: float,
    ) -> Listed:
        """Return the law of logits after masks, bias and penalties; what they ban is not named."""
        assert self.warp is not None
        pairs = zip(self.warp.weigh_few(tokens, logits, state), tokens, strict=True)
        left = sorted((pair for pair in pairs if pair[0] > -math.inf), key=lambda pair: -pair[0])
        return Listed.of_logits(
            [token for _, token in left], [logit for logit, _ in left], rest, temperature
        )

    def guesses(self, law: Listed, position: int, most: int, trust: float = 1.0) -> list[Guess]:
        """Return the best guesses.

        Args:
            law: The drafter's.
            position: Where the guessed token would stand in the text.
            most: How many, at most.
            trust: Taken off every confidence as a factor.
        """
        drafter, tokens = self._drafter, law.tokens
        if self._noise is None or not tokens:
            return [
                Guess(token, trust * q, drafter, rank)
                for rank, (token, q) in enumerate(zip(tokens[:most], law.q, strict=False))
            ]
        noise = self._noise.at(position, tokens)
        ranked = sorted(
            [(log_q + g, token) for log_q, g, token in zip(law.log_q, noise, tokens, strict=True)],
            key=_by_score,
        )
        best = ranked[0][0]
        near = [math.exp((score - best) * _NEARNESS) for score, _ in ranked]
        share = trust * math.exp(-law.rest * math.exp(-best)) / sum(near)
        return [
            Guess(token, share * weight, drafter, rank)
            for rank, ((_, token), weight) in enumerate(zip(ranked[:most], near, strict=False))
        ]


def _by_score(pair: tuple[float, int]) -> tuple[float, int]:
    return -pair[0], pair[1]
