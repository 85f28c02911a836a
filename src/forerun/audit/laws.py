"""The laws of the rules that sample, exactly: every outcome, through the production functions.

Two kinds of case. A *round* hands one draft to a rule and extends what it writes by plain decoding
to a fixed length. A *text* runs the production loop, several rounds in a row, with drafts drawn at
addresses of their own. Either way the joint law of the tokens must be the target's Markov law, as
`forerun.audit.twin` computes it; rule lenient must miss it by what theory says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from forerun.audit.closed_forms import expected_length, lenient_text_law, proposal_law, target_law
from forerun.audit.coins import ExactCoins, enumerate_outcomes
from forerun.audit.loop import write
from forerun.audit.plans import Plan, PlannedDrafter
from forerun.audit.twin import TextLaw, text_law
from forerun.audit.worlds import SETTINGS, Letters, World
from forerun.config import Generation, RuleName
from forerun.core.noise import Noise
from forerun.core.rules import Chance, make_rule
from forerun.core.scored import ScoredDraft
from forerun.core.tree import ROOT, Draft
from forerun.core.warp import State, Warp
from forerun.drafters.protocol import Drafter, DraftRequest
from forerun.drafters.table import DrafterKit, make_drafter
from forerun.engine.request import Ask, Request
from forerun.theory.lenience import lenient_distance

__all__ = ["TOLERANCE", "Finding", "LawCase", "RoundCase", "TextCase", "score"]

TOLERANCE = 1e-12
"""Most that a probability may differ from its true value; rounding alone stays under 1e-15."""

_ROUND = 3  # any but the first: an address that drops its round must show


@dataclass(frozen=True, slots=True)
class Finding:
    """What one case showed.

    Attributes:
        name: The case.
        error: The largest difference between any text's probability and what it must be.
        outcomes: How many outcomes were walked.
        problem: What is wrong; empty if nothing is.
    """

    name: str
    error: float
    outcomes: int
    problem: str = ""


@dataclass(frozen=True)
class RoundCase:
    """One round of a rule over one plan.

    Attributes:
        world: Target and proposal.
        rule: Which rule.
        plan: The draft.
        setting: One of SETTINGS.
        lenience: For rule lenient.
        written: Output before the round.
    """

    world: World
    rule: RuleName
    plan: Plan
    setting: str = "plain"
    lenience: float | None = None
    written: tuple[int, ...] = ()

    @cached_property
    def name(self) -> str:
        """The case in words."""
        lenient = "" if self.lenience is None else f" {self.lenience}"
        return f"{self.rule}{lenient}, {self.plan.name}, {self.world.name}, {self.setting}"

    @cached_property
    def options(self) -> Generation:
        """The request's options: texts end where the longest draft and its bonus end."""
        return Generation.make(
            **SETTINGS[self.setting],
            rule=self.rule,
            lenience=self.lenience,
            max_tokens=len(self.written) + self.plan.length + 1,
        )

    @cached_property
    def start(self) -> tuple[Warp, State]:
        """The warp, and its state before the round."""
        warp = Warp(self.options, self.world.vocab_size)
        state = warp.start(self.world.prompt)
        for token in self.written:
            state = state.advance(token)
        return warp, state

    def check(self) -> Finding:
        """Walk all outcomes and compare laws, and the expected length."""
        joint: TextLaw = {}
        rests: dict[tuple[int, ...], TextLaw] = {}
        outcomes, accepted = 0, 0.0
        for (tokens, kept), probability in enumerate_outcomes(self.run):
            outcomes += 1
            accepted += kept * probability
            if tokens not in rests:
                rests[tokens] = _plain(self.world, self.options, tokens)
            for text, mass in rests[tokens].items():
                joint[text] = joint.get(text, 0.0) + mass * probability
        plain = _plain(self.world, self.options, self.written)
        if self.rule == "lenient":
            wanted = lenient_text_law(self, self.written, plain_law=_plain)
            problem = self._lenient_problem(_half_distance(joint, plain))
        else:
            wanted, problem = plain, self._length_problem(accepted)
        error = _error(joint, wanted)
        return Finding(self.name, error, outcomes, _problem(error) or problem)

    def run(self, coins: ExactCoins) -> tuple[tuple[int, ...], int]:
        """Return the output after one round, and how many draft tokens stayed in it."""
        tokens = (*self.world.prompt, *self.written)
        warp, state = self.start
        request = DraftRequest(
            sequence=0,
            tokens=tokens,
            prompt_length=len(self.world.prompt),
            length=self.plan.length,
            width=len(self.plan.slots),
            warp=warp,
            state=state,
            round=_ROUND,
            coins=coins,
        )
        draft = PlannedDrafter(self.plan, self.world.drafter).draft([request])[0]
        logits = score(self.world, tokens, draft)
        scored = ScoredDraft(draft, logits, warp, state, len(tokens))
        rule = make_rule(self.rule, self.lenience)
        verdict = rule.verify(scored, Chance(Noise(0), coins, _ROUND))
        kept = [draft.nodes[node].token for node in verdict.accepted]
        return (*self.written, *kept, verdict.token), len(kept)

    def _lenient_problem(self, moved: float) -> str:
        """Lenience 1 must not move the law; below, it must, by what theory says for one token."""
        lenience = 1.0 if self.lenience is None else self.lenience
        if lenience == 1.0:
            return f"lenience 1 moves the law by {moved!r}" if moved > TOLERANCE else ""
        if self.plan.length > 1 or self.options.temperature == 0:
            return ""
        laws = target_law(self, self.written), proposal_law(self, self.written)
        told = lenient_distance(*laws, lenience)
        wrong = abs(moved - told) > TOLERANCE
        return f"the law moves by {moved!r}, theory says {told!r}" if wrong else ""

    def _length_problem(self, accepted: float) -> str:
        """A chain's expected accepted length must be theory's, and block's not below the other."""
        slots = enumerate(self.plan.slots)
        if math.isfinite(self.plan.most_entropy) or any(
            slot != type(slot)(i - 1, "drawn") for i, slot in slots
        ):
            return ""
        alone, jointly = (expected_length(self, self.written, joint) for joint in (False, True))
        told = alone if self.rule == "speculative" else jointly
        if abs(accepted - told) > TOLERANCE:
            return f"{accepted!r} tokens are accepted on average, theory says {told!r}"
        if jointly < alone - TOLERANCE:
            return f"block accepts {jointly!r} on average, less than {alone!r}"
        return ""


@dataclass(frozen=True)
class TextCase:
    """Whole texts through the production loop, round after round.

    Attributes:
        world: Target and proposal.
        rule: Which rule.
        drafter: A production drafter's name, or a plan.
        setting: One of SETTINGS.
        max_tokens: Where texts end at the latest.
        min_tokens: Before which no end token may come.
        draft_length: Most tokens of a draft.
        draft_width: Most children of a node.
    """

    world: World
    rule: RuleName
    drafter: str | Plan
    setting: str = "plain"
    max_tokens: int = 3
    min_tokens: int = 0
    draft_length: int = 2
    draft_width: int = 1

    @cached_property
    def name(self) -> str:
        """The case in words."""
        drafter = self.drafter if isinstance(self.drafter, str) else self.drafter.name
        words = f"{self.rule}, texts of {self.max_tokens}, {drafter} {self.draft_length}"
        return f"{words} by {self.draft_width}, {self.world.name}, {self.setting}"

    @cached_property
    def options(self) -> Generation:
        """The request's options."""
        return Generation.make(
            **SETTINGS[self.setting],
            rule=self.rule,
            max_tokens=self.max_tokens,
            min_tokens=self.min_tokens,
            draft_length=self.draft_length,
            draft_width=self.draft_width,
        )

    def check(self) -> Finding:
        """Walk all texts and compare laws."""
        joint: TextLaw = {}
        outcomes = 0
        for text, probability in enumerate_outcomes(self.run):
            outcomes += 1
            joint[text] = joint.get(text, 0.0) + probability
        error = _error(joint, _plain(self.world, self.options, ()))
        return Finding(self.name, error, outcomes, _problem(error))

    def run(self, coins: ExactCoins) -> tuple[int, ...]:
        """Return the text that the loop writes with these coins."""
        drafter = self._drafter()  # a new one: what it learnt must not leak between outcomes
        ask = Ask(self.world.prompt, self.options, 0, self.world.eos_ids, Letters())

        def prepare(request: Request) -> None:
            request.coins = coins

        [request] = write(self.world.target, [ask], lambda _: drafter, prepare)
        return tuple(request.output)

    def _drafter(self) -> Drafter | None:
        if not isinstance(self.drafter, str):
            return PlannedDrafter(self.drafter, self.world.drafter)
        kit = DrafterKit(self.world.vocab_size, lambda: self.world.drafter, script=(0, 1, 0, 1))
        return make_drafter(self.drafter, kit)


LawCase = RoundCase | TextCase


def _plain(world: World, options: Generation, output: tuple[int, ...]) -> TextLaw:
    """Return the law of the texts that plain decoding writes after `output`."""

    def logits_after(tokens: Sequence[int]) -> list[float]:
        return [float(logit) for logit in world.target.logits_after(tokens)]

    return text_law(logits_after, world.prompt, options, world.eos_ids, output)


def score(world: World, tokens: Sequence[int], draft: Draft) -> NDArray[np.float32]:
    """Return the target's logits at the root and at every node, float32 [1 + nodes, vocab]."""
    texts = {ROOT: tuple(tokens)}
    for index, node in enumerate(draft.nodes):
        texts[index] = (*texts[node.parent], node.token)
    return np.array([world.target.logits_after(text) for text in texts.values()], np.float32)


def _error(joint: TextLaw, wanted: TextLaw) -> float:
    """Return the largest difference of a text's probability, and of their sum from 1."""
    texts = {*joint, *wanted}
    largest = max(abs(joint.get(x, 0.0) - wanted.get(x, 0.0)) for x in texts)
    return max(largest, abs(math.fsum(joint.values()) - 1.0))


def _half_distance(one: TextLaw, other: TextLaw) -> float:
    """Return the total variation distance of two laws."""
    texts = {*one, *other}
    return math.fsum(abs(one.get(x, 0.0) - other.get(x, 0.0)) for x in texts) / 2


def _problem(error: float) -> str:
    return "" if error <= TOLERANCE else f"a text's probability is off by {error:.3g}"
