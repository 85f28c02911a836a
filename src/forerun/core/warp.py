"""The warp: from the target's logits to the law its next token is drawn from.

One function, for plain decoding and for verification, in one order: masks, logit bias, penalties,
temperature, top-k, top-p, min-p; ties go to the lowest token id. What depends on the text so far
lives in a `State`, forked along a draft tree, so that every node sees what plain decoding would
have seen there.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forerun.config import Sampling
from forerun.core.noise import Noise
from forerun.core.softmax import log_normaliser, softmax
from forerun.errors import EngineError, OptionError

__all__ = ["Chosen", "Law", "Place", "Scores", "State", "Warp", "law", "likeliest"]

Scores = NDArray[np.float64]
"""float64 [vocabulary]: log-weights up to a constant, -inf where the warp left nothing."""

Law = NDArray[np.float64]
"""float64 [vocabulary]: probabilities, summing to 1."""

Normaliser = tuple[float, float]
"""A row's highest logit, and the logarithm of the sum of exp(logit - highest)."""


_NO_COUNTS: dict[int, int] = {}  # of all texts that are not counted


class State(NamedTuple):
    """What the warp must know of the text up to one position.

    Attributes:
        generated: Tokens of output so far.
        prompt: Distinct tokens of the prompt; shared by all forks.
        counts: How often each token stands in the output; empty when no penalty asks.
        counting: Whether `counts` is kept.
    """

    generated: int = 0
    prompt: frozenset[int] = frozenset()
    counts: dict[int, int] = _NO_COUNTS
    counting: bool = False

    def advance(self, token: int) -> State:
        """Return the state after one more token of output; this one stays as it is."""
        counts = self.counts
        if self.counting:
            counts = {**counts, token: counts.get(token, 0) + 1}
        return State(self.generated + 1, self.prompt, counts, self.counting)

    def after(self, tokens: Sequence[int]) -> State:
        """Return the state after some more tokens."""
        state = self
        if not self.counting:
            return State(self.generated + len(tokens), self.prompt, self.counts)
        for token in tokens:
            state = state.advance(token)
        return state


class Place(NamedTuple):
    """Where a token is chosen.

    Attributes:
        row: Which row of the logits scores it.
        state: Of the text before it.
        position: Its own, for the noise's address.
        guess: Where the next place counts on this token; no token is it where none does.
    """

    row: int
    state: State
    position: int
    guess: int | None = None


class Chosen(NamedTuple):
    """What was found along a line of places, as far as it was looked at.

    Attributes:
        tokens: At each place the target's token, or None where the warp must be asked itself.
        normalisers: Of the rows of the first places, what `Warp.log_normalisers` says.
    """

    tokens: list[int | None]
    normalisers: list[Normaliser]


class Warp:
    """The warp of one request, ready for any of its positions.

    Args:
        sampling: The request's settings.
        vocab_size: Tokens the target knows.
        stop_ids: Tokens that end the text; forbidden in the first `min_tokens` tokens.
        min_tokens: How many tokens the text has at least.

    Raises:
        OptionError: A token id is out of the vocabulary, or no token is left to write.

    Attributes:
        is_plain: Whether logits are weighed as they are: no masks, bias or penalties.
    """

    def __init__(
        self,
        sampling: Sampling,
        vocab_size: int,
        stop_ids: Collection[int] = (),
        min_tokens: int = 0,
    ) -> None:
        self.sampling = sampling
        self.vocab_size = vocab_size
        self.min_tokens = min_tokens
        # An id that no row scores can't be written and needs no ban.
        stops = sorted(token for token in stop_ids if 0 <= token < vocab_size)
        self._stops = np.array(stops, dtype=np.int64)
        self._shift = np.zeros(vocab_size)
        for token, bias in sampling.logit_bias.items():
            self._shift[self._known("logit_bias", token)] = bias
        if sampling.allowed_tokens is not None:
            allowed = [self._known("allowed_tokens", t) for t in sampling.allowed_tokens]
            self._shift[np.setdiff1d(np.arange(vocab_size), allowed)] = -np.inf
        banned = [self._known("banned_tokens", t) for t in sampling.banned_tokens]
        self._shift[banned] = -np.inf
        self._check_something_left()
        self.is_plain = not (self._shift.any() or sampling.has_penalties or (min_tokens and stops))

    def _known(self, option: str, token: int) -> int:
        if not 0 <= token < self.vocab_size:
            raise OptionError(
                f"{option} names token {token}.", f"Token ids go from 0 to {self.vocab_size - 1}."
            )
        return token

    def _check_something_left(self) -> None:
        left = np.isfinite(self._shift)
        if self.min_tokens > 0:
            left[self._stops] = False
        if not left.any():
            raise OptionError(
                "allowed_tokens, banned_tokens and min_tokens together leave no token to write.",
                "Allow at least one token that doesn't end the text.",
            )

    def start(self, prompt: Sequence[int]) -> State:
        """Return the state at the beginning of the output."""
        if not self.sampling.has_penalties:
            return State()
        return State(prompt=frozenset(prompt), counts={}, counting=True)

    def weigh(self, logits: NDArray[np.float32] | Scores, state: State) -> Scores:
        """Return logits after masks, bias and penalties: what no temperature has touched.

        Args:
            logits: [vocabulary], as the target scored them; or log-probabilities.
            state: Of the text before the token in question.

        Raises:
            EngineError: The logits hold NaN or infinity, or nothing that may be written.
        """
        if not logits.max() < np.inf:  # nor is NaN
            raise EngineError("The target's logits hold NaN or infinity.", "Is the file sound?")
        scores = logits + self._shift
        if state.generated < self.min_tokens:
            scores[self._stops] = -np.inf
        if state.counting:
            penalise(scores, state, self.sampling)
        if scores.max() == -np.inf:
            raise EngineError(
                "The target gives no token that may be written any probability.",
                "Is the file sound? If it is, allow other tokens.",
            )
        return np.asarray(scores)

    def weigh_few(
        self, tokens: Sequence[int], logits: Sequence[float], state: State
    ) -> list[float]:
        """Return what `weigh` makes of some tokens' logits, without a look at the others.

        For drafters that know a few tokens: they may all be banned.
        """
        scores: list[float] = []
        for token, logit in zip(tokens, logits, strict=True):
            score = logit + self._shift.item(token)
            if state.generated < self.min_tokens and token in self._stops:
                score = -math.inf
            times = state.counts.get(token, 0)
            factor = self.sampling.repetition_penalty
            if factor != 1 and (times or token in state.prompt):
                score = score / factor if score > 0 else score * factor
            if times:
                score -= self.sampling.presence_penalty + self.sampling.frequency_penalty * times
            scores.append(score)
        return scores

    def scores(self, logits: NDArray[np.float32], state: State) -> Scores:
        """Return the log-weights of the law of the next token.

        Temperature 0 leaves a single finite entry: the likeliest token, the lowest id of equals.
        """
        scores = self.weigh(logits, state)
        if self.sampling.temperature == 0:
            return only(scores, [int(np.argmax(scores))])
        # Shifted first, so that the smallest temperature can't make infinities of finite logits.
        with np.errstate(over="ignore"):  # what falls to -inf has probability 0 anyway
            scores = (scores - scores.max()) / self.sampling.temperature
        scores = keep_top_k(scores, self.sampling.top_k)
        scores = keep_top_p(scores, self.sampling.top_p)
        return keep_min_p(scores, self.sampling.min_p)

    # What follows is all that is asked of a row. A faster twin of this class overrides it, and
    # gives the same bits; core itself knows numpy only.

    def token(self, logits: NDArray[np.float32], state: State, noise: Noise, position: int) -> int:
        """Return the target's token at `position`: argmax(log p + g), ties to the lowest id.

        Raises:
            EngineError: As `weigh`.
        """
        (token,) = self.tokens(logits[np.newaxis], [Place(0, state, position)], noise)
        return noise.draw(self.scores(logits, state), position) if token is None else token

    def tokens(
        self, logits: NDArray[np.float32], places: Sequence[Place], noise: Noise
    ) -> list[int | None]:
        """Return what `token` would at several places, or None where it must be asked itself.

        Args:
            logits: float32 [rows, vocabulary].
            places: Along one text; those behind a guess that failed need no token.
            noise: The text's noise.
        """
        return [None] * len(places)

    def choose(self, logits: NDArray[np.float32], places: Sequence[Place], noise: Noise) -> Chosen:
        """Return what `tokens` does and, where that comes cheap, their rows' normalisers."""
        return Chosen(self.tokens(logits, places, noise), [])

    def law(self, logits: NDArray[np.float32], state: State) -> Law:
        """Return p, float64 [vocabulary]."""
        return law(self.scores(logits, state))

    def log_normalisers(
        self, logits: NDArray[np.float32], rows: Sequence[int]
    ) -> list[tuple[float, float]]:
        """Return what turns some rows of logits into the model's own log-probabilities."""
        return [log_normaliser(logits[row]) for row in rows]

    def log_probabilities_of(
        self,
        tokens: Sequence[int],
        logits: NDArray[np.float32],
        rows: Sequence[int],
        known: Mapping[int, Normaliser] = MappingProxyType({}),
    ) -> list[float]:
        """Return, of each token, what `log_probabilities` says of it in its row of the logits.

        Args:
            tokens: One for each of the rows.
            logits: float32 [rows, vocabulary].
            rows: Some of them.
            known: Normalisers that were found before, by row.
        """
        missing = [row for row in rows if row not in known]
        if missing:
            found = self.log_normalisers(logits, missing)
            known = {**known, **dict(zip(missing, found, strict=True))}
        return [
            (logits.item(row, token) - known[row][0]) - known[row][1]
            for row, token in zip(rows, tokens, strict=True)
        ]

    def log_probabilities(self, logits: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the model's own log-probabilities, before any warp: log softmax in float64."""
        ((highest, log_sum),) = self.log_normalisers(logits[np.newaxis], [0])
        return np.asarray((logits.astype(np.float64) - highest) - log_sum)


def law(scores: Scores) -> Law:
    """Return the probabilities of log-weights (softmax), float64 [vocabulary]."""
    return softmax(scores)


def likeliest(scores: Scores, most: int) -> list[int]:
    """Return the tokens of the highest finite scores, best first; of equals the lowest id first.

    Args:
        scores: float64 [vocabulary], -inf allowed.
        most: How many at most, 1 or more.
    """
    if most == 1:
        best = int(np.argmax(scores))
        return [best] if scores[best] > -np.inf else []
    border = np.partition(scores, -most)[-most] if most < len(scores) else -np.inf
    tokens = np.flatnonzero((scores >= border) & (scores > -np.inf))
    order = np.argsort(-scores[tokens], kind="stable")[:most]
    return [int(token) for token in tokens[order]]


def penalise(scores: Scores, state: State, sampling: Sampling) -> None:
    """Apply the penalties in place.

    Repetition (Keskar et al., 2019, CTRL, section 4.1) looks at prompt and output; presence and
    frequency at the output only.
    """
    if sampling.repetition_penalty != 1:
        seen = np.fromiter(state.prompt | state.counts.keys(), np.int64)
        factor = sampling.repetition_penalty
        scores[seen] = np.where(scores[seen] > 0, scores[seen] / factor, scores[seen] * factor)
    written = np.fromiter(state.counts.keys(), np.int64, len(state.counts))
    times = np.fromiter(state.counts.values(), np.float64, len(state.counts))
    scores[written] -= sampling.presence_penalty + sampling.frequency_penalty * times


def only(scores: Scores, kept: Sequence[int] | NDArray[np.int64]) -> Scores:
    """Return scores with -inf everywhere but at `kept`."""
    result = np.full_like(scores, -np.inf)
    result[kept] = scores[kept]
    return result


def keep_top_k(scores: Scores, k: int) -> Scores:
    """Keep the k highest scores; of equals at the border, those of the lowest ids. 0 keeps all."""
    if not 0 < k < len(scores):
        return scores
    border = np.partition(scores, -k)[-k]
    above = np.flatnonzero(scores > border)
    equal = np.flatnonzero(scores == border)
    return only(scores, np.concatenate([above, equal[: k - len(above)]]))


def keep_top_p(scores: Scores, p: float) -> Scores:
    """Keep the fewest likeliest tokens whose probabilities together reach p; 1 keeps all."""
    if p >= 1:
        return scores
    probabilities = law(scores)
    # Sorting is slow, so only those are sorted that can be kept: those with at least an equal share
    # of the 1 - p left when the sum first reaches p. If they don't reach it, rounding is to blame.
    share = (1 - p) / len(scores)
    for border in (scores.max() + math.log(share / probabilities.max()), -np.inf):
        likely = np.flatnonzero(scores >= border)
        order = likely[np.argsort(-scores[likely], kind="stable")]
        reached = np.flatnonzero(np.cumsum(probabilities[order]) >= p)
        if len(reached):
            return only(scores, order[: reached[0] + 1])
    return scores  # rounding kept the sum of all just under p


def keep_min_p(scores: Scores, p: float) -> Scores:
    """Keep tokens whose probability is at least p times the likeliest token's; 0 keeps all."""
    if p <= 0:
        return scores
    return only(scores, np.flatnonzero(scores >= scores.max() + math.log(p)))
