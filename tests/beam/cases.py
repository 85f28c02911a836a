"""Searches over small targets, and drafters to try them with."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from drafters.loop import make_for
from forerun.beam.ask import BeamAsk
from forerun.beam.plain import Found
from forerun.beam.search import BeamSearch
from forerun.core.beams import BeamRule, EarlyStopping, Finished
from forerun.drafters.protocol import Drafter
from forerun.drafters.store import Store
from forerun.events import BeamStats
from forerun.targets.protocol import Capabilities, Row, Scores, Target
from forerun.targets.toy import ToyTarget
from forerun.targets.toy_head import ToyHead

__all__ = ["NAMES", "ChainsOnly", "drafter_for", "rule_of", "searched", "seconds"]

NAMES = count(-1, -1)


class ChainsOnly(ToyTarget):
    """A toy whose passes hold one child of a row at most, as some networks' must."""

    def __init__(self, toy: ToyTarget) -> None:
        super().__init__(toy._table, toy.context_length)
        self.capabilities = Capabilities(trees=False, exactness="bitwise", name="toy", layers=2)

    def score(
        self,
        rows: Sequence[Row],
        *,
        logits: Sequence[int] | None = None,
        layers: Sequence[int] = (),
        until: int | None = None,
    ) -> Scores:
        """Refuse siblings."""
        below = [(row.sequence, row.parent) for row in rows]
        assert len(set(below)) == len(below), "rows branch"
        return super().score(rows, logits=logits, layers=layers, until=until)


def drafter_for(spec: str, target: ToyTarget, store: Store | None = None) -> Drafter:
    """Return a drafter whose heads know a law near the target's."""
    head = ToyHead(target, range(1, target.vocab_size), blur=0.5)  # it lacks a token
    return make_for(target, head, spec, store=store)


def rule_of(
    beams: int,
    limit: int = 12,
    *,
    penalty: float = 1.0,
    stopping: EarlyStopping = False,
    ends: Sequence[int] = (0,),
) -> BeamRule:
    """Return a rule."""
    return BeamRule(beams, frozenset(ends), limit, penalty, stopping)


def seconds(context: int) -> Sequence[float]:
    """Return passes that cost the same whatever they score."""
    return [1.0] * 200


def searched(
    target: Target,
    ask: BeamAsk,
    drafter: Drafter | None = None,
    *,
    ahead: bool = True,
) -> tuple[list[Finished[Found]], BeamStats]:
    """Search to the end; return what was found and what it cost."""
    names = NAMES.__next__
    search = BeamSearch(target, ask, drafter, names=names, seconds=seconds, ahead=ahead)
    try:
        while not search.is_over:
            search.advance()
        return list(search.best), search.stats
    finally:
        search.close()
