"""A head goes on learning from the texts it drafts: how much of what it guesses is said again.

A head knows the target, and little of what stands far above in this text. So a token that stood
behind the text's last tokens before gets a *boost*, added to the head's logit: one number for each
length of the agreement (a log-linear cache model, Kuhn and De Mori 1990). What the boosts should be
is another matter for translations than for word problems. They are learned for each tenant, from
what the target really wrote, by a step of Newton's method after each text (online logistic
regression). While a text is drafted, nothing changes.

Before a text is learned from, it is asked what the boosts brought in it: where that is nothing, the
tenant's texts are left alone for a while.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forerun.drafters.repeats import LENGTHS, Repeated, Repeats

__all__ = ["KINDS", "Lesson", "Limits", "Online", "TextLesson"]

Floats = NDArray[np.float64]

KINDS = len(LENGTHS)
"""How many boosts there are."""

_FADING = 0.9  # of what is known of the curvature and the worth, with each text
_DAMPING = 2.0  # of curvature, so that few tokens make small steps
_ENOUGH = 256.0  # tokens after which what the boosts bring is believed
_PAUSE = 32  # texts that are left alone where they bring nothing


class Limits(NamedTuple):
    """How much may be learned.

    Attributes:
        rows: Tokens of each text that are learned from.
        reach: The largest boost, in logits.
        tenants: For whom something is kept: those that wrote last.
    """

    rows: int = 256
    reach: float = 6.0
    tenants: int = 1000


_USUAL = Limits()


def _zeros() -> Floats:
    return np.zeros(KINDS)


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """What a tenant's texts have taught; never changed, only replaced.

    Attributes:
        boosts: Added to the logits, by kind of repeat, float64 [KINDS].
        curvature: Of the loss, faded, float64 [KINDS, KINDS].
        gained: How much likelier the target's tokens became by the boosts, summed and faded.
        judged: Over so many tokens.
        pause: Texts that are left alone before the next one.
    """

    boosts: Floats = field(default_factory=_zeros)
    curvature: Floats = field(default_factory=lambda: np.zeros((KINDS, KINDS)))
    gained: float = 0.0
    judged: float = 0.0
    pause: int = 0

    def __post_init__(self) -> None:
        self.boosts.setflags(write=False)
        self.curvature.setflags(write=False)


class TextLesson:
    """What is learned of one text, and what its draft is told meanwhile.

    Args:
        repeats: Of the text.
        boosts: What was learned of earlier texts, float64 [KINDS].
        rows: Tokens to learn from, at most.
    """

    def __init__(self, repeats: Repeats, boosts: Floats, rows: int) -> None:
        self.repeats, self.boosts, self._left = repeats, boosts, rows
        self.slope, self.curvature = _zeros(), np.zeros((KINDS, KINDS))
        self.gained, self.judged = 0.0, 0

    def fork(self) -> TextLesson:
        """Return one for a text that goes its own way from here; it has learned nothing yet."""
        return TextLesson(self.repeats.copy(), self.boosts, self._left)

    def follow(self, tokens: Sequence[int]) -> None:
        """Take note of the text as it stands."""
        for token in tokens[len(self.repeats) :]:
            self.repeats.push(token)

    def boosted(self, logits: NDArray[np.float32], repeated: Repeated) -> NDArray[np.float32]:
        """Return a head's logits with the boosts of what may be repeated, float32 [R]."""
        told = logits.copy()
        told[repeated.ids] += self.boosts[repeated.kinds].astype(np.float32)
        return told

    def learn(self, told: NDArray[np.float32], repeated: Repeated, id_: int) -> None:
        """Learn from one token that the target wrote.

        The loss is the cross-entropy of the law that drafted, softmax of the boosted logits. A
        target's token that the head does not know is none of those that may be repeated.

        Args:
            told: The boosted logits before it, float32 [R].
            repeated: What had been boosted in them.
            id_: Of the token in the draft vocabulary; -1 if it is not there.
        """
        ids, kinds = repeated
        if self._left <= 0 or not len(ids):
            return
        self._left -= 1
        weights = np.exp(told - told.max())
        total = float(weights.sum(dtype=np.float64))
        q = weights[ids].astype(np.float64) / total
        shares = np.bincount(kinds, q, KINDS)
        self.slope += shares - np.bincount(kinds[ids == id_], minlength=KINDS)
        self.curvature += np.diag(shares) - np.outer(shares, shares)
        if id_ >= 0:
            plain = 1.0 - q.sum() + float(q @ np.exp(-self.boosts[kinds]))  # total without boosts
            own = float(weights[id_]) / total
            boost = self.boosts[kinds[ids == id_]].sum()
            self.gained += own - own * float(np.exp(-boost)) / plain
        self.judged += 1


class Online:
    """Lessons by tenant, in bounded memory.

    Args:
        limits: How much may be learned.
    """

    def __init__(self, limits: Limits = _USUAL) -> None:
        self.limits = limits
        self._lessons: OrderedDict[str, Lesson] = OrderedDict()

    @property
    def lessons(self) -> Mapping[str, Lesson]:
        """What each tenant's texts have taught; who wrote last comes last."""
        return self._lessons

    def begin(self, tenant: str, places: NDArray[np.int64]) -> TextLesson | None:
        """Return what a new text of a tenant is drafted with; None where it is left alone.

        Args:
            tenant: Whose text it is: what is told is of this tenant's texts alone.
            places: Each token's id in the draft vocabulary, or -1, int64 [vocabulary].
        """
        lesson = self._lessons.get(tenant, Lesson())
        if lesson.pause:
            self.put(tenant, Lesson(pause=lesson.pause - 1))
            return None
        return TextLesson(Repeats(places), lesson.boosts, self.limits.rows)

    def end(self, tenant: str, text: TextLesson) -> None:
        """Learn from a text that has ended, for the tenant's later ones."""
        before = self._lessons.get(tenant, Lesson())
        if not text.judged or before.pause:
            return
        gained, judged = before.gained * _FADING, before.judged * _FADING
        if text.boosts.any():  # else there was nothing to judge
            gained, judged = gained + text.gained, judged + text.judged
        if judged >= _ENOUGH and gained <= 0.0:
            self.put(tenant, Lesson(pause=_PAUSE))
            return
        curvature = before.curvature * _FADING + text.curvature
        # Another text may have moved the boosts since this one began: the slope is that there.
        slope = text.slope + text.curvature @ (before.boosts - text.boosts)
        step = np.linalg.solve(curvature + _DAMPING * np.eye(KINDS), slope)
        reach = self.limits.reach
        boosts = np.clip(before.boosts - step, -reach, reach)
        self.put(tenant, Lesson(boosts, curvature, gained, judged))

    def put(self, tenant: str, lesson: Lesson) -> None:
        """Keep a lesson; who has not written for longest is forgotten where there is no room."""
        self._lessons[tenant] = lesson
        self._lessons.move_to_end(tenant)
        while len(self._lessons) > self.limits.tenants:
            self._lessons.popitem(last=False)

    def forget(self) -> None:
        """Drop all that was learned."""
        self._lessons.clear()
