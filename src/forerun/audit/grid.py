"""The cases whose laws are enumerated: the grid, a longer one, and a short one for mutants."""

from __future__ import annotations

from collections.abc import Iterator

from forerun.audit.laws import LawCase, RoundCase, TextCase
from forerun.audit.plans import PLANS, Plan, chain
from forerun.audit.worlds import RELATIONS, SETTINGS, make_world
from forerun.config import RuleName

__all__ = ["law_cases", "short_law_cases"]

_CHAIN_RULES: tuple[RuleName, ...] = ("speculative", "block", "tree")
_CHAINS = ((2, 1), (2, 2), (2, 3), (2, 4), (3, 1), (3, 2), (3, 3), (4, 1), (4, 2))  # vocab, length
_LONG_CHAINS = ((3, 4), (4, 3))
_SEED = 5


def law_cases(thorough: bool = False) -> Iterator[LawCase]:
    """Yield every case of the audit.

    Args:
        thorough: More worlds, longer chains, every setting with every relation.
    """
    for seed in range(_SEED, _SEED + (4 if thorough else 1)):
        yield from _chains(seed, thorough)
        yield from _lenient(seed)
        yield from _trees(seed, thorough)
        yield from _texts(seed, thorough)


def _chains(seed: int, thorough: bool) -> Iterator[LawCase]:
    for relation in RELATIONS:
        for vocab_size, length in _CHAINS + (_LONG_CHAINS if thorough else ()):
            world = make_world(relation, vocab_size, seed)
            for rule in _CHAIN_RULES:
                yield RoundCase(world, rule, chain(length))
        world = make_world(relation, 4, seed, order=2)
        for setting in SETTINGS:
            for rule in _CHAIN_RULES:
                yield RoundCase(world, rule, chain(2), setting, written=(3, 3))
                yield RoundCase(world, rule, chain(2, warped=False), setting)
        stopping = make_world(relation, 3, seed)
        for rule in _CHAIN_RULES:
            for most in (0.6, 0.9, 1.0):  # nats; some contexts of some worlds pass, some don't
                yield RoundCase(stopping, rule, chain(3, most_entropy=most))
            yield RoundCase(world, rule, chain(3, "likeliest"), "cool")


def _lenient(seed: int) -> Iterator[LawCase]:
    for relation in RELATIONS:
        for vocab_size, length in ((2, 1), (3, 1), (4, 1), (2, 3), (3, 2)):
            world = make_world(relation, vocab_size, seed)
            for lenience in (1.0, 0.9, 0.5, 0.1):
                yield RoundCase(world, "lenient", chain(length), "plain", lenience)
        world = make_world(relation, 4, seed)
        for lenience in (1.0, 0.5, 0.01):
            for setting in ("greedy", "top-p", "penalties"):
                yield RoundCase(world, "lenient", chain(2), setting, lenience)


def _trees(seed: int, thorough: bool) -> Iterator[LawCase]:
    for relation in RELATIONS:
        for vocab_size in (3, 4) if thorough else (3,):
            world = make_world(relation, vocab_size, seed)
            for plan in PLANS.values():
                for setting in SETTINGS if thorough else ("plain", "top-k", "penalties"):
                    yield RoundCase(world, "tree", plan, setting, written=(0,))
        world = make_world(relation, 4, seed)
        yield RoundCase(world, "tree", PLANS["3 without replacement"], "top-k")
        yield RoundCase(world, "tree", _unwarped(PLANS["2 by 1 without replacement"]), "top-p")


def _unwarped(plan: Plan) -> Plan:
    return Plan(f"{plan.name}, q unwarped", plan.slots, warped=False)


def _texts(seed: int, thorough: bool) -> Iterator[LawCase]:
    longest = 4 if thorough else 3
    for relation in RELATIONS:
        two, three = make_world(relation, 2, seed), make_world(relation, 3, seed)
        ended = make_world(relation, 3, seed, eos_ids=(2,))
        for rule in _CHAIN_RULES:
            for drafter in ("model", "bigram", "scripted", chain(2)):
                yield TextCase(two, rule, drafter, max_tokens=4)
                yield TextCase(three, rule, drafter, "penalties", max_tokens=longest)
            yield TextCase(ended, rule, "model", "top-p", max_tokens=longest, min_tokens=2)
            yield TextCase(two, rule, "model", "cool", max_tokens=4, draft_length=3)
        for drafter in ("model", PLANS["2 with replacement"], PLANS["1 by 2"], "lookup"):
            yield TextCase(two, "tree", drafter, max_tokens=3, draft_width=2)
            yield TextCase(ended, "tree", drafter, "penalties", max_tokens=3, draft_width=2)


def short_law_cases() -> Iterator[LawCase]:
    """Yield few cases, a fraction of a second, that every known mistake in a law shows in."""
    three = make_world("unrelated", 3, _SEED)
    for rule in _CHAIN_RULES:
        yield RoundCase(three, rule, chain(2))
        yield RoundCase(three, rule, chain(2), "penalties", written=(0,))
        yield RoundCase(make_world("disjoint", 4, _SEED), rule, chain(1))
    for lenience in (1.0, 0.5):
        yield RoundCase(three, "lenient", chain(2), "plain", lenience)
    for name in ("2 with replacement", "2 without replacement", "1 by 2", "likeliest 2 by 2"):
        yield RoundCase(three, "tree", PLANS[name])
    two = make_world("unrelated", 2, _SEED)
    for rule in _CHAIN_RULES:
        yield TextCase(two, rule, "model", max_tokens=4)
        yield TextCase(make_world("far", 3, _SEED, eos_ids=(2,)), rule, "model", min_tokens=2)
    yield TextCase(three, "tree", "model", draft_width=2)
