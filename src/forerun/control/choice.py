"""Which guesses to score: the tree that brings the most tokens a second.

    maximise over trees    (texts + Σ_nodes P(node stays in the text)) / seconds(rows, nodes)

The sum is the expected number of tokens: each text's pass brings one token anyhow, and each node
one more with the probability that it is reached and right, which is the product of its path's
probabilities. Nodes are taken likeliest first, whichever text they belong to, so that each size's
tree is the best of that size (Sequoia, Chen et al., 2024, section 3.1); of the sizes the best is
kept, and 0, plain decoding, is one of them (`forerun.theory.optimal_size`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from forerun.control.estimates import Estimates, Kind
from forerun.core.proposal import Point
from forerun.core.tree import ROOT, Draft, Node
from forerun.drafters.protocol import DraftRequest, Guess, Place

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

    Attributes:
        judged: At each node whose place was asked, and ROOT: all that was guessed there, and the
            guesses' kinds.
    """

    __slots__ = (
        "_depths",
        "_ends",
        "_estimates",
        "_length",
        "_places",
        "_width",
        "judged",
        "nodes",
    )

    def __init__(self, place: Place, estimates: Estimates, request: DraftRequest) -> None:
        self._estimates = estimates
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

    def ask(self, node: int) -> list[tuple[float, Guess]]:
        """Return what may follow `node`, each token once, with its probability given the node."""
        if self._depths[node] >= self._length:
            return []
        if node != ROOT:
            guess, parent, _ = self.nodes[node]
            if guess.token in self._ends:
                return []
            self._places[node] = self._places[parent].after(guess.token)
        guesses = self._places[node].guesses(min(self._width, _WIDEST))
        if not guesses:
            return []
        judged = self._estimates.judge(guesses)
        self.judged[node] = guesses, [kind for _, kind in judged]
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
    """

    drafts: list[Draft]
    reached: list[tuple[float, ...]]
    seconds: float

    def gains(self, asked: float, off: float, texts: float) -> list[float]:
        """Return, for each text, the tokens that drafting brings, less those that its time would.

        Args:
            asked: Seconds of the round, had nothing been found worth drafting.
            off: Had nothing been asked.
            texts: Of the round, also those that were not asked about.
        """
        rate = texts / off  # tokens a second of plain rounds
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
        return Choice(drafts, reached, self.seconds)


def choose(
    growths: Sequence[Growth],
    seconds: Sequence[float],
    off: float,
    others: float = 0.0,
) -> Choice:
    """Grow all trees together, and keep the sizes that bring the most tokens a second.

    Args:
        growths: The texts' trees, still bare.
        seconds: What the round takes by the nodes of all trees together, from none to the most that
            there may be; whatever else is in the pass counts in, and so does the choice itself.
        off: What it takes when nothing is asked and nothing drafted.
        others: Tokens expected of texts whose drafts are settled already.
    """
    heap: list[tuple[float, int, int, Guess, int]] = []
    born = 0
    for which, growth in enumerate(growths):
        for probability, guess in growth.ask(ROOT):
            born += 1
            heappush(heap, (-probability, born, which, guess, ROOT))
    tokens = len(growths) + others
    best, size, taken = tokens / off, 0, 0
    sizes = [0] * len(growths)
    kept = sizes.copy()
    while heap and taken < len(seconds) - 1:
        reached, _, which, guess, parent = heappop(heap)
        reached = -reached
        if reached < _LEAST or not _may_pay(tokens, reached, taken, seconds, best):
            break
        growth = growths[which]
        node = growth.add(guess, parent, reached)
        tokens += reached
        taken += 1
        sizes[which] += 1
        rate = tokens / seconds[taken]
        if rate > best:
            best, size, kept = rate, taken, sizes.copy()
        for probability, follower in growth.ask(node):
            if reached * probability >= _LEAST:
                born += 1
                heappush(heap, (-reached * probability, born, which, follower, node))
    pairs = list(zip(growths, kept, strict=True))
    return Choice(
        [growth.draft(count) for growth, count in pairs],
        [growth.reached(count) for growth, count in pairs],
        seconds[size],
    )


def _may_pay(
    tokens: float, reached: float, taken: int, seconds: Sequence[float], best: float
) -> bool:
    """Whether some size from here on could beat `best`, were all nodes as likely as this one."""
    for time in seconds[taken + 1 :]:
        tokens += reached
        if tokens > best * time:
            return True
    return False
