"""The rules that keep or correct a draft: one line a rule, one file each.

Listed means tested: every rule here passes the laws of the audit.
"""

from __future__ import annotations

from collections.abc import Callable

from forerun.config import RuleName
from forerun.core.rules.block import Block
from forerun.core.rules.lenient import Lenient
from forerun.core.rules.match import Match
from forerun.core.rules.speculative import Speculative
from forerun.core.rules.tree import Tree
from forerun.core.rules.verdict import Chance, Rule, Verdict

__all__ = ["RULES", "Chance", "Rule", "Verdict", "make_rule"]

RULES: dict[RuleName, Callable[[], Rule]] = {
    "match": Match,
    "speculative": Speculative,
    "block": Block,
    "tree": Tree,
    "lenient": Lenient,
}


def make_rule(name: RuleName, lenience: float | None = None) -> Rule:
    """Return the rule of that name; `lenience` is for rule lenient only, 1 (exact) by default."""
    if name == "lenient" and lenience is not None:
        return Lenient(lenience)
    return RULES[name]()
