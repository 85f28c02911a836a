"""A model's own drafts, scored by the target (DistillSpec, Zhou et al. 2023).

A draft leaves captured text at some place, as drafts do, and is drawn from the model itself. The
target scores the text and all drafts that leave it as one tree. So the model learns where drafting
takes it, behind guesses of its own, and no text is made that no draft would see.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray

from forerun.config import Sampling
from forerun.errors import TrainingError
from forerun.native import fast_warp
from forerun.targets.protocol import Row, Target
from forerun.train.examples import Task, TextExamples, guess_rows
from forerun.train.kept_laws import kept_laws
from forerun.train.losses import Laws
from forerun.train.network import Batch, Line
from forerun.train.shards import Conversation
from forerun.train.student import Kept, Student

__all__ = ["OwnDrafts"]

_EVERY = 16  # tokens of an answer have one draft among them
_MOST_ROWS = 128  # of text, in a pass of the target


class _Leaving:
    """Where drafts leave one conversation.

    Attributes:
        conversation: Whose text it is.
        places: Ascending, int64 [drafts]: each draft follows the token there.
        seen: What rows of the text and, level after level, of the drafts attend to.
    """

    def __init__(
        self, conversation: Conversation, random: np.random.Generator, length: int
    ) -> None:
        rows = guess_rows(conversation)
        count = max((rows.stop - rows.start) // _EVERY, 1)
        there = np.arange(rows.start, rows.stop)
        self.conversation = conversation
        self.places = np.sort(random.choice(there, count, replace=False))
        self._text = len(conversation.tokens) - 1
        self.seen = _seen(self._text, self.places, length)

    def __len__(self) -> int:
        return len(self.places)

    @property
    def text(self) -> torch.Tensor:
        """What rows of the text attend to."""
        return self.seen[: self._text, : self._text]

    def level(self, level: int) -> torch.Tensor:
        """What the drafts' rows of one level attend to."""
        end = self._text + (level + 1) * len(self)
        return self.seen[end - len(self) : end, :end]


class OwnDrafts:
    """Makes batches of captured text and of drafts that leave it.

    Args:
        target: Scores them.
        length: Tokens of a draft.
        top: How many of the likeliest tokens are kept of a law.
        seed: Of places and draws.

    Raises:
        TrainingError: The target scores no trees.
    """

    def __init__(self, target: Target, *, length: int, top: int, seed: int) -> None:
        if not target.capabilities.trees:
            what = "This target scores chains only, and drafts that leave a text make a tree."
            raise TrainingError(what, "Set own_drafts to 0.")
        self._target, self._length = target, length
        self._top, self._seed = top, seed
        self._ids = np.arange(target.vocab_size)
        self._plain = fast_warp(
            Sampling(temperature=1.0), target.vocab_size, threads=target.capabilities.threads
        )

    def task(
        self,
        student: Student,
        head: torch.Tensor,
        conversations: Sequence[Conversation],
        step: int,
    ) -> Task:
        """Return a batch of conversations and drafts that leave them.

        Args:
            student: Who drafts.
            head: [vocabulary, width], of the type to multiply in.
            conversations: The text.
            step: Of the training: each has its own places and draws.
        """
        random = np.random.default_rng([self._seed, step])
        leaving = [_Leaving(each, random, self._length) for each in conversations]
        draws = torch.Generator().manual_seed(int(random.integers(1 << 62)))
        drafts = self._drafts(student, head, leaving, draws)
        laws = [self._laws(each, said) for each, said in zip(leaving, drafts, strict=True)]
        plain = self._examples(conversations).task(range(len(conversations)))
        return _joined_task(plain, leaving, drafts, laws)

    def _examples(self, conversations: Sequence[Conversation]) -> TextExamples:
        return TextExamples(conversations, self._ids)

    @torch.no_grad()
    def _drafts(
        self,
        student: Student,
        head: torch.Tensor,
        leaving: Sequence[_Leaving],
        draws: torch.Generator,
    ) -> list[NDArray[np.int64]]:
        """Let the student draft from all places at once, each at its text's temperature.

        Returns:
            Of each conversation, int64 [length, drafts].
        """
        conversations = [each.conversation for each in leaving]
        batch = self._examples(conversations).batch(conversations)
        rows = [line.rows for line in batch.lines]
        kept: Kept = [[] for _ in range(student.frozen.architecture.num_layers)]
        texts = [each.text for each in leaving]
        x = student.read(batch.tokens, batch.positions, rows, texts, kept)
        x = torch.cat([x[r][each.places] for r, each in zip(rows, leaving, strict=True)])
        heat = torch.cat([
            torch.full((len(each),), each.conversation.temperature) for each in leaving
        ])  # fmt: skip
        positions = torch.from_numpy(np.concatenate([each.places for each in leaving]))
        ends = list(accumulate(map(len, leaving)))
        spans = [slice(end - len(each), end) for end, each in zip(ends, leaving, strict=True)]
        said = [_drawn(x, head, heat, draws)]
        for level in range(self._length - 1):
            masks = [each.level(level) for each in leaving]
            x = student.read(said[-1], positions + level + 1, spans, masks, kept)
            said.append(_drawn(x, head, heat, draws))
        return [torch.stack(said)[:, span].numpy() for span in spans]

    def _laws(self, leaving: _Leaving, said: NDArray[np.int64]) -> Laws:
        """Let the target score a conversation and the drafts that leave it; level after level."""
        sequence, levels = self._target.open(), []
        end = int(leaving.places[-1]) + 1
        try:
            for begin in range(0, end, _MOST_ROWS):
                text = range(begin, min(begin + _MOST_ROWS, end))
                rows = _tree(sequence, text, leaving, said)
                wanted = range(len(text), len(rows))
                logits = self._target.score(rows, logits=wanted).logits
                levels.append(logits.reshape(self._length, -1, self._target.vocab_size).copy())
                self._target.commit(sequence, range(len(text)))
        finally:
            self._target.free(sequence)
        logits = np.concatenate(levels, axis=1).reshape(-1, self._target.vocab_size)
        threads = self._target.capabilities.threads
        likely, log_p, rest = kept_laws(logits, self._top, self._plain, threads)
        p = torch.from_numpy(log_p).float().exp()
        return Laws.of(torch.from_numpy(likely).long(), p, torch.from_numpy(rest))


def _tree(sequence: int, text: range, leaving: _Leaving, said: NDArray[np.int64]) -> list[Row]:
    """Return rows of text and, level after level, of the drafts that leave it there."""
    tokens = leaving.conversation.tokens
    rows = [Row(sequence, int(tokens[at]), at, at - text.start - 1) for at in text]
    here = [i for i, place in enumerate(leaving.places) if place in text]
    places = leaving.places[here].tolist()
    parents = [place - text.start for place in places]
    for level, drawn in enumerate(said[:, here].tolist()):
        first = len(rows)
        for token, place, parent in zip(drawn, places, parents, strict=True):
            rows.append(Row(sequence, token, place + level + 1, parent))
        parents = list(range(first, len(rows)))
    return rows


def _seen(text: int, places: NDArray[np.int64], length: int) -> torch.Tensor:
    """Return what rows of a text and, level after level, of the drafts that leave it attend to."""
    drafts = len(places)
    seen = torch.zeros(text + length * drafts, text + length * drafts, dtype=torch.bool)
    seen[:text, :text] = torch.ones(text, text, dtype=torch.bool).tril()
    before = torch.arange(text) <= torch.from_numpy(places)[:, None]
    own = torch.eye(drafts, dtype=torch.bool)
    for level in range(length):
        rows = slice(text + level * drafts, text + (level + 1) * drafts)
        seen[rows, :text] = before
        seen[rows, text : rows.stop] = own.repeat(1, level + 1)
    return seen


def _drawn(
    x: torch.Tensor, head: torch.Tensor, heat: torch.Tensor, draws: torch.Generator
) -> torch.Tensor:
    """Draw a token of each row's law at its temperature; at 0 the likeliest."""
    logits = (x.to(head.dtype) @ head.T).float()
    warm = heat > 0
    below = torch.softmax(logits / torch.where(warm, heat, 1.0)[:, None], -1).cumsum_(-1)
    # Of what the sum came to: rounded, it need not be one.
    there = torch.rand(len(x), 1, generator=draws) * below[:, -1:]
    drawn = torch.searchsorted(below, there, right=True)[:, 0].clamp(max=len(head) - 1)
    return torch.where(warm, drawn, logits.argmax(-1))


def _joined_task(
    plain: Task,
    leaving: Sequence[_Leaving],
    drafts: Sequence[NDArray[np.int64]],
    laws: Sequence[Laws],
) -> Task:
    """Return a batch that has each conversation's drafts behind its text, and their laws."""
    tokens, positions, all_laws = [], [], []
    lines: list[Line] = []
    begin = at = 0
    for line, length, each, said, drafted in zip(
        plain.batch.lines, plain.lengths, leaving, drafts, laws, strict=True
    ):
        levels = np.arange(1, len(said) + 1)[:, None]
        tokens += [plain.batch.tokens[line.rows], torch.from_numpy(said).flatten()]
        where = torch.from_numpy((each.places + levels).ravel())
        positions += [plain.batch.positions[line.rows], where]
        all_laws += [plain.laws.rows(at, at + length), drafted]
        lines.append(Line(slice(begin, begin + len(each.seen)), line.first))
        begin, at = begin + len(each.seen), at + length
    seen = [each.seen for each in leaving]
    batch = Batch(torch.cat(tokens), torch.cat(positions), torch.empty(begin, 0), lines, seen)
    joined = Laws(*(torch.cat(parts) for parts in zip(*all_laws, strict=True)))
    lengths = [n + said.size for n, said in zip(plain.lengths, drafts, strict=True)]
    return Task(batch, joined, lengths, plain.is_greedy)
