"""Drafts of any shape, drawn in any way a rule must survive.

A plan says where a draft branches and how each token is chosen. The shapes go beyond what the
production drafters draw: the rules promise exactness for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from forerun.core.coins import Address
from forerun.core.noise import Domain
from forerun.core.proposal import Dense, Point
from forerun.core.tree import ROOT, Draft, Node
from forerun.core.warp import Law, State, law
from forerun.drafters.protocol import DraftRequest, Outcome
from forerun.targets.toy import ToyTarget

__all__ = ["PLANS", "Plan", "PlannedDrafter", "Slot", "chain"]

Kind = Literal["drawn", "rest", "likeliest", "outside"]


@dataclass(frozen=True, slots=True)
class Slot:
    """One node to be.

    Attributes:
        parent: Index of the slot above it, or ROOT.
        kind: "drawn" from q, be it a sibling's token again; "rest": from q without the tokens of
            earlier siblings; "likeliest": q's next likeliest token, nothing drawn; "outside":
            from q without the tokens that the likeliest siblings take.
    """

    parent: int
    kind: Kind = "drawn"


@dataclass(frozen=True, slots=True)
class Plan:
    """A draft to be.

    Attributes:
        name: In words.
        slots: Parents stand before their children.
        most_entropy: A node where q has more nats than this gets no children. Settled before
            anything is drawn there.
        warped: Whether q is warped as p is; if not, q is the drafter's plain softmax.
    """

    name: str
    slots: tuple[Slot, ...]
    most_entropy: float = math.inf
    warped: bool = True

    @property
    def length(self) -> int:
        """Tokens from the root to the farthest leaf."""
        depths = {ROOT: 0}
        for index, slot in enumerate(self.slots):
            depths[index] = depths[slot.parent] + 1
        return max(depths.values())


def chain(length: int, kind: Kind = "drawn", **settings: float) -> Plan:
    """Return the plan of a chain; `settings` are Plan's own."""
    slots = tuple(Slot(i - 1, kind) for i in range(length))
    return Plan(f"chain of {length}, {kind}", slots, **settings)  # type: ignore[arg-type]


def _tree(name: str, *slots: tuple[int, Kind]) -> Plan:
    return Plan(name, tuple(Slot(parent, kind) for parent, kind in slots))


PLANS: dict[str, Plan] = {
    plan.name: plan
    for plan in (
        _tree("2 with replacement", (-1, "drawn"), (-1, "drawn")),
        _tree("3 with replacement", (-1, "drawn"), (-1, "drawn"), (-1, "drawn")),
        _tree("2 without replacement", (-1, "rest"), (-1, "rest")),
        _tree("3 without replacement", (-1, "rest"), (-1, "rest"), (-1, "rest")),
        _tree("comb without replacement", (-1, "rest"), (-1, "rest"), (0, "rest"), (0, "rest")),
        _tree("2 by 1 with replacement", (-1, "drawn"), (-1, "drawn"), (0, "drawn"), (1, "drawn")),
        _tree("2 by 1 without replacement", (-1, "rest"), (-1, "rest"), (0, "rest"), (1, "rest")),
        _tree("1 by 2", (-1, "drawn"), (0, "rest"), (0, "rest")),
        _tree("likeliest 2 by 2", *[(p, "likeliest") for p in (-1, -1, 0, 0, 1, 1)]),
        _tree("drawn outside, then likeliest", (-1, "outside"), (-1, "likeliest"), (1, "outside")),
        _tree("likeliest, then drawn", (-1, "likeliest"), (-1, "drawn"), (0, "drawn"), (1, "rest")),
    )
}
"""Trees by name."""


class PlannedDrafter:
    """Drafts by a plan, from the law of a toy; remembers nothing.

    Args:
        plan: The shape and the ways to draw.
        source: Whose law is q.
    """

    name = "planned"

    def __init__(self, plan: Plan, source: ToyTarget) -> None:
        self._plan = plan
        self._source = source

    def open(self, sequence: int, tokens: Sequence[int]) -> None:
        """Nothing to follow."""

    def fork(self, sequence: int, new: int) -> None:
        """Nothing to fork."""

    def rollback(self, sequence: int, length: int) -> None:
        """Nothing to forget."""

    def free(self, sequence: int) -> None:
        """Nothing to give back."""

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Nothing to learn."""

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Draft by the plan for each request, no deeper and no wider than it asks."""
        return [_Growth(self._plan, self._source, request).draft() for request in requests]


class _Growth:
    """One draft while it grows."""

    def __init__(self, plan: Plan, source: ToyTarget, request: DraftRequest) -> None:
        self._plan = plan
        self._source = source
        self._request = request
        self._nodes: list[Node] = []
        self._places = {ROOT: ROOT}  # a slot's node, if it became one
        self._texts: dict[int, tuple[int, ...]] = {ROOT: ()}

    def draft(self) -> Draft:
        for index, slot in enumerate(self._plan.slots):
            parent = self._places.get(slot.parent)
            if parent is not None and self._has_room(parent):
                self._grow(index, slot, parent)
        return Draft(tuple(self._nodes))

    def _has_room(self, parent: int) -> bool:
        depth, siblings = len(self._texts[parent]), self._siblings(parent)
        return depth < self._request.length and len(siblings) < self._request.width

    def _siblings(self, parent: int) -> list[int]:
        return [node.token for node in self._nodes if node.parent == parent]

    def _grow(self, index: int, slot: Slot, parent: int) -> None:
        q = self._q(self._texts[parent])
        if -float(np.sum(q[q > 0] * np.log(q[q > 0]))) > self._plan.most_entropy:
            return
        node = self._deterministic(slot, parent, q) or self._sampled(slot, parent, q)
        if node is not None:
            self._places[index] = len(self._nodes)
            self._texts[len(self._nodes)] = (*self._texts[parent], node.token)
            self._nodes.append(node)

    def _deterministic(self, slot: Slot, parent: int, q: Law) -> Node | None:
        if slot.kind != "likeliest":
            return None
        rank = sum(
            isinstance(node.proposal, Point) for node in self._nodes if node.parent == parent
        )
        token = int(np.argsort(-q, kind="stable")[rank])
        return Node(token, parent, Point(token), "planned")

    def _sampled(self, slot: Slot, parent: int, q: Law) -> Node | None:
        gone: list[int] = []
        if slot.kind == "rest":
            gone = self._siblings(parent)
        elif slot.kind == "outside":
            likely = sum(
                s.parent == slot.parent and s.kind == "likeliest" for s in self._plan.slots
            )
            gone = list(np.argsort(-q, kind="stable")[:likely])
        weights = q.copy()
        weights[gone] = 0.0
        if slot.kind == "likeliest" or not weights.any():
            return None  # nothing is left that could be drawn
        proposal = weights / weights.sum()
        assert self._request.coins is not None
        place = Address(self._request.round, len(self._nodes) + 1, Domain.DRAFT)
        token = self._request.coins.draw(place, proposal)
        return Node(token, parent, Dense(proposal), "planned")

    def _q(self, path: tuple[int, ...]) -> Law:
        request = self._request
        logits = self._source.logits_after((*request.tokens, *path))
        if not self._plan.warped:
            return law(logits.astype(np.float64))
        state: State = request.state
        for token in path:
            state = state.advance(token)
        return law(request.warp.scores(logits, state))
