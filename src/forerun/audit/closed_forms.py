"""Closed forms for whole rounds, from the laws of the slow twin: what the enumeration must meet."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from forerun.audit.plans import Plan
from forerun.audit.twin import TextLaw, law_after
from forerun.audit.worlds import World
from forerun.config import Generation

__all__ = ["ChainCase", "expected_length", "lenient_text_law", "proposal_law", "target_law"]

Text = tuple[int, ...]


class ChainCase(Protocol):
    """A world, a chain of drawn tokens, and the options of the request."""

    @property
    def world(self) -> World:
        """Target and proposal."""
        ...

    @property
    def plan(self) -> Plan:
        """The chain."""
        ...

    @property
    def options(self) -> Generation:
        """The request's options."""
        ...

    @property
    def written(self) -> Text:
        """Output before the round."""
        ...


def target_law(case: ChainCase, output: Text) -> list[float]:
    """Return p after `output`."""
    logits = case.world.target.logits_after((*case.world.prompt, *output))
    return law_after(list(map(float, logits)), case.world.prompt, output, case.options)


def proposal_law(case: ChainCase, output: Text) -> list[float]:
    """Return q after `output`."""
    logits = case.world.drafter.logits_after((*case.world.prompt, *output))
    options = case.options if case.plan.warped else Generation.make(temperature=1)
    return law_after(list(map(float, logits)), case.world.prompt, output, options)


def expected_length(case: ChainCase, output: Text, jointly: bool, reach: float = 1.0) -> float:
    """Return the expected accepted length after `output`: the sum of E[a_i] over the chain.

    Args:
        case: The chain.
        output: Output and draft so far.
        jointly: Whether the ratios multiply before they are capped (block verification, Sun et
            al., 2025: P(at least i stay | X) = a_i), or each is capped alone (Leviathan et al.).
        reach: a_i so far.
    """
    if len(output) == len(case.written) + case.plan.length:
        return 0.0
    total = 0.0
    laws = zip(target_law(case, output), proposal_law(case, output), strict=True)
    for token, (p, q) in enumerate(laws):
        if q > 0.0:
            kept = min(1.0, reach * p / q) if jointly else reach * min(1.0, p / q)
            total += q * (kept + expected_length(case, (*output, token), jointly, kept))
    return total


def lenient_text_law(
    case: ChainCase, output: Text, plain_law: Callable[[World, Generation, Text], TextLaw]
) -> TextLaw:
    """Return the law of the texts that one lenient round and plain decoding after it write.

    At each place x is drafted and kept with min(q, p / l); what is rejected goes to
    norm(max(0, p - q)) (Leviathan et al., 2023, section A.5, with Algorithm 1's own residual).

    Args:
        case: The chain.
        output: Output and draft so far.
        plain_law: The law of plain decoding after an output.
    """
    if len(output) == len(case.written) + case.plan.length:
        return plain_law(case.world, case.options, output)
    p, q = target_law(case, output), proposal_law(case, output)
    kept = _kept(case, output, p, q)
    rejected = math.fsum(b - k for b, k in zip(q, kept, strict=True))
    left = [max(0.0, a - b) for a, b in zip(p, q, strict=True)]
    total = math.fsum(left)
    residual = [mass / total for mass in left] if total > 0.0 else p
    texts: TextLaw = {}
    for token in range(len(p)):
        longer = (*output, token)
        if kept[token] > 0.0:
            _mix(texts, kept[token], lenient_text_law(case, longer, plain_law))
        if rejected * residual[token] > 0.0:
            after = plain_law(case.world, case.options, longer)
            _mix(texts, rejected * residual[token], after)
    return texts


def _mix(texts: TextLaw, mass: float, law: TextLaw) -> None:
    """Add a law, weighed by `mass`, to another one."""
    for text, probability in law.items():
        texts[text] = texts.get(text, 0.0) + mass * probability


def _kept(case: ChainCase, output: Text, p: list[float], q: list[float]) -> list[float]:
    """Return the probability that each token is drafted and kept."""
    lenience = 1.0 if case.options.lenience is None else case.options.lenience
    if case.options.temperature > 0:
        return [min(b, a / lenience) for a, b in zip(p, q, strict=True)]
    # At temperature 0 likely enough tokens stay: compared before the argmax, without truncation.
    options = case.options.replace(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
    logits = case.world.target.logits_after((*case.world.prompt, *output))
    likely = law_after(list(map(float, logits)), case.world.prompt, output, options)
    return [b if a >= lenience * max(likely) else 0.0 for a, b in zip(likely, q, strict=True)]
