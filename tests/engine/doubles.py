"""What the engine is tested with: a target that watches how it is used, and drafters to provoke it.

The toy's logits depend on the last tokens only, so an engine that kept a wrong token, or scored a
right one in a wrong place, writes another text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.config import Generation
from forerun.control.control import Control, RoundTimes
from forerun.control.cost import CostCurve
from forerun.core.coins import Address
from forerun.core.noise import Domain, Noise
from forerun.core.proposal import Dense
from forerun.core.rules.match import target_token
from forerun.core.stop import Stop
from forerun.core.tree import Draft, Node
from forerun.core.warp import Warp, law
from forerun.drafters.protocol import Drafter, DraftRequest, Outcome
from forerun.engine.request import Ask
from forerun.engine.scheduler import Scheduler
from forerun.events import Event, Result
from forerun.targets.protocol import Row, Scores
from forerun.targets.toy import ToyTarget

VOCAB = 7
EOS = 0
LETTERS = "\0abcdéf"  # token i writes letter i; the end token nothing


class Letters:
    """A letter for each token."""

    def push(self, token: int) -> str:
        """Return the token's letter."""
        return "" if token == EOS else LETTERS[token]

    def flush(self) -> str:
        """Return nothing: a letter is never half."""
        return ""


class SpyTarget:
    """A toy that refuses any use but the protocol's, and can be told to fail.

    Attributes:
        passes: The rows of every pass.
        layers: The layers asked of every pass.
        open_sequences: Those neither freed nor failed to open.
        freed_lengths: How many tokens each freed sequence had committed.
        fails: Called with the name of each method before it runs; may raise.
    """

    def __init__(self, toy: ToyTarget) -> None:
        self.toy = toy
        self.passes: list[tuple[Row, ...]] = []
        self.layers: list[tuple[int, ...]] = []
        self.open_sequences: set[int] = set()
        self.freed_lengths: list[int] = []
        self.fails: Callable[[str], None] = lambda method: None
        self._uncommitted: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.toy, name)

    def open(self, prompt: Sequence[int] = (), source: Sequence[int] | None = None) -> int:
        """Open, and remember."""
        self.fails("open")
        sequence = self.toy.open(prompt, source)
        self.open_sequences.add(sequence)
        return sequence

    def score(self, rows: Sequence[Row], **asked: Any) -> Scores:
        """Score, if each sequence has one root at its committed end and nothing is pending."""
        self.fails("score")
        assert not self._uncommitted, "the last pass was not committed"
        for sequence in {row.sequence for row in rows}:
            roots = [row for row in rows if row.sequence == sequence and row.parent == -1]
            assert [row.position for row in roots] == [self.toy.length(sequence)]
        assert max(row.position for row in rows) < self.toy.context_length - 1
        self.passes.append(tuple(rows))
        self.layers.append(tuple(asked.get("layers", ())))
        self._uncommitted = {row.sequence for row in rows}
        return self.toy.score(rows, **asked)

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        """Commit a path that begins at the root, once."""
        self.fails("commit")
        assert path, "the root's row is always kept"
        self._uncommitted.remove(sequence)
        before = self.toy.length(sequence)
        self.toy.commit(sequence, path)
        assert self.toy.length(sequence) == before + len(path)

    def free(self, sequence: int) -> None:
        """Free, and forget."""
        self.open_sequences.remove(sequence)
        self._uncommitted.discard(sequence)
        self.freed_lengths.append(self.toy.length(sequence))
        self.toy.free(sequence)
        self.fails("free")


class FollowingDrafter:
    """Follows texts as a drafter must, and checks that it is told everything.

    Attributes:
        texts: What each open sequence holds, by what was observed.
        asked: Every request to draft.
        outcomes: All that became of them.
        fails: Called with the name of each method before it runs; may raise.
    """

    name = "test"

    def __init__(self) -> None:
        self.texts: dict[int, list[int]] = {}
        self.asked: list[DraftRequest] = []
        self.outcomes: list[Outcome] = []
        self.fails: Callable[[str], None] = lambda method: None

    def open(self, sequence: int, tokens: Sequence[int]) -> None:
        """Follow a text that is not followed yet."""
        self.fails("open")
        assert sequence not in self.texts
        self.texts[sequence] = list(tokens)

    def fork(self, sequence: int, new: int) -> None:
        """Follow a copy."""
        self.texts[new] = list(self.texts[sequence])

    def rollback(self, sequence: int, length: int) -> None:
        """Forget the end."""
        del self.texts[sequence][length:]

    def free(self, sequence: int) -> None:
        """Forget a text that is followed."""
        del self.texts[sequence]
        self.fails("free")

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Guess for texts that are followed, exactly as far as they are known."""
        self.fails("draft")
        for request in requests:
            assert list(request.tokens) == self.texts[request.sequence]
            assert request.length > 0
            assert (request.noise is None) != (request.coins is None)
        self.asked += requests
        return [self.guess(request) for request in requests]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Take the new tokens, which follow the known ones."""
        self.fails("observe")
        self.outcomes += outcomes
        assert {outcome.sequence for outcome in outcomes} <= set(self.texts)
        for outcome in outcomes:
            known = self.texts[outcome.sequence]
            assert outcome.emitted > 0
            assert len(outcome.tokens) == len(known) + outcome.emitted
            assert list(outcome.tokens[: len(known)]) == known
            path = [outcome.draft.nodes[node].token for node in outcome.accepted]
            assert list(outcome.tokens[len(known) :][: len(path)]) == path
            assert len(path) in (outcome.emitted, outcome.emitted - 1)
            self.texts[outcome.sequence] = list(outcome.tokens)

    def guess(self, request: DraftRequest) -> Draft:
        """Return the draft for one text."""
        return Draft()


class Oracle(FollowingDrafter):
    """Knows the target: what it guesses is always right, and goes on behind the end of the text."""

    name = "oracle"

    def __init__(self, toy: ToyTarget) -> None:
        super().__init__()
        self.toy = toy

    def guess(self, request: DraftRequest) -> Draft:
        """Write what the target will write, or draw from the target's own law."""
        nodes: list[Node] = []
        tokens, state = list(request.tokens), request.state
        for depth in range(request.length):
            scores = request.warp.scores(self.toy.logits_after(tokens), state)
            p = law(scores)
            if request.noise is not None:
                token = target_token(scores, request.noise, len(tokens))
            else:
                assert request.coins is not None
                token = request.coins.draw(Address(request.round, depth + 1, Domain.DRAFT), p)
            nodes.append(Node(token, depth - 1, Dense(p), self.name))
            tokens.append(token)
            state = state.advance(token)
        return Draft(tuple(nodes))


class Wrong(Oracle):
    """Knows the target, and guesses another token (under match, or at temperature 0)."""

    name = "wrong"

    def guess(self, request: DraftRequest) -> Draft:
        """Turn every right token into the next one."""
        right = [node.token for node in super().guess(request).nodes]
        return Draft.chain([(token + 1) % VOCAB for token in right], self.name)


class Fickle(Oracle):
    """Right for a while: how long depends on the position."""

    name = "fickle"

    def guess(self, request: DraftRequest) -> Draft:
        """Go wrong after as many tokens as the text's length says."""
        tokens = [node.token for node in super().guess(request).nodes]
        right = len(request.tokens) % (request.length + 1)
        wrong = [(token + 1) % VOCAB for token in tokens[right:]]
        return Draft.chain(tokens[:right] + wrong, self.name)


class Bushy(Oracle):
    """Guesses trees: at each depth wrong siblings first, the right one last."""

    name = "bushy"

    def guess(self, request: DraftRequest) -> Draft:
        """Hang a chain of right tokens, each the last of `width` siblings."""
        right = [node.token for node in super().guess(request).nodes]
        wrong = [[(t + i) % VOCAB for i in range(1, request.width)] for t in right]
        branches = []
        for depth, siblings in enumerate(wrong):
            branches += [[*right[:depth], sibling] for sibling in siblings]
            branches.append(right[: depth + 1])
        return Draft.merged(branches, self.name)


class Watching(Bushy):
    """Wants to see two layers, and checks that it is shown each position once, in order.

    Attributes:
        seen: Of how many tokens of each open text it knows the hidden states.
    """

    name = "watching"
    layers = (0, 2)

    def __init__(self, toy: ToyTarget) -> None:
        super().__init__(toy)
        self.seen: dict[int, int] = {}

    def open(self, sequence: int, tokens: Sequence[int]) -> None:
        """Follow a text of which nothing was shown yet."""
        super().open(sequence, tokens)
        self.seen[sequence] = 0

    def free(self, sequence: int) -> None:
        """Forget the text."""
        del self.seen[sequence]
        super().free(sequence)

    def see(self, sequence: int, start: int, hidden: Mapping[int, NDArray[np.float32]]) -> None:
        """Take the prompt's states, which follow the known ones and leave out the root."""
        self.fails("see")
        assert start == self.seen[sequence]
        text = self.texts[sequence]
        self.seen[sequence] += len(hidden[0])
        assert self.seen[sequence] < len(text)
        self._check(hidden, [text[: start + i + 1] for i in range(len(hidden[0]))])

    def guess(self, request: DraftRequest) -> Draft:
        """Guess once all but the root was shown."""
        assert self.seen[request.sequence] == len(request.tokens) - 1
        return super().guess(request)

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Take each row's states, of which those that stay follow the known ones."""
        super().observe(outcomes)
        for outcome in outcomes:
            before, draft = outcome.tokens[: -outcome.emitted], outcome.draft
            paths = [[draft.nodes[n].token for n in draft.path(i)] for i in range(-1, len(draft))]
            self._check(outcome.hidden, [[*before, *path] for path in paths])
            assert self.seen[outcome.sequence] == len(before) - 1
            self.seen[outcome.sequence] += outcome.emitted

    def _check(
        self, hidden: Mapping[int, NDArray[np.float32]], texts: Sequence[Sequence[int]]
    ) -> None:
        assert tuple(hidden) == self.layers
        for layer, states in hidden.items():
            expected = [self.toy.hidden_after(text, layer) for text in texts]
            np.testing.assert_array_equal(states, expected)


class Answering(FollowingDrafter):
    """Answers whatever it was built with, for each request."""

    name = "answering"

    def __init__(self, answer: Callable[[DraftRequest], Draft]) -> None:
        super().__init__()
        self._answer = answer

    def guess(self, request: DraftRequest) -> Draft:
        """Return the answer."""
        return self._answer(request)


DRAFTERS: dict[str, Callable[[ToyTarget], FollowingDrafter]] = {
    "nothing": lambda toy: FollowingDrafter(),
    "oracle": Oracle,
    "wrong": Wrong,
    "fickle": Fickle,
    "bushy": Bushy,
    "watching": Watching,
}


class Unhurried(Control):
    """Believes that rows cost nothing, and learns nothing else from the clock."""

    def clock(self, rows: int, nodes: int, context: int, times: RoundTimes) -> None:
        """Don't look."""


class Bench:
    """A scheduler over a watched toy, with every drafter above by its name.

    Args:
        toy: The target inside.
        max_batch: The scheduler's.
        drafters: More drafters by name, or others in the place of those above.
    """

    def __init__(self, toy: ToyTarget, max_batch: int = 64, **drafters: FollowingDrafter) -> None:
        self.target = SpyTarget(toy)
        self.drafters = {name: make(toy) for name, make in DRAFTERS.items()} | drafters
        control = Unhurried(self.target, lambda again: CostCurve({1: 1.0, 32: 1.0}))
        self.scheduler = Scheduler(self.target, self.drafter_for, max_batch, control)

    def drafter_for(self, spec: str) -> Drafter | None:
        """Return the drafter of that name."""
        return None if spec == "none" else self.drafters[spec]

    def run(self, *asks: Ask) -> list[Event]:
        """Run to the end, and check that nothing stays open."""
        events = list(self.scheduler.run(asks))
        self.check_nothing_is_open()
        return events

    def results(self, *asks: Ask) -> list[Result]:
        """Return the results in the order of the asks."""
        first = self.scheduler._named
        found = {e.request: e for e in self.run(*asks) if isinstance(e, Result)}
        return [found[first + i] for i in range(len(asks))]

    def check_nothing_is_open(self) -> None:
        """Every sequence of the target and every text of the drafters was given back."""
        assert self.scheduler.is_idle
        assert self.target.open_sequences == set()
        assert self.target.toy._sequences == {}
        assert {name: d.texts for name, d in self.drafters.items() if d.texts} == {}


def ask(prompt: Sequence[int] = (1, 2), *, seed: int = 7, sample: int = 0, **options: Any) -> Ask:
    """Return what a caller asks for, over the letters above."""
    values = {"drafter": "none", "max_tokens": 12, **options}
    return Ask(tuple(prompt), Generation.make(**values), seed, (EOS,), Letters(), sample)


def again(asked: Ask, **options: Any) -> Ask:
    """Return the same ask with a decoder of its own and some options changed."""
    changed = asked.options.replace(**options)
    return Ask(asked.prompt, changed, asked.seed, asked.eos_ids, Letters(), asked.sample)


def plainly(toy: ToyTarget, asked: Ask) -> tuple[list[int], str, str, str]:
    """Write the text with no engine: one token after another, each from the whole text.

    Returns:
        Tokens, text, finish reason and its detail.
    """
    options, tokens = asked.options, list(asked.prompt)
    stop = Stop(options, asked.eos_ids, Letters(), toy.context_length - len(tokens))
    stops = () if options.ignore_eos else asked.eos_ids
    warp = Warp(options, toy.vocab_size, stops, options.min_tokens)
    state, noise, text = warp.start(tokens), Noise(asked.seed, asked.sample), ""
    if options.max_tokens == 0:
        return [], "", "length", "max_tokens"
    while True:
        scores = warp.scores(toy.logits_after(tokens), state)
        token = target_token(scores, noise, len(tokens))
        pushed = stop.push(token)
        tokens.append(token)
        state = state.advance(token)
        text += pushed.text
        if pushed.finished:
            return tokens[len(asked.prompt) :], text, pushed.finished, pushed.detail


def told(result: Result) -> tuple[list[int], str, str, str]:
    """Return of a result what `plainly` returns."""
    return list(result.token_ids), result.text, result.finish_reason, result.finish_detail


def essence(result: Result) -> tuple[Any, ...]:
    """Return all of a result but its name and its times."""
    tokens = [(e.token, e.text, e.source, e.drafter, e.rank, e.logprob) for e in result.tokens]
    stats = result.stats
    counts = (stats.tokens, stats.passes, stats.drafted, stats.accepted, stats.by_drafter)
    return (*told(result), result.seed, result.exact, result.guarantee, tokens, counts)


def steps(scheduler: Scheduler) -> Iterator[list[Event]]:
    """Step until nothing is left to do."""
    while not scheduler.is_idle:
        yield scheduler.step()
