"""Small worlds: a target and a proposal over few tokens, in every relation that matters."""

from __future__ import annotations

import string
from dataclasses import dataclass

import numpy as np

from forerun.core.noise import Noise
from forerun.targets.toy import ToyTarget

__all__ = ["RELATIONS", "SETTINGS", "Letters", "World", "make_world"]

_NEVER = np.float32(-1e30)  # a finite logit whose probability is exactly 0

RELATIONS = ("unrelated", "close", "equal", "far", "disjoint")
"""How the proposal stands to the target; "disjoint" shares no token with it."""

SETTINGS: dict[str, dict[str, object]] = {
    "plain": {"temperature": 1.0},
    "cool": {"temperature": 0.6},
    "greedy": {"temperature": 0.0},
    "top-k": {"temperature": 1.0, "top_k": 2},
    "top-p": {"temperature": 0.9, "top_p": 0.8},
    "min-p": {"temperature": 1.2, "min_p": 0.3},
    "penalties": {
        "temperature": 1.0,
        "repetition_penalty": 1.4,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.7,
        "top_p": 0.9,
    },
    "bias": {"temperature": 1.0, "logit_bias": {0: 1.5, 1: -0.7}, "banned_tokens": (2,)},
}
"""Sampling settings by name; several leave tokens of probability 0 in p, in q or in both."""


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """A target, what the proposals come from, and a prompt.

    Attributes:
        name: How the two are related, and how large they are.
        target: Whose law must be kept.
        drafter: Its law gives the proposals.
        prompt: At least one token.
        eos_ids: Tokens that end the text.
    """

    name: str
    target: ToyTarget
    drafter: ToyTarget
    prompt: tuple[int, ...] = (1, 0)
    eos_ids: tuple[int, ...] = ()

    @property
    def vocab_size(self) -> int:
        """Tokens of this world."""
        return int(self.target.vocab_size)


def make_world(
    relation: str, vocab_size: int, seed: int, *, order: int = 1, eos_ids: tuple[int, ...] = ()
) -> World:
    """Return a world whose tables follow from `seed`.

    Args:
        relation: One of RELATIONS.
        vocab_size: Tokens, 2 or more.
        seed: Of both tables.
        order: Tokens that the next one depends on.
        eos_ids: Tokens that end the text.
    """
    shape = (vocab_size,) * (order + 1)
    noise = Noise(seed, sample=7)
    p = np.reshape([noise.gumbel(i, vocab_size) for i in range(vocab_size**order)], shape)
    other = np.reshape(
        [noise.gumbel(1000 + i, vocab_size) for i in range(vocab_size**order)], shape
    )
    q = {
        "unrelated": other,
        "close": p + 0.3 * other,
        "equal": p,
        "far": 0.5 - 2.0 * p,
        "disjoint": other,
    }[relation].astype(np.float32)
    table = p.astype(np.float32)
    if relation == "disjoint":
        half = vocab_size // 2
        table[..., half:] = _NEVER
        q[..., :half] = _NEVER
    name = f"{relation}, {vocab_size} tokens"
    return World(name, ToyTarget(table), ToyTarget(q), eos_ids=eos_ids)


class Letters:
    """Decodes token i as the i-th letter of the alphabet."""

    def push(self, token: int) -> str:
        """Return the token's letter."""
        return string.ascii_lowercase[token % 26]

    def flush(self) -> str:
        """Return nothing: nothing is ever held back."""
        return ""
