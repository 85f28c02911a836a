"""What a head is worth on text it has not learned from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import with_config

from forerun.targets.protocol import Row, Target
from forerun.train.examples import Examples, Task
from forerun.train.folder import AS_WRITTEN
from forerun.train.losses import learn
from forerun.train.network import LevelNetwork
from forerun.train.shards import Conversation
from forerun.train.vocabulary import ids_of

__all__ = ["Look", "Measured", "logits_along", "measure", "measure_exactly"]

_MOST_ROWS = 256


@dataclass(frozen=True, slots=True)
class Measured:
    """Acceptance by position of the draft: the first guess, the second, and so on.

    Attributes:
        alpha: Mean of the sum of min(p, q) at temperature 1, on text of temperature 1, where all
            before is accepted; what p has outside of what is compared counts as lost.
        agreement: How often the likeliest tokens are the same, on greedy text.
        loss: Mean cross-entropy.
    """

    alpha: list[float]
    agreement: list[float]
    loss: list[float]

    @property
    def tokens_per_pass(self) -> float:
        """What a chain of so many guesses gives at temperature 1, the bonus token included."""
        products: list[float] = list(accumulate(self.alpha, mul))
        return 1 + sum(products)

    def text(self) -> str:
        """Return it in words."""
        alpha = " ".join(f"{each:.3f}" for each in self.alpha)
        agreement = " ".join(f"{each:.3f}" for each in self.agreement)
        return f"alpha {alpha}, greedy {agreement}, {self.tokens_per_pass:.2f} tokens per pass"


@with_config(AS_WRITTEN)
@dataclass(frozen=True, slots=True)
class Look:
    """A look at held-out text in the course of a training.

    Attributes:
        step: After which it was.
        learned: Tokens learned from until then.
        taught: The loss of that step.
        alpha: As in `Measured`.
        agreement: Likewise.
        loss: Likewise.
    """

    step: int
    learned: int
    taught: float
    alpha: list[float]
    agreement: list[float]
    loss: list[float]


@torch.no_grad()
def measure(network: LevelNetwork, task: Task, levels: int, bf16: bool) -> Measured:
    """Measure on a batch, by the tokens that its laws name: a lower bound of alpha.

    Args:
        network: What guesses.
        task: Held-out text.
        levels: Positions of the draft.
        bf16: Multiply in bfloat16.
    """
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        outputs = network.levels(task.batch, levels)
    head = network.frozen.head.bfloat16() if bf16 else network.frozen.head
    alphas, agreements, losses = [], [], []
    for level, output in enumerate(outputs):
        laws = task.level(level)
        greedy = torch.cat([
            torch.full((length - level,), is_greedy)
            for length, is_greedy in zip(task.lengths, task.is_greedy, strict=True)
        ])  # fmt: skip
        x = output.to(head.dtype)
        learned = learn(x, head, laws, "ce")
        best = torch.cat([(part @ head.T).argmax(-1) for part in torch.split(x, _MOST_ROWS)])
        alphas.append(_mean(learned.alpha[~greedy]))
        agreements.append(_mean((best == laws.ids[:, 0])[greedy].float()))
        losses.append(_mean(learned.loss))
    return Measured(alphas, agreements, losses)


def measure_exactly(
    network: LevelNetwork,
    target: Target,
    conversations: Sequence[Conversation],
    tokens: NDArray[np.int64],
    levels: int,
) -> Measured:
    """Measure by enumeration: the target scores the text again, and all of p is compared."""
    ids = ids_of(tokens, target.vocab_size)
    examples = Examples(conversations, ids)
    kept = torch.from_numpy(tokens)
    sums: list[list[list[torch.Tensor]]] = [[[], [], []] for _ in range(levels)]
    for place, each in enumerate(conversations):
        p = torch.softmax(logits_along(target, each).double(), -1)[:, kept]
        task = examples.task([place])
        with torch.no_grad():
            outputs = network.levels(task.batch, levels)
        for level, output in enumerate(outputs):
            q = torch.softmax((output @ network.frozen.head.T).double(), -1)
            here = p[level:]
            alpha, agreement, loss = sums[level]
            loss.append(-(here * q.clamp(min=1e-30).log()).sum(-1))
            if each.temperature == 0:
                agreement.append((kept[q.argmax(-1)] == _best(each, level)).double())
            else:
                alpha.append(torch.minimum(here, q).sum(-1))
    means = [[_mean(torch.cat(part)) if part else 0.0 for part in level] for level in sums]
    return Measured(*([level[i] for level in means] for i in range(3)))


def _best(conversation: Conversation, level: int) -> torch.Tensor:
    first = max(conversation.answer - 1, 1) + level
    return torch.from_numpy(conversation.likely[first:-1, 0].astype(np.int64))


def logits_along(target: Target, conversation: Conversation) -> torch.Tensor:
    """Return the target's logits after each token that a guess follows, float32."""
    first, end = max(conversation.answer - 1, 1), len(conversation.tokens) - 1
    sequence = target.open(conversation.tokens[:first].tolist())
    parts = []
    try:
        for begin in range(first, end, _MOST_ROWS):
            places = range(begin, min(begin + _MOST_ROWS, end))
            rows = [
                Row(sequence, int(conversation.tokens[at]), at, i - 1)
                for i, at in enumerate(places)
            ]
            parts.append(torch.from_numpy(target.score(rows).logits.copy()))
            target.commit(sequence, range(len(rows)))
    finally:
        target.free(sequence)
    return torch.cat(parts)


def _mean(values: torch.Tensor) -> float:
    return float(values.mean()) if len(values) else 0.0
