"""Beam search as it is defined here: which texts a step keeps, which end, and when it is over.

After each step the texts that go on, the *running* beams, have equally many tokens. A step looks
at every token behind every running beam. Its score is the beam's score plus the token's
log-probability under the target at temperature 1; masks, bias and penalties are applied to
log-probabilities, as the transformers library does. In order of score, of equal ones in that of
their beams, then of their tokens' ranks in the beam's row (`ranked`):

- of the best `beams` candidates those that end, by an end token or because the text is as long as
  it may be, are finished, and their score is divided by length ** length_penalty;
- the best `beams` candidates that do not end are the next running beams.

Of finished texts the best `beams` are kept, of equal ones the older. The search is over when no
text may go on; or `beams` texts are finished, and `early_stopping` is true or no running beam can
become better than the worst of them, by its score so far. It is divided as of a text of the length
so far or, where `early_stopping` is "never" and the penalty above 0, of the longest one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from forerun.config import Sampling
from forerun.core.warp import State, Warp, likeliest

__all__ = ["BeamRule", "Candidate", "EarlyStopping", "Finished", "Pool", "Ranked", "Step"]
__all__ += ["only_falls", "ranked"]

EarlyStopping = bool | Literal["never"]

T = TypeVar("T")


class Ranked(NamedTuple):
    """The likeliest tokens after a text, best first.

    Attributes:
        tokens: Distinct; of equally likely ones the lowest id first.
        log_p: What each adds to a beam's score.
    """

    tokens: tuple[int, ...]
    log_p: tuple[float, ...]


def ranked(warp: Warp, logits: NDArray[np.float32], state: State, most: int) -> Ranked:
    """Return the `most` likeliest tokens of a row; a faster twin gives the same (`beam.rows`).

    Args:
        warp: The request's; temperature and truncation are not asked.
        logits: float32 [vocabulary].
        state: The warp's, of the text that the row scores the next token of.
        most: How many at most.

    Raises:
        EngineError: The logits hold NaN or infinity, or nothing that may be written.
    """
    weighed = warp.weigh(logits, state)
    log_p = warp.log_probabilities(logits)
    if not warp.is_plain:
        weighed = log_p = warp.weigh(log_p, state)
    tokens = likeliest(weighed, most)
    return Ranked(tuple(tokens), tuple(float(log_p[token]) for token in tokens))


def only_falls(sampling: Sampling) -> bool:
    """Return whether no token can add to a score: log-probabilities, and nothing that raises."""
    return not sampling.has_penalties and max(sampling.logit_bias.values(), default=0.0) <= 0


class Candidate(NamedTuple):
    """A running beam and one token more.

    Attributes:
        beam: Which of the running beams.
        token: The token.
        log_p: What it adds.
        score: The sum so far.
    """

    beam: int
    token: int
    log_p: float
    score: float


class Step(NamedTuple):
    """What a step keeps, each best first.

    Attributes:
        running: Those that go on.
        ended: Those of the best that end here.
    """

    running: tuple[Candidate, ...]
    ended: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class BeamRule:
    """What a search is asked for.

    Attributes:
        beams: Texts that go on after each step, and that are kept of the finished ones.
        ends: Tokens that end a text.
        limit: Most tokens of a text.
        length_penalty: Above 0 longer texts gain, since scores are below 0; at 0 sums are compared.
        early_stopping: When the search is over; see above.
    """

    beams: int
    ends: frozenset[int]
    limit: int
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False

    @property
    def reach(self) -> int:
        """How many tokens of a row may matter."""
        return self.beams + len(self.ends)

    def step(self, scores: Sequence[float], rows: Sequence[Ranked | None], length: int) -> Step:
        """Return what comes of the running beams.

        Args:
            scores: Of each running beam.
            rows: Of each, the `reach` likeliest tokens behind it; None adds no candidates.
            length: Tokens that a text has after the step.
        """
        candidates = [
            Candidate(beam, token, log_p, score + log_p)
            for beam, (score, row) in enumerate(zip(scores, rows, strict=True))
            if row is not None
            for token, log_p in zip(*row, strict=True)
        ]
        candidates.sort(key=lambda each: -each.score)  # stable: by beam, then by rank
        best = candidates[: self.beams]
        if length >= self.limit:
            return Step((), tuple(best))
        running = [each for each in candidates if each.token not in self.ends][: self.beams]
        return Step(tuple(running), tuple(each for each in best if each.token in self.ends))

    def step_if_known(
        self, scores: Sequence[float], rows: Sequence[Ranked | None], length: int, *, falls: bool
    ) -> Step | None:
        """Return what `step` would if all rows were known; None if that can't be told.

        Where scores only fall, a beam whose row is not known can't matter if its own score is
        already below that of `beams` candidates which would be kept.

        Args:
            scores: Of each running beam.
            rows: Of each, the `reach` likeliest tokens behind it; None is not known.
            length: Tokens that a text has after the step.
            falls: Whether no token can add to a score (`only_falls`).
        """
        unknown = [score for score, row in zip(scores, rows, strict=True) if row is None]
        if unknown and not falls:
            return None
        step = self.step(scores, rows, length)
        if not unknown:
            return step
        last = step.ended if length >= self.limit else step.running
        is_settled = len(last) == self.beams and last[-1].score > max(unknown)
        return step if is_settled else None

    def penalised(self, score: float, length: int) -> float:
        """Return the score by which texts of different lengths are compared."""
        return float(score / length**self.length_penalty)


class Finished(NamedTuple, Generic[T]):
    """A text that ended.

    Attributes:
        text: The text.
        score: After the length penalty.
        log_p: Before it: the sum over its tokens.
    """

    text: T
    score: float
    log_p: float


class Pool(Generic[T]):
    """The best finished texts, best first.

    Args:
        rule: How many, and when they are enough.
    """

    def __init__(self, rule: BeamRule) -> None:
        self.best: list[Finished[T]] = []
        self._rule = rule

    def add(self, ended: Iterable[tuple[float, T]], length: int) -> None:
        """Take texts of one length that ended, best first, each with its sum."""
        penalised = self._rule.penalised
        self.best += [Finished(text, penalised(score, length), score) for score, text in ended]
        self.best.sort(key=lambda each: -each.score)  # stable: the older first
        del self.best[self._rule.beams :]

    def is_over(self, running: Sequence[float], length: int) -> bool:
        """Whether no running beam is to be followed any more.

        Args:
            running: The scores of the running beams, best first.
            length: How many tokens each has.
        """
        rule = self._rule
        if not running:
            return True
        if len(self.best) < rule.beams:
            return False
        if rule.early_stopping is True:
            return True
        hopes = rule.early_stopping == "never" and rule.length_penalty > 0
        hope = rule.penalised(running[0], rule.limit if hopes else length)
        return not hope > self.best[-1].score
