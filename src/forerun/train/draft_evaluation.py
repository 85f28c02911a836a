"""What a model's drafts are worth: by enumeration, where all guesses before were accepted.

Draft tokens that are accepted are text of the target's, so all of it follows from the laws of both
along captured text. The share of texts that a draft would have come along with to token x is the
product of min(1, q(x) / p(x)).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from forerun.targets.protocol import Target
from forerun.train.evaluation import Measured, logits_along
from forerun.train.examples import TextExamples, guess_rows
from forerun.train.shards import Conversation
from forerun.train.student import Student

__all__ = ["measure_drafts"]


@torch.no_grad()
def measure_drafts(
    students: Sequence[Student],
    target: Target,
    conversations: Sequence[Conversation],
    length: int,
) -> list[Measured]:
    """Measure drafts of several models on the same text, which the target scores once.

    Args:
        students: The models.
        target: Scores the text again; all of its law is compared.
        conversations: Held-out text. Acceptance is measured on that of temperature 1, agreement on
            greedy text.
        length: Tokens of a draft.
    """
    ids = np.arange(target.vocab_size)
    examples = TextExamples(conversations, ids)
    accepted: list[list[torch.Tensor]] = [[] for _ in students]
    agreed: list[list[torch.Tensor]] = [[] for _ in students]
    losses: list[list[torch.Tensor]] = [[] for _ in students]
    for place, each in enumerate(conversations):
        if each.temperature not in (0.0, 1.0):
            continue
        p = torch.softmax(logits_along(target, each), -1)
        rows = guess_rows(each)
        following = torch.from_numpy(each.tokens[rows.start + 1 : rows.stop + 1].astype(np.int64))
        task = examples.task([place])
        for i, student in enumerate(students):
            output = student.levels(task.batch, 1)[0]
            q = torch.softmax((output @ student.frozen.head.T), -1)
            losses[i].append(-(p * q.clamp(min=1e-30).log()).sum(-1))
            if each.temperature == 0:
                same = (q.argmax(-1) == following).double()
                agreed[i].append(_runs(same, same, length))
            else:
                came = torch.gather(q / p, 1, following[:, None])[:, 0].clamp(max=1)
                accepted[i].append(_runs(torch.minimum(p, q).sum(-1), came, length))
    return [
        Measured(_by_position(a), _by_position(g), [float(torch.cat(loss).mean())])
        for a, g, loss in zip(accepted, agreed, losses, strict=True)
    ]


def _runs(taken: torch.Tensor, came: torch.Tensor, length: int) -> torch.Tensor:
    """Return, for each draft that the text is long enough for, how sure it is to be taken so far.

    Args:
        taken: At each row, how sure its guess is to be taken.
        came: How sure a draft is to have come along with the text past it.
        length: Tokens of a draft.

    Returns:
        [drafts, length].
    """
    count = max(len(taken) - length + 1, 0)
    along = torch.ones(count, dtype=torch.double)
    columns = []
    for level in range(length):
        columns.append(along * taken[level : level + count])
        along = along * came[level : level + count]
    return torch.stack(columns, 1)


def _by_position(runs: Sequence[torch.Tensor]) -> list[float]:
    """Return how often a guess is taken where all before it were."""
    if not runs or not sum(map(len, runs)):
        return []
    means = torch.cat(list(runs)).mean(0)
    before = torch.cat([torch.ones(1, dtype=torch.double), means[:-1]])
    return [float(each) for each in means / before.clamp(min=1e-30)]
