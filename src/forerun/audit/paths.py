"""Rule match, path by path: over every noise a small table can hold, drafts change nothing.

Each number of the table takes one of a few values, and all assignments are walked. For each, the
target's own path follows from the slow twin; every draft, chain or tree, through the production
rule and the production loop, must lead along it and stop exactly where it leaves it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.audit.laws import score
from forerun.audit.loop import write
from forerun.audit.twin import law_after
from forerun.audit.worlds import SETTINGS, Letters, World, make_world
from forerun.config import Generation
from forerun.core.coins import AddressedCoins
from forerun.core.noise import Noise
from forerun.core.rules import Chance, make_rule
from forerun.core.scored import ScoredDraft
from forerun.core.tree import Draft
from forerun.core.warp import Warp
from forerun.drafters.protocol import DraftRequest
from forerun.engine.request import Ask, Request

__all__ = ["MatchCase", "QuantisedNoise", "match_cases"]

Text = tuple[int, ...]
_LEVELS = {2: (-0.7, 1.3), 3: (-0.9, 0.35, 1.6)}


class QuantisedNoise(Noise):
    """Noise from a table.

    Args:
        values: Row i is the noise at `first` + i; [positions][vocabulary].
        first: The first position that is asked for.
    """

    def __init__(self, values: Sequence[Sequence[float]], first: int) -> None:
        super().__init__(0)
        self._values = np.array(values)
        self._first = first

    def gumbel(self, position: int, vocab_size: int) -> NDArray[np.float64]:
        """Return the table's row; a position outside of it is an error."""
        row: NDArray[np.float64] = self._values[position - self._first]
        if position < self._first or len(row) != vocab_size:
            raise IndexError(f"no noise at position {position} of {vocab_size} tokens")
        return row


class _Repeated:
    """A drafter that proposes the same continuations again and again, as far as is asked."""

    name = "repeated"

    def __init__(self, continuations: Sequence[Text]) -> None:
        self._continuations = continuations

    def open(self, sequence: int, tokens: Sequence[int]) -> None: ...

    def fork(self, sequence: int, new: int) -> None: ...

    def rollback(self, sequence: int, length: int) -> None: ...

    def free(self, sequence: int) -> None: ...

    def observe(self, outcomes: Sequence[object]) -> None: ...

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [
            Draft.merged([text[: request.length] for text in self._continuations], self.name)
            for request in requests
        ]


@dataclass(frozen=True)
class MatchCase:
    """All noise tables of one size, under one setting.

    Attributes:
        world: Its target; proposals are every token there is.
        setting: One of SETTINGS.
        length: Tokens of a text.
        levels: Values each number of the table takes, 2 or 3.
        whole: Whether texts run through the production loop, too; else single rounds only.
    """

    world: World
    setting: str
    length: int
    levels: int
    whole: bool = False

    @property
    def name(self) -> str:
        """The case in words."""
        what = "texts" if self.whole else "rounds"
        size = f"{self.world.vocab_size} tokens, {self.levels} levels"
        return f"match, {what} of {self.length}, {size}, {self.setting}"

    @property
    def options(self) -> Generation:
        """The request's options."""
        return Generation.make(
            **SETTINGS[self.setting],
            max_tokens=self.length,
            draft_length=self.length,
            draft_width=self.world.vocab_size,
        )

    def check(self) -> tuple[int, list[str]]:
        """Return how many paths were compared, and what is wrong with the first few of them."""
        count, problems = 0, list[str]()
        options, run = self.options, self._text if self.whole else self._round
        drafts = list(self._drafts())
        for noise in self._tables():
            own = self._own_path(options, noise)
            for continuations in drafts:
                count += 1
                tokens, whole = (
                    run(options, noise, continuations),
                    self._expected(own, continuations),
                )
                if tokens != whole and len(problems) < 3:
                    problems.append(f"draft {continuations}: {tokens} instead of {whole}")
        return count, problems

    def _tables(self) -> Iterator[QuantisedNoise]:
        size, first = self.world.vocab_size, len(self.world.prompt)
        for values in itertools.product(_LEVELS[self.levels], repeat=size * self.length):
            rows = [values[i : i + size] for i in range(0, len(values), size)]
            yield QuantisedNoise(rows, first)

    def _drafts(self) -> Iterator[tuple[Text, ...]]:
        """Yield nothing, every chain and every pair of chains, and the full tree."""
        depth = self.length if self.whole else self.length - 1
        chains = list(itertools.product(range(self.world.vocab_size), repeat=depth))
        yield ()
        yield from ((chain,) for chain in chains)
        yield from itertools.combinations(chains, 2) if len(chains) < 5 else ()
        yield tuple(chains)

    def _own_path(self, options: Generation, noise: QuantisedNoise) -> Text:
        """Return the target's path: the argmax of log p + g, ties to the lowest id."""
        output: Text = ()
        prompt = self.world.prompt
        for _ in range(self.length):
            logits = self.world.target.logits_after((*prompt, *output))
            p = law_after(list(map(float, logits)), prompt, output, options)
            g = noise.gumbel(len(prompt) + len(output), len(p)).tolist()
            ranks = [math.log(a) + b if a > 0 else -math.inf for a, b in zip(p, g, strict=True)]
            output = (*output, ranks.index(max(ranks)))
        return output

    def _expected(self, own: Text, continuations: Sequence[Text]) -> Text:
        """Return what must be written: in one round, as far as the draft follows the path."""
        if self.whole:
            return own
        shared = max((_shared(own, text) for text in continuations), default=0)
        return own[: shared + 1]

    def _round(
        self, options: Generation, noise: QuantisedNoise, continuations: Sequence[Text]
    ) -> Text:
        tokens = self.world.prompt
        warp = Warp(options, self.world.vocab_size)
        draft = Draft.merged(continuations, "all")
        logits = score(self.world, tokens, draft)
        scored = ScoredDraft(draft, logits, warp, warp.start(tokens), len(tokens))
        verdict = make_rule("match").verify(scored, Chance(noise, AddressedCoins(0)))
        return (*(draft.nodes[i].token for i in verdict.accepted), verdict.token)

    def _text(
        self, options: Generation, noise: QuantisedNoise, continuations: Sequence[Text]
    ) -> Text:
        ask = Ask(self.world.prompt, options, 0, (), Letters())

        def prepare(request: Request) -> None:
            request.noise = noise

        [request] = write(self.world.target, [ask], lambda _: _Repeated(continuations), prepare)
        return tuple(request.output)


def _shared(one: Text, other: Text) -> int:
    """Return how many first tokens two texts share."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def match_cases(thorough: bool = False) -> Iterator[MatchCase]:
    """Yield the cases of the audit; all of them hold chains and trees."""
    two, three = make_world("unrelated", 2, 5), make_world("unrelated", 3, 5, order=2)
    for setting in ("plain", "penalties"):
        yield MatchCase(two, setting, 3, 3)
        yield MatchCase(three, setting, 2, 3)
        yield MatchCase(two, setting, 3, 2, whole=True)
    yield MatchCase(three, "top-k", 2, 2, whole=True)
    yield MatchCase(three, "greedy", 2, 2, whole=True)
    if thorough:
        for setting in SETTINGS:
            yield MatchCase(three, setting, 3, 2)
            yield MatchCase(two, "top-p", 4, 2, whole=True)
