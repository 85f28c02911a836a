"""The choice of draft in a running engine: asks, grows, chooses, and learns what came of it."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from forerun.control.choice import Choice, Growth, choose
from forerun.control.cost import CostCurve, measure
from forerun.control.estimates import Estimates
from forerun.control.lengths import LONGEST, Lengths
from forerun.core.tree import ROOT
from forerun.drafters.protocol import DraftRequest, Guesser, Outcome, price_of
from forerun.targets.protocol import Target

__all__ = ["Control", "RoundTimes"]

_MOST_NODES = 31  # of one text
_GAIN = 0.1
_TENANTS = 64  # whose experience is kept, those that wrote last
_BELIEVED = 300.0  # seconds for which a measurement stands
_HOPE, _RECOVERY = 0.6, 0.02
_PATIENCE, _LONGEST_PAUSE = 2, 16  # rounds in vain for each round of pause


class RoundTimes(NamedTuple):
    """How long a round took, in seconds, by part.

    Attributes:
        drafting: Drafters that draft by themselves.
        choice: Asking places, and growing trees.
        passing: The target's pass.
        rest: Verifying, writing, committing.
        learning: What drafters and the choice learn of the round.
    """

    drafting: float
    choice: float
    passing: float
    rest: float
    learning: float


@dataclass(slots=True)
class _Text:
    """What is known of one text."""

    estimates: Estimates
    lengths: Lengths = field(default_factory=Lengths)
    growth: Growth | None = None
    worth: float = 0.0  # tokens that a round brought of late by being asked about, less its price
    vain: int = 0  # rounds in a row that were asked about while that was not worth it
    pause: int = 0  # rounds that are not asked about before the next that is
    hope: float = _HOPE  # how likely the best guess of those that have a price was of late

    def was_asked(self, gain: float) -> None:
        """Pause the longer, the longer asking has not been worth its price."""
        self.worth += _GAIN * (gain - self.worth)
        self.vain = 0 if self.worth > 0 else self.vain + 1
        self.pause = min(self.vain // _PATIENCE, _LONGEST_PAUSE)

    def has_found(self, found: Sequence[float]) -> None:
        """Learn what asking for a price is worth; what is not asked for long is worth a try."""
        for probability in found:
            self.hope += _GAIN * (probability - self.hope)
        if not found:
            self.hope += _RECOVERY * (_HOPE - self.hope)


class Control:
    """Decides each round what is drafted.

    Args:
        target: Whose passes are paid for.
        curve: Gives what they cost, before the first text with something to choose, and again where
            passes have shown it to be wrong: then it is told that it must measure. By default they
            are timed each time.
        clock: Seconds, for how long ago they were measured.

    Attributes:
        pads: Whether each text of a pass has as many rows as the one that has most.
    """

    def __init__(
        self,
        target: Target,
        curve: Callable[[bool], CostCurve] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find_curve = curve or (lambda again: measure(target))
        self._clock, self._found = clock, 0.0
        self._curve: CostCurve | None = None
        self.pads = target.capabilities.pads
        self._experience: OrderedDict[str, Estimates] = OrderedDict()
        self._texts: dict[int, _Text] = {}
        self._rest, self._asking = _Line(), _Line()
        self._spent = 0.0  # seconds of the last choice that went into asking what has a price

    @property
    def curve(self) -> CostCurve:
        """What passes cost."""
        if self._curve is None:
            self._curve, self._found = self._find_curve(False), self._clock()
        return self._curve

    def forget(self) -> None:
        """Forget what texts have taught, but not what passes cost."""
        self._experience.clear()

    def open(self, sequence: int, tenant: str = "", *, chooses: bool) -> None:
        """Follow a new text; see to it that costs are known before its first round.

        Where passes have shown another cost they are timed again, but not often: on a busy machine
        they would show another one each time.

        Args:
            sequence: Its name.
            tenant: Whose it is: the worth of guesses is learned from this tenant's texts alone.
            chooses: Whether its drafts are chosen; a text that leaves nothing open waits for
                nothing.
        """
        self._texts[sequence] = _Text(Estimates(self._experience_of(tenant)))
        if not chooses:
            return
        is_old = self._clock() - self._found > _BELIEVED
        if is_old and self.curve.is_stale and len(self._texts) == 1:
            self._curve, self._found = self._find_curve(True), self._clock()

    def free(self, sequence: int) -> None:
        """Stop following a text."""
        self._texts.pop(sequence, None)

    def length(self, sequence: int, room: int, rows: int, context: int) -> int:
        """Return how far a drafter should run ahead that drafts by itself.

        Args:
            sequence: Its text.
            room: How many tokens there is room for.
            rows: Of the pass, without this text's draft; where texts are padded, how many they are.
            context: Most tokens one of the pass's texts holds.
        """
        seconds = self._rest.on(self._passes(rows, context, LONGEST, rows))
        return self._texts[sequence].lengths.choose(seconds, room)

    def rests(self, sequence: int) -> bool:
        """Return whether a text is not to be asked about in this round, which counts as one.

        That is so where nothing has paid for a while.
        """
        text = self._texts[sequence]
        text.pause -= 1
        return text.pause >= 0

    def choose(
        self, asked: Sequence[tuple[DraftRequest, Guesser]], rows: int, others: int, context: int
    ) -> Choice:
        """Return the drafts of texts whose drafters can be asked place by place.

        Of those that rest nothing is asked.

        Args:
            asked: Each text and its drafter.
            rows: Of the pass, all roots and the other texts' drafts included.
            others: How many other texts the pass has.
            context: Most tokens one of the pass's texts holds.
        """
        growing: list[int] = []
        growths: list[Growth] = []
        for place, (request, drafter) in enumerate(asked):
            if self.rests(request.sequence):
                continue
            text = self._texts[request.sequence]
            text.growth = Growth(
                drafter.place(request), text.estimates, request, price_of(drafter), text.hope
            )
            growths.append(text.growth)
            growing.append(place)
        texts = len(asked) + others
        most = _MOST_NODES * (1 if self.pads else len(growths))
        passes = self._passes(rows, context, most, texts)
        off = passes[0] + self._rest.at(0)
        seconds = (self._rest + self._asking).on(passes) if growths else [off]
        paused = len(asked) - len(growths)
        choice = choose(growths, seconds, off, others + paused, pads=self.pads)
        gains = choice.gains(seconds[0], off, texts)
        for place, gain in zip(growing, gains, strict=True):
            text = self._texts[asked[place][0].sequence]
            text.was_asked(gain)
            if text.growth is not None and text.growth.price:
                text.has_found(text.growth.found)
        self._spent = choice.spent
        return choice if not paused else choice.among(len(asked), growing)

    def learn(self, outcome: Outcome, drafting: float) -> None:
        """Learn from what became of one text's draft, and from what was guessed and not drafted.

        Args:
            outcome: Of the round.
            drafting: Seconds its drafter took to draft by itself.
        """
        text = self._texts.get(outcome.sequence)
        if text is None:
            return
        growth, text.growth = text.growth, None
        if growth is None:
            text.lengths.learn(outcome.draft, len(outcome.accepted), drafting)
            return
        new = outcome.tokens[len(outcome.tokens) - outcome.emitted :]
        for node, token in zip((ROOT, *outcome.accepted), new, strict=False):
            if node in growth.judged:
                text.estimates.learn(*growth.judged[node], token)

    def clock(self, rows: int, nodes: int, context: int, times: RoundTimes) -> None:
        """Learn what a round took: its pass, and all that is around it."""
        if self._curve is not None:
            self._curve.observe(rows, context, times.passing)
            self._rest.learn(nodes, times.rest + times.learning)
            if times.choice:
                self._asking.learn(nodes, max(times.choice - self._spent, 0.0))

    def _experience_of(self, tenant: str) -> Estimates:
        """Return what earlier texts of a tenant taught; of tenants, the last are remembered."""
        experience = self._experience.setdefault(tenant, Estimates())
        self._experience.move_to_end(tenant)
        if len(self._experience) > _TENANTS:
            self._experience.popitem(last=False)
        return experience

    def _passes(self, rows: int, context: int, most: int, texts: int) -> list[float]:
        """Return what a pass takes by nodes besides `rows`: up to `most`, or to MOST_ROWS."""
        step = texts if self.pads else 1  # each node of one text is a row of all
        return self.curve.seconds(context, rows, rows + most * step)[::step] or [1.0]


class _Line:
    """Time around the pass: so much, and so much a node; learned as it goes."""

    def __init__(self, fixed: float = 0.0, slope: float = 0.0) -> None:
        self._fixed, self._slope = fixed, slope

    def __add__(self, other: _Line) -> _Line:
        return _Line(self._fixed + other._fixed, self._slope + other._slope)

    def at(self, nodes: int) -> float:
        return self._fixed + self._slope * nodes

    def on(self, seconds: Sequence[float]) -> list[float]:
        """Return times, by nodes from none on, with this on top."""
        fixed, slope = self._fixed, self._slope
        return [time + (fixed + slope * nodes) for nodes, time in enumerate(seconds)]

    def learn(self, nodes: int, seconds: float) -> None:
        expected = self.at(nodes)
        surprise = min(seconds, 4 * expected + 1e-3) - expected
        self._fixed = max(self._fixed + _GAIN * surprise / 2, 0.0)
        self._slope = max(self._slope + _GAIN * surprise * nodes / (1 + nodes * nodes) / 2, 0.0)
