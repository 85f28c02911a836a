"""The race itself: prompt by prompt, all sides write the same text in turns.

The order of the sides is shuffled for each text and repeat, by its address. Each turn of a prompt
is a text of its own, before which every side but a warm one forgets; its prompt holds the earlier
turns with the answers of the first of our sides, so that all sides read the same.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import NamedTuple

from forerun.api import LanguageModel
from forerun.bench.end import NEVER, End
from forerun.bench.prompts import Prompt
from forerun.bench.race.pace import Pace
from forerun.bench.race.protocol import Job, Side, Written
from forerun.bench.race.samples import Sample
from forerun.errors import ForerunError

__all__ = ["Difference", "LeftOut", "Plan", "Race", "conversation", "error_text", "reference_of"]
__all__ += ["seed_of"]

_WARM_TOKENS = 16
_WARM_PROMPT = 128  # tokens; of a prompt without an end no side is to read more before the race
_SETTLE = 0.005  # seconds, in which another engine's threads that wait awake go to sleep


class Plan(NamedTuple):
    """What is written.

    Attributes:
        max_tokens: At most so many tokens a text.
        temperature: 0 takes the likeliest token.
        seed: Each prompt's seed and each order of sides derives from it.
        repeats: How often.
        turns: At most so many turns of a prompt; None is all.
    """

    max_tokens: int
    temperature: float
    seed: int
    repeats: int
    turns: int | None = None


class Difference(NamedTuple):
    """A text that one of our sides wrote otherwise than the first of them.

    Attributes:
        side: Which side.
        question_id: The prompt.
        turn: From 0.
        repeat: From 0.
        place: The first token that differs, from 0.
    """

    side: str
    question_id: str
    turn: int
    repeat: int
    place: int


class LeftOut(NamedTuple):
    """A text that nobody was asked for: its prompt leaves no room in the model's context.

    Attributes:
        question_id: The prompt.
        turn: From 0.
        tokens: How long it is.
    """

    question_id: str
    turn: int
    tokens: int


class Race:
    """A race under way, and what came of it.

    Args:
        lm: Makes prompts of messages; its context is the limit.
        sides: Who writes; at least one is ours.
        plan: What.
        hear: Told each sample as it comes.
        end: Once it has come, no more texts are written, and one under way is given up.

    Attributes:
        samples: In the order taken.
        errors: By side, why it was given up.
        differences: Where our sides did not write the same.
        left_out: What had no room.
    """

    def __init__(
        self,
        lm: LanguageModel,
        sides: Sequence[Side],
        plan: Plan,
        hear: Callable[[Sample], None] = lambda sample: None,
        end: End = NEVER,
    ) -> None:
        self._lm, self._sides, self._plan = lm, sides, plan
        self._hear, self._end = hear, end
        self._room = lm.target.context_length - plan.max_tokens
        self._pace = Pace(plan.max_tokens)
        self._texts: dict[tuple[str, int], tuple[int, ...]] = {}
        self.reference = reference_of(sides).name
        self.samples: list[Sample] = []
        self.errors: dict[str, str] = {}
        self.differences: list[Difference] = []
        self.left_out: list[LeftOut] = []

    def run(
        self,
        prompts: Sequence[Prompt],
        *,
        at_repeat: Callable[[], None] = lambda: None,
        progress: Callable[[str, float], None] = lambda part, share: None,
    ) -> None:
        """Let all sides write everything; a peer that fails is given up, and the others go on.

        Args:
            prompts: In their order.
            at_repeat: Called before each repeat.
            progress: Told what is written, and the share of prompts that is done.
        """
        turns = sum(len(prompt.turns[: self._plan.turns]) for prompt in prompts)
        whole = turns * self._plan.repeats * len(self._sides)
        self._warm_up(prompts[0], progress)
        self._pace.start(whole)
        for repeat in range(self._plan.repeats):
            at_repeat()
            for prompt in prompts:
                if self._end.came():
                    return
                what = f"{prompt.task} {prompt.question_id}, repeat {repeat + 1}"
                progress(f"{self._pace.told()}, {what}", self._pace.share)
                self._prompt(prompt, repeat)
                self._pace.done += len(prompt.turns[: self._plan.turns]) * len(self._sides)

    def _warm_up(self, prompt: Prompt, progress: Callable[[str, float], None]) -> None:
        """Let each side write a few tokens, which are not kept, but tell how long all will take."""
        tokens = self._tokens([prompt.turns[0]], [])[: max(1, min(self._room, _WARM_PROMPT))]
        job = Job(tokens, min(_WARM_TOKENS, self._plan.max_tokens), 0.0, 0)
        for side in self._sides:
            if not self._end.came():
                progress(f"{side.name} warms up", 0.0)
                written = self._write(side, job)
                if written is not None:
                    self._pace.learn(written)

    def _prompt(self, prompt: Prompt, repeat: int) -> None:
        """Let all sides write one prompt's turns."""
        said: list[str] = []
        answers: list[str] = []
        for turn, text in enumerate(prompt.turns[: self._plan.turns]):
            said.append(text)
            tokens = self._tokens(said, answers)
            if len(tokens) > self._room:
                if repeat == 0:
                    self.left_out.append(LeftOut(prompt.question_id, turn, len(tokens)))
                return
            job = Job(
                tokens,
                self._plan.max_tokens,
                self._plan.temperature,
                seed_of(self._plan.seed, prompt.question_id, turn),
                prompt.prediction if turn == 0 else None,
            )
            self._turn(prompt, turn, repeat, job)
            answer = self._texts.get((prompt.question_id, turn))
            if answer is None:  # the race was over before our side's turn
                return
            answers.append(self._lm.model.tokenizer.decode(answer))

    def _turn(self, prompt: Prompt, turn: int, repeat: int, job: Job) -> None:
        """Let each side write one text, in an order of its own; then compare those of ours."""
        order = list(self._sides)
        random.Random(f"{self._plan.seed} {repeat} {turn} {prompt.question_id}").shuffle(order)
        ours: dict[str, tuple[int, ...]] = {}
        for place, side in enumerate(order):
            if self._end.came():
                break
            written = self._write(side, job)
            if written is None:
                continue
            sample = Sample(
                side.name, prompt.question_id, prompt.task, turn, repeat, place, written
            )
            self.samples.append(sample)
            self._hear(sample)
            if side.is_ours:
                ours[side.name] = written.token_ids
        if self.reference in ours:
            self._texts.setdefault((prompt.question_id, turn), ours[self.reference])
        self._compare(prompt.question_id, turn, repeat, ours)

    def _compare(
        self, question_id: str, turn: int, repeat: int, ours: dict[str, tuple[int, ...]]
    ) -> None:
        expected = self._texts.get((question_id, turn))
        for side, tokens in ours.items():
            if expected is not None and tokens != expected:
                pairs = enumerate(zip_longest(tokens, expected))
                place = next(index for index, (mine, other) in pairs if mine != other)
                self.differences.append(Difference(side, question_id, turn, repeat, place))

    def _write(self, side: Side, job: Job) -> Written | None:
        """Let a side write; None if it is given up, now or before, or the end came."""
        if side.name in self.errors:
            return None
        time.sleep(_SETTLE)
        try:
            with self._end.impatient():  # a long prompt may be read
                return side.write(job)
        except KeyboardInterrupt:
            if not self._end.came():
                raise
            return None
        except Exception as error:
            # A peer is a stranger's code and may raise anything; the report says what.
            if side.is_ours:
                raise
            self.errors[side.name] = error_text(error)
            return None

    def _tokens(self, said: Sequence[str], answers: Sequence[str]) -> tuple[int, ...]:
        return conversation(self._lm, said, answers)


def conversation(
    lm: LanguageModel, said: Sequence[str], answers: Sequence[str] = ()
) -> tuple[int, ...]:
    """Return the prompt of a conversation so far; without a chat template, its texts in a row."""
    if lm.model.chat_template is None:
        turns = [text for pair in zip_longest(said, answers) for text in pair if text]
        return lm.tokens_of("\n\n".join(turns))
    messages: list[dict[str, object]] = []
    for text, answer in zip_longest(said, answers):
        messages.append({"role": "user", "content": text})
        if answer is not None:
            messages.append({"role": "assistant", "content": answer})
    return lm.tokens_of(messages)


def reference_of(sides: Sequence[Side]) -> Side:
    """Return the side that the others are compared with: `plain`, or the first of ours."""
    ours = [side for side in sides if side.is_ours]
    return next((side for side in ours if side.name == "plain"), ours[0])


def error_text(error: Exception) -> str:
    """Return an error as a report shows it."""
    if isinstance(error, ForerunError):
        return str(error)
    return f"{type(error).__name__}: {error}"[:500]


def seed_of(seed: int, question_id: str, turn: int) -> int:
    """Return a text's own seed, 64 bits, by its address."""
    digest = hashlib.sha256(f"{seed} {turn} {question_id}".encode()).digest()
    return int.from_bytes(digest[:8], "little")
