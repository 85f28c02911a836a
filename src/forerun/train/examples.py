"""Captured conversations as batches: whole ones together, in an order that the seed shuffles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from forerun.train.losses import Laws
from forerun.train.network import Batch, Line
from forerun.train.shards import Conversation

__all__ = ["Examples", "Task", "TextExamples", "batches", "guess_rows", "joined", "split"]

_LEAST = 8  # rows that guess, or a conversation teaches nothing
_REST_INSIDE = 0.5  # of what p leaves unnamed; rare tokens are rarely in the draft's vocabulary


class Task(NamedTuple):
    """A batch, and the target's laws that its levels are to guess.

    Attributes:
        batch: What a head reads.
        laws: At the rows that guess.
        lengths: Of each conversation, how many they are.
        is_greedy: Of each conversation, whether the target wrote it at temperature 0.
    """

    batch: Batch
    laws: Laws
    lengths: list[int]
    is_greedy: list[bool]

    def level(self, level: int) -> Laws:
        """Return the laws of a level's rows: all but each conversation's first ones."""
        rows = torch.arange(len(self.laws.rest))
        rows = torch.cat([part[level:] for part in torch.split(rows, self.lengths)])
        return Laws(*(part[rows] for part in self.laws))


def split(
    conversations: Sequence[Conversation], every: int
) -> tuple[list[Conversation], list[Conversation]]:
    """Return those to learn from, and those held out: one of `every`, by its number."""
    fit = [each for each in conversations if len(each.tokens) - max(each.answer, 1) > _LEAST]
    learned = [each for each in fit if each.number % every]
    return learned, [each for each in fit if not each.number % every]


def batches(
    conversations: Sequence[Conversation], rows: int, seed: int, epoch: int
) -> list[list[int]]:
    """Return which conversations make up each batch of an epoch.

    Args:
        conversations: All of them.
        rows: About how many tokens a batch has.
        seed: Of the order.
        epoch: Each has an order of its own.
    """
    order = np.random.default_rng([seed, epoch]).permutation(len(conversations))
    plan: list[list[int]] = [[]]
    held = 0
    for place in order.tolist():
        length = len(conversations[place].tokens)
        if plan[-1] and held + length > rows:
            plan.append([])
            held = 0
        plan[-1].append(place)
        held += length
    return plan


class Examples:
    """Conversations as batches.

    Args:
        conversations: Some.
        ids: Of each of the target's tokens, its id in the draft's vocabulary, or -1.
    """

    rest_inside = _REST_INSIDE

    def __init__(self, conversations: Sequence[Conversation], ids: NDArray[np.int64]) -> None:
        self._conversations, self.ids = conversations, torch.from_numpy(ids)

    def task(self, places: Sequence[int]) -> Task:
        """Return the batch of some conversations."""
        chosen = [self._conversations[place] for place in places]
        batch = self.batch(chosen)
        guesses = [guess_rows(each) for each in chosen]
        pairs = list(zip(chosen, guesses, strict=True))
        likely = joined([each.likely[rows] for each, rows in pairs])
        log_p = joined([each.log_p[rows] for each, rows in pairs]).float()
        rest = joined([each.rest[rows] for each, rows in pairs]) * self.rest_inside
        return Task(
            batch,
            Laws.of(self.ids[likely.long()], log_p.exp(), rest),
            [rows.stop - rows.start for rows in guesses],
            [each.temperature == 0 for each in chosen],
        )

    def batch(self, chosen: Sequence[Conversation]) -> Batch:
        """Return the rows of some conversations, each with the features of the position before."""
        lines, begin = [], 0
        for each in chosen:
            end = begin + len(each.tokens) - 2
            lines.append(Line(slice(begin, end), max(each.answer - 2, 0)))
            begin = end
        return Batch(
            joined([each.tokens[1:-1] for each in chosen]).long(),
            joined([np.arange(1, len(each.tokens) - 1) for each in chosen]),
            joined([each.features[: len(each.tokens) - 2] for each in chosen]),
            lines,
        )


class TextExamples(Examples):
    """Conversations as batches for whoever reads their tokens, from the first on, and no features.

    Its vocabulary is the target's: nothing that p leaves unnamed is outside of it.
    """

    rest_inside = 1.0

    def batch(self, chosen: Sequence[Conversation]) -> Batch:
        """Return the rows of some conversations."""
        lines, begin = [], 0
        for each in chosen:
            end = begin + len(each.tokens) - 1
            lines.append(Line(slice(begin, end), guess_rows(each).start))
            begin = end
        return Batch(
            joined([each.tokens[:-1] for each in chosen]).long(),
            joined([np.arange(len(each.tokens) - 1) for each in chosen]),
            torch.empty(begin, 0),
            lines,
        )


def guess_rows(conversation: Conversation) -> slice:
    """Return the places whose next token is a guess at the answer: the first is never guessed."""
    return slice(max(conversation.answer - 1, 1), len(conversation.tokens) - 1)


def joined(parts: Sequence[NDArray[np.generic]]) -> torch.Tensor:
    """Return arrays one behind the other, as a tensor."""
    return torch.from_numpy(np.concatenate(parts))
