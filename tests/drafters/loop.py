"""A small round loop over toy targets, and chance put in the hands of an enumeration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from forerun.config import RuleName, Sampling
from forerun.core.coins import Address, AddressedCoins, Coins
from forerun.core.noise import Noise
from forerun.core.rules import Chance, make_rule
from forerun.core.scored import ScoredDraft
from forerun.core.tree import ROOT, Draft
from forerun.core.warp import Warp
from forerun.drafters.protocol import Drafter, DraftRequest, Outcome, Watcher
from forerun.drafters.store import Store
from forerun.drafters.table import DrafterKit, make_drafter
from forerun.targets.toy import ToyTarget
from forerun.targets.toy_head import ToyHead
from forerun.targets.toy_readout import ToyReadout

__all__ = [
    "Branching",
    "Text",
    "every_outcome",
    "fingerprint",
    "follow",
    "grow",
    "make",
    "make_for",
    "states",
    "write",
]

T = TypeVar("T")


class _Latest(ToyTarget):
    """Holds the texts that were asked for last, as an engine's target holds those that run."""

    def open(self, prompt: Sequence[int] = (), source: Sequence[int] | None = None) -> int:
        """Open a text, and free one that nobody needs any more."""
        name = super().open(prompt, source)
        if name > 64:
            self.free(name - 64)
        return name


@cache
def engines_target(vocab_size: int) -> ToyTarget:
    """Return a toy of order 2 for drafters that draft with the target itself."""
    return _Latest.random(vocab_size, 2, 98)


class Text:
    """One text being written, under one rule with one seed."""

    def __init__(
        self,
        sequence: int,
        prompt: Sequence[int],
        target: ToyTarget,
        *,
        rule: RuleName = "match",
        sampling: Sampling | None = None,
        budget: tuple[int, int] = (3, 1),
        chance: int | Coins = 7,
    ) -> None:
        self.sequence = sequence
        self.tokens = list(prompt)
        self.prompt_length = len(prompt)
        self.prediction = tuple(prompt)  # something to be right about, and wrong
        self.tenant = ""
        self.target = target
        self.rule = make_rule(rule)
        self.warp = Warp(sampling or Sampling(temperature=1.0), target.vocab_size)
        self.state = self.warp.start(prompt)
        self.length, self.width = budget
        self.noise = Noise(chance if isinstance(chance, int) else 0)
        self.coins = AddressedCoins(chance) if isinstance(chance, int) else chance
        self.round = 0
        self.drafts: list[Draft] = []

    @property
    def output(self) -> list[int]:
        """The tokens after the prompt."""
        return self.tokens[self.prompt_length :]

    def request(self) -> DraftRequest:
        """Return what a drafter is asked now."""
        noisy = self.rule.draws_from == "noise"
        held = engines_target(self.target.vocab_size).open(self.tokens[:-1])
        return DraftRequest(
            self.sequence,
            tuple(self.tokens),
            self.prompt_length,
            self.length,
            self.width,
            self.warp,
            self.state,
            self.round,
            noise=self.noise if noisy else None,
            coins=None if noisy else self.coins,
            target_sequence=held,
            tenant=self.tenant,
            prediction=self.prediction,
        )

    def take(self, draft: Draft, most: int) -> Outcome:
        """Verify the draft and write at most `most` tokens."""
        texts = [[draft.nodes[n].token for n in draft.path(i)] for i in range(ROOT, len(draft))]
        logits = np.array([self.target.logits_after(self.tokens + text) for text in texts])
        scored = ScoredDraft(draft, logits, self.warp, self.state, len(self.tokens))
        verdict = self.rule.verify(scored, Chance(self.noise, self.coins, self.round))
        tokens = [*(draft.nodes[n].token for n in verdict.accepted), verdict.token][:most]
        for token in tokens:
            self.tokens.append(token)
            self.state = self.state.advance(token)
        self.round += 1
        self.drafts.append(draft)
        accepted = verdict.accepted[: len(tokens)]
        before = self.tokens[: -len(tokens)]
        hidden = states(self.target, [before + text for text in texts])
        written = tuple(self.tokens)
        return Outcome(self.sequence, draft, accepted, written, len(tokens), logits, hidden)


def states(target: ToyTarget, texts: Sequence[Sequence[int]]) -> dict[int, NDArray[np.float32]]:
    """Return the hidden states at the last token of each text, by layer, of all layers."""
    return {
        layer: np.array([target.hidden_after(text, layer) for text in texts], np.float32)
        for layer in range(target.capabilities.layers + 1)
    }


def follow(drafter: Drafter, sequence: int, tokens: Sequence[int], target: ToyTarget) -> None:
    """Open a text, and show a watcher the states of all tokens but the last."""
    drafter.open(sequence, tokens)
    if isinstance(drafter, Watcher) and drafter.layers and len(tokens) > 1:
        texts = [tokens[: end + 1] for end in range(len(tokens) - 1)]
        drafter.see(sequence, 0, states(target, texts))


def grow(
    drafter: Drafter, sequence: int, known: int, tokens: Sequence[int], target: ToyTarget
) -> None:
    """Show a watcher a text that has grown from `known` tokens, a round for each."""
    if not (isinstance(drafter, Watcher) and drafter.layers):
        return
    for end in range(max(known, 1), len(tokens)):
        logits = target.logits_after(tokens[:end])[None]
        hidden = states(target, [tokens[:end]])
        drafter.observe([Outcome(sequence, Draft(), (), tokens[: end + 1], 1, logits, hidden)])


def write(drafter: Drafter | None, texts: Sequence[Text], count: int) -> None:
    """Write `count` tokens of each text, all texts in one batch; then the drafter lets go."""
    for text in texts:
        if drafter:
            follow(drafter, text.sequence, text.tokens, text.target)
    while running := [text for text in texts if len(text.output) < count]:
        drafts = [Draft()] * len(running)
        if drafter:
            drafts = drafter.draft([text.request() for text in running])
        pairs = zip(running, drafts, strict=True)
        outcomes = [text.take(draft, count - len(text.output)) for text, draft in pairs]
        if drafter:
            drafter.observe(outcomes)
    for text in texts:
        if drafter:
            drafter.free(text.sequence)


def make(
    spec: str,
    vocab_size: int,
    script: tuple[int, ...] | None = None,
    store: Store | None = None,
) -> Drafter:
    """Return a drafter whose draft model, or head, if it has one, is of a toy of order 1."""
    head = ToyHead(ToyTarget.random(vocab_size, 1, 99), range(1, vocab_size))  # it lacks a token
    return make_for(engines_target(vocab_size), head, spec, script, store)


def make_for(
    target: ToyTarget,
    head: ToyHead,
    spec: str,
    script: tuple[int, ...] | None = None,
    store: Store | None = None,
) -> Drafter:
    """Return a drafter for a target, and for a head of it; a draft model is a toy of order 1."""
    size = target.vocab_size
    readout = ToyReadout(target, range(1, size))
    kit = DrafterKit(
        size,
        lambda: ToyTarget.random(size, 1, 99),
        script,
        target=target,
        store=store,
        open_head=lambda: head,
        open_readout=lambda _: readout,
    )
    drafter = make_drafter(spec, kit)
    assert drafter is not None
    return drafter


def fingerprint(draft: Draft, vocab_size: int) -> list[object]:
    """Return all that a draft says, in comparable form."""
    return [
        (n.token, n.parent, n.proposal.dense(vocab_size).tolist(), n.drafter) for n in draft.nodes
    ]


class Branching:
    """Coins that take the way a script says, and the first possible one after it.

    Attributes:
        probability: Of the way taken so far.
        siblings: Scripts of the ways not taken, beyond the script.
    """

    def __init__(self, script: tuple[int, ...] = ()) -> None:
        self.probability = 1.0
        self.siblings: list[tuple[int, ...]] = []
        self.addresses: list[Address] = []
        self._script = script
        self._taken: tuple[int, ...] = ()

    def accept(self, address: Address, probability: float) -> bool:
        """Go one way, and note the other if it is possible."""
        yes = min(1.0, max(0.0, probability))
        return bool(self.draw(address, np.array([1.0 - yes, yes])))

    def draw(self, address: Address, weights: NDArray[np.float64]) -> int:
        """Go one way, and note the other possible ones; an address twice is a mistake."""
        assert address not in self.addresses, f"{address} is used twice"
        self.addresses.append(address)
        possible = np.flatnonzero(weights)
        choice = 0
        if len(possible) > 1:
            depth = len(self._taken)
            if depth < len(self._script):
                choice = self._script[depth]
            else:
                self.siblings += [(*self._taken, i) for i in range(1, len(possible))]
            self._taken = (*self._taken, choice)
        index = int(possible[choice])
        self.probability *= float(weights[index] / weights.sum())
        return index


def every_outcome(run: Callable[[Coins], T]) -> Iterator[tuple[float, T]]:
    """Yield each outcome of `run` with its probability, by running it once for each."""
    scripts: list[tuple[int, ...]] = [()]
    while scripts:
        coins = Branching(scripts.pop())
        result = run(coins)
        scripts += coins.siblings
        yield coins.probability, result
