"""Which guesses to score: the tree that brings the most tokens a second.

    maximise over trees    (texts + Σ_nodes P(node stays in the text)) / seconds(rows, nodes)

The sum is the expected number of tokens: each text's pass brings one token anyhow, and each node
one more with the probability that it is reached and right, which is the product of its path's
probabilities. Nodes are taken likeliest first, whichever text they belong to, so that each size's
tree is the best of that size (Sequoia, Chen et al., 2024, section 3.1); of the sizes the best is
kept, and 0, plain decoding, is one of them (`forerun.theory.optimal_size`).

Some drafters take their time to be asked. Such a one is asked behind a node if that is worth it:

    P(node stays) P(no free guess there is right) hope > tokens a second, so far, x (price + row)

where hope is how often its best guess was held to be right of late, and row what one more takes.
What was spent on asking is spent, however much of the tree is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from forerun.control.estimates import Estimates, Kind
from forerun.core.proposal import Point
from forerun.core.tree import ROOT, Draft, Node
from forerun.drafters.protocol import NOWHERE, DraftRequest, Guess, Place, parts_of

__all__ = ["Choice", "Growth", "choose"]

_LEAST = 0.01  # a node less likely than this pays on no machine
_WIDEST = 4  # guesses of each drafter at one place
_NOTHING = Draft()


class Growth:
    """One text's tree while it grows.

    Args:
        place: The root's.
        estimates: The text's.
        request: Gives length, width, and the tokens that nothing follows.
        price: Seconds that the part of a place takes to be asked that has a price.
        hope: How likely its best guess is, from experience.

    Attributes:
        found: How likely its best guess was, wherever it was asked.
        judged: At each node whose place was asked, and ROOT: all that was guessed there, and the
            guesses' kinds.
    """

    __slots__ = (
        "_depths",
        "_ends",
        "_estimates",
        "_hope",
        "_length",
        "_places",
        "_width",
        "found",
        "judged",
        "nodes",
        "price",
    )

    def __init__(
        self,
        place: Place,
        estimates: Estimates,
        request: DraftRequest,
        price: float = 0.0,
        hope: float = 1.0,
    ) -> None:
        self._estimates = estimates
        self.price, self._hope = price, hope
        self.found: list[float] = []
        self._length, self._width = request.length, request.width
        self._ends = request.ends
        self._places: dict[int, Place] = {ROOT: place}
        self._depths = {ROOT: 0}
        self.judged: dict[int, tuple[Sequence[Guess], Sequence[Kind]]] = {}
        self.nodes: list[tuple[Guess, int, float]] = []

    def add(self, guess: Guess, parent: int, reached: float) -> int:
        """Add a node that stays in the text with probability `reached`, and return it."""
        node = len(self.nodes)
        self.nodes.append((guess, parent, reached))
        self._depths[node] = self._depths[parent] + 1
        return node

    @property
    def spent(self) -> float:
        """Seconds that went into asking what has a price."""
        return self.price * len(self.found)

    def ask(
        self, node: int, reached: float, rate: float, row: float = 0.0
    ) -> list[tuple[float, Guess]]:
        """Return what may follow `node`, each token once, with its probability given the node.

        Args:
            node: Whose followers are asked for.
            reached: How likely it stays in the text.
            rate: Tokens a second, so far: what has a price is asked if it may bring more.
            row: Seconds of one more row, without which nothing is gained by asking.
        """
        if self._depths[node] >= self._length:
            return []
        if node != ROOT:
            guess, parent, _ = self.nodes[node]
            if guess.token in self._ends:
                return []
            self._places[node] = self._places[parent].after(guess.token)
        place, most = self._places[node], min(self._width, _WIDEST)
        free, priced = parts_of(place)
        guesses = free.guesses(most)
        judged = self._estimates.judge(guesses) if guesses else []
        if priced is not NOWHERE and self._may_pay(judged, reached, rate * (self.price + row)):
            more = priced.guesses(most)
            judged_more = self._estimates.judge(more)
            self.found.append(max((probability for probability, _ in judged_more), default=0.0))
            guesses, judged = [*guesses, *more], [*judged, *judged_more]
        if not guesses:
            return []
        self.judged[node] = guesses, [kind for _, kind in judged]
        return self._merged(guesses, judged)

    def _may_pay(self, judged: Sequence[tuple[float, Kind]], reached: float, cost: float) -> bool:
        """Whether what is still missed, with what is known, is worth so many tokens."""
        missed = 1.0 - min(sum(probability for probability, _ in judged), 1.0)
        return reached * missed * self._hope > cost

    def _merged(
        self, guesses: Sequence[Guess], judged: Sequence[tuple[float, Kind]]
    ) -> list[tuple[float, Guess]]:
        best: dict[int, tuple[float, Guess]] = {}
        for guess, (probability, _) in zip(guesses, judged, strict=True):
            token = guess.token
            if token not in best:
                best[token] = (probability, guess)
                continue
            # Two sources agree: neither knows all that the other does, nor are they strangers.
            known, first = best[token]
            both = 1.0 - (1.0 - known) * (1.0 - probability)
            surer = probability > known
            best[token] = ((max(known, probability) + both) / 2, guess if surer else first)
        if len(best) <= self._width:
            return list(best.values())
        return sorted(best.values(), key=lambda pair: -pair[0])[: self._width]

    def draft(self, size: int) -> Draft:
        """Return the tree of the first `size` nodes."""
        if not size:
            return _NOTHING
        nodes = [
            Node(guess.token, parent, Point(guess.token), guess.drafter)
            for guess, parent, _ in self.nodes[:size]
        ]
        return Draft(tuple(nodes))

    def reached(self, size: int) -> tuple[float, ...]:
        """Return the probabilities that the first `size` nodes stay in the text."""
        return tuple([reached for _, _, reached in self.nodes[:size]])


@dataclass(frozen=True, slots=True)
class Choice:
    """What is to be scored.

    Attributes:
        drafts: One for each growth.
        reached: For each node of each draft, the probability that it stays in the text.
        seconds: What the round is expected to take.
        spent: Of those, what went into asking what has a price.
    """

    drafts: list[Draft]
    reached: list[tuple[float, ...]]
    seconds: float
    spent: float = 0.0

    def gains(self, asked: float, off: float, texts: float) -> list[float]:
        """Return, for each text, the tokens that drafting brings, less those that its time would.

        Args:
            asked: Seconds of the round, had nothing been found worth drafting, nor anything spent.
            off: Had nothing been asked.
            texts: Of the round, also those that were not asked about.
        """
        rate = texts / off  # tokens a second of plain rounds
        asked += self.spent
        price = rate * (asked - off) / max(len(self.drafts), 1)
        price_of_node = rate * (self.seconds - asked) / max(sum(map(len, self.drafts)), 1)
        return [
            sum(reached) - price - price_of_node * len(draft)
            for draft, reached in zip(self.drafts, self.reached, strict=True)
        ]

    def among(self, count: int, places: Sequence[int]) -> Choice:
        """Return the choice for `count` texts, of whom those at `places` were asked about."""
        drafts = [_NOTHING] * count
        reached: list[tuple[float, ...]] = [()] * count
        for place, draft, chances in zip(places, self.drafts, self.reached, strict=True):
            drafts[place], reached[place] = draft, chances
        return Choice(drafts, reached, self.seconds, self.spent)


def choose(
    growths: Sequence[Growth],
    seconds: Sequence[float],
    off: float,
    others: float = 0.0,
    *,
    pads: bool = False,
) -> Choice:
    """Grow all trees together, and keep the sizes that bring the most tokens a second.

    Args:
        growths: The texts' trees, still bare.
        seconds: What the round takes by the nodes of all trees together, from none to the most that
            there may be; whatever else is in the pass counts in, and so does the choice itself.
        off: What it takes when nothing is asked and nothing drafted.
        others: Tokens expected of texts whose drafts are settled already.
        pads: `seconds` go by the nodes of the largest tree: all texts have as many rows as it.
    """
    heap: list[tuple[float, int, int, Guess, int]] = []
    born = 0
    rate = (len(growths) + others) / off  # the best so far
    row = max(seconds[1] - seconds[0], 0.0) if len(seconds) > 1 else 0.0
    for which, growth in enumerate(growths):
        for probability, guess in growth.ask(ROOT, 1.0, rate, row):
            born += 1
            heappush(heap, (-probability, born, which, guess, ROOT))
    is_priced = any(growth.price for growth in growths)
    spent = _spent(growths)
    sizes = _Sizes([len(growths) + others], [], [0])
    while heap:
        reached, _, which, guess, parent = heappop(heap)
        reached, growth = -reached, growths[which]
        later = seconds[1 + (len(growth.nodes) if pads else len(sizes.owners)) :]
        more = reached * (len(growths) if pads else 1)
        if reached < _LEAST or not _may_pay(sizes.tokens[-1], more, later, spent, rate):
            if pads:
                continue  # a smaller tree's node may still be had for nothing
            break
        node = growth.add(guess, parent, reached)
        sizes.tokens.append(sizes.tokens[-1] + reached)
        sizes.owners.append(which)
        sizes.paid.append(max(sizes.paid[-1], node + 1) if pads else len(sizes.owners))
        rate = max(rate, sizes.tokens[-1] / (seconds[sizes.paid[-1]] + spent))
        for probability, follower in growth.ask(node, reached, rate, row):
            if reached * probability >= _LEAST:
                born += 1
                heappush(heap, (-reached * probability, born, which, follower, node))
        spent = _spent(growths) if is_priced else 0.0
    return _kept(growths, sizes, seconds, pads=pads)


class _Sizes(NamedTuple):
    """All trees together, by how many nodes they have.

    Attributes:
        tokens: Expected of each size.
        owners: Whose tree each node is in, in their order.
        paid: The nodes that each size is paid for.
    """

    tokens: list[float]
    owners: list[int]
    paid: list[int]


def _kept(
    growths: Sequence[Growth], sizes: _Sizes, seconds: Sequence[float], *, pads: bool
) -> Choice:
    """Return the trees of the size that brings the most, whatever was spent on asking."""
    spent = _spent(growths)
    if pads:
        counts, paid = _filled(growths, sizes.tokens[0], seconds, spent)
    else:
        times = [time + spent for time in seconds]
        paid = max(range(len(sizes.tokens)), key=lambda n: sizes.tokens[n] / times[n])
        counts = [0] * len(growths)
        for which in sizes.owners[:paid]:
            counts[which] += 1
    pairs = list(zip(growths, counts, strict=True))
    return Choice(
        [growth.draft(count) for growth, count in pairs],
        [growth.reached(count) for growth, count in pairs],
        seconds[paid] + spent,
        spent,
    )


def _filled(
    growths: Sequence[Growth], tokens: float, seconds: Sequence[float], spent: float
) -> tuple[list[int], int]:
    """Return how much of each tree is kept where all may be as large as the largest, and that."""
    best, largest = 0.0, 0
    for nodes in range(1 + max([len(growth.nodes) for growth in growths], default=0)):
        if nodes:
            tokens += sum([g.nodes[nodes - 1][2] for g in growths if len(g.nodes) >= nodes])
        rate = tokens / (seconds[nodes] + spent)
        if rate > best:
            best, largest = rate, nodes
    return [min(len(growth.nodes), largest) for growth in growths], largest


def _spent(growths: Sequence[Growth]) -> float:
    return sum([growth.spent for growth in growths])


def _may_pay(
    tokens: float, reached: float, seconds: Sequence[float], spent: float, rate: float
) -> bool:
    """Whether some size from here on could beat `rate`, were all nodes as likely as this one."""
    for time in seconds:
        tokens += reached
        if tokens > rate * (time + spent):
            return True
    return False
