"""Capture: the target writes conversations, and what it made of every token is kept.

Many conversations share each pass. Which of them do changes nothing: the native target is
row-exact, and a conversation's choices and noise have its number as their address. So a capture
that was killed goes on with the conversations that are missing, and ends with the same shards.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from forerun.config import Sampling
from forerun.core.noise import Noise
from forerun.core.warp import State, Warp
from forerun.errors import CapabilityError, OptionError, TrainingError
from forerun.models.model import Model
from forerun.models.target_checksum import target_checksum
from forerun.native import fast_noise, fast_warp
from forerun.targets.protocol import Row, Target
from forerun.train.folder import check_room, working_folder
from forerun.train.kept_laws import kept_laws
from forerun.train.loops import LoopWatch
from forerun.train.options import Capturing
from forerun.train.prompts import Beginning, Frame, beginning, frame_of, read_prompts
from forerun.train.shards import (
    Conversation,
    Recipe,
    Shard,
    bytes_per_token,
    keep_recipe,
    shard_paths,
    write_shard,
)

__all__ = ["CaptureNews", "capture", "capture_rate", "default_layers", "recipe_of"]

SHARD = 32
"""Conversations of a shard."""

_MOST_ROWS = 256  # of a pass: each has a row of logits
_LEAST = 16  # tokens of an answer worth keeping

Halves = NDArray[np.float16]


@dataclass(frozen=True, slots=True)
class CaptureNews:
    """How far a capture is.

    Attributes:
        tokens: Kept in shards.
        wanted: When it ends.
        conversations: Kept in shards.
        written: Tokens that this run has read and written, kept or not.
        seconds: That it took.
        nbytes: Of all shards.
    """

    tokens: int
    wanted: int
    conversations: int
    written: int
    seconds: float
    nbytes: int

    @property
    def rate(self) -> float:
        """Tokens a second that this run reads and writes."""
        return self.written / self.seconds if self.seconds > 0 else 0.0

    def text(self) -> str:
        """Return it in words."""
        told = f"{self.tokens:,} of {self.wanted:,} tokens in {self.conversations:,} conversations"
        told += f", {self.nbytes / 1e6:,.0f} MB"
        return f"{told}, {self.rate:,.0f} tokens/s" if self.written else told

    def as_json(self) -> dict[str, object]:
        """Return it as plain data."""
        return {**asdict(self), "tokens_per_second": self.rate}


def default_layers(num_layers: int) -> tuple[int, ...]:
    """Return the layers whose inputs are a head's features: a low, a middle and the last one."""
    return tuple(sorted({num_layers // 3, 2 * num_layers // 3, num_layers - 1}))


def recipe_of(model: Model, options: Capturing, prompts: Sequence[str]) -> Recipe:
    """Return what a capture is of.

    Raises:
        OptionError: The model has not the layers asked for.
    """
    network = model.architecture
    layers = tuple(sorted(set(options.layers))) or default_layers(network.num_layers)
    if layers[-1] > network.num_layers:
        what = f"layers = {options.layers}: {model.name} has {network.num_layers}."
        raise OptionError(what, f"Choose from 0 to {network.num_layers}.")
    words = "\0".join(prompts).encode()
    return Recipe(
        target=target_checksum(model),
        target_name=model.name,
        layers=layers,
        width=network.width,
        vocab_size=network.vocab_size,
        top=min(options.top, network.vocab_size),
        seed=options.seed,
        temperatures=options.temperatures,
        prompt_tokens=options.prompt_tokens,
        answer_tokens=options.answer_tokens,
        prompts=hashlib.sha256(words).hexdigest() if prompts else "",
        long_prompts=options.long_prompts,
        long_prompt_tokens=options.long_prompt_tokens if options.long_prompts else 0,
    )


def capture(
    model: Model,
    target: Target,
    folder: Path,
    options: Capturing,
    *,
    report: Callable[[CaptureNews], None],
    is_over: Callable[[], bool],
) -> CaptureNews:
    """Capture text into a folder until it holds as many tokens as asked for.

    Args:
        model: Who writes.
        target: Its passes.
        folder: Made if it is not there; a capture in it goes on.
        options: What to capture.
        report: Told how far it is after each shard.
        is_over: Asked between passes whether to end early.

    Returns:
        How far it came.

    Raises:
        OptionError: The model has not the layers asked for or no room for so long prompts, or the
            prompts can't be read.
        CapabilityError: An encoder reads the model's prompts; heads for such are not learned.
        TrainingError: The disk has no room, another works in the folder, or it holds a capture of
            something else.
    """
    if target.capabilities.encoder is not None:
        what = f"{model.name} has an encoder, and what it would write is read from a text alone."
        raise CapabilityError(what, "Choose a model that goes on from its prompt.")
    prompts = read_prompts(options.prompts) if options.prompts else []
    recipe = recipe_of(model, options, prompts)
    with working_folder(folder):
        keep_recipe(folder, recipe)
        kept = _Kept(folder, recipe, options.tokens)
        check_room(folder, (options.tokens - kept.tokens) * bytes_per_token(recipe))
        writer = _Writer(model, target, recipe, prompts)
        report(kept.news(0))
        if kept.tokens >= options.tokens:
            return kept.news(0)
        for conversation in writer.conversations(kept.next_number, options.sequences):
            if conversation is None:
                if is_over():
                    break
                continue
            if kept.take(conversation):
                report(kept.news(writer.written))
            if kept.tokens >= options.tokens:
                break
        return kept.news(writer.written)


def capture_rate(model: Model, target: Target, options: Capturing, passes: int) -> float:
    """Return how many tokens a second a capture makes here; nothing is kept.

    Args:
        model: Who writes.
        target: Its passes.
        options: Of the capture.
        passes: To try it on.
    """
    writer = _Writer(model, target, recipe_of(model, options, []), [])
    began = time.monotonic()
    made = writer.conversations(0, options.sequences)
    while passes:
        passes -= next(made) is None
    return writer.written / (time.monotonic() - began)


class _Kept:
    """The shards of a capture, and the conversations of the next one."""

    def __init__(self, folder: Path, recipe: Recipe, wanted: int) -> None:
        self._folder, self._recipe, self._wanted = folder, recipe, wanted
        self._began = time.monotonic()
        self._seen: set[bytes] = set()
        self._open: dict[int, Conversation] = {}
        self.tokens = self._count = self._shards = self._nbytes = 0
        for path in shard_paths(folder):
            try:
                shard = Shard(path, recipe)
            except TrainingError:
                break  # what a broken disk cut short is made again, and all that follows
            kept = [each for each in shard.conversations() if self._is_new(each)]
            self._add(kept, path)

    @property
    def next_number(self) -> int:
        """The first conversation that no shard has."""
        return self._shards * SHARD

    def take(self, conversation: Conversation) -> bool:
        """Take a conversation; return whether it completed a shard, which is then on the disk."""
        self._open[conversation.number] = conversation
        numbers = range(self.next_number, self.next_number + SHARD)
        if not all(number in self._open for number in numbers):
            return False
        whole = [self._open.pop(number) for number in numbers]
        kept = [each for each in whole if _is_worth(each) and self._is_new(each)]
        self._add(kept, write_shard(self._folder, self._shards, kept))
        return True

    def news(self, written: int) -> CaptureNews:
        """Return how far it is."""
        seconds = time.monotonic() - self._began
        return CaptureNews(self.tokens, self._wanted, self._count, written, seconds, self._nbytes)

    def _add(self, conversations: Sequence[Conversation], path: Path) -> None:
        self._shards += 1
        self._count += len(conversations)
        self.tokens += sum(len(each.tokens) for each in conversations)
        self._nbytes += path.stat().st_size

    def _is_new(self, conversation: Conversation) -> bool:
        digest = hashlib.sha256(conversation.tokens.tobytes()).digest()
        is_new = digest not in self._seen
        self._seen.add(digest)
        return is_new


def _is_worth(conversation: Conversation) -> bool:
    return len(conversation.tokens) - conversation.answer >= _LEAST


class _Writer:
    """Lets the target write conversations, many at once.

    Attributes:
        written: Tokens read and written.
    """

    def __init__(
        self, model: Model, target: Target, recipe: Recipe, prompts: Sequence[str]
    ) -> None:
        self._model, self._target, self._recipe, self._prompts = model, target, recipe, prompts
        self._frame = frame_of(model)
        self._warps: dict[tuple[float, float], Warp] = {}
        around = len(self._frame.before + self._frame.after)
        # A long prompt takes no room from an answer; a usual one may.
        self._longest = target.context_length - around - recipe.answer_tokens
        if target.context_length < around + recipe.prompt_tokens + _LEAST:
            what = f"A prompt of {recipe.prompt_tokens} tokens and an answer of {_LEAST}: "
            what += f"{model.name} reads {target.context_length} in all."
            raise OptionError(what, "Lower prompt_tokens.")
        self.written = 0

    def conversations(self, first: int, together: int) -> Iterator[Conversation | None]:
        """Yield conversations from number `first` on, without end; None after each pass.

        Those of one shard come before the next shard's are begun too far ahead, in any order.
        """
        texts = [self._begin(first + i) for i in range(together)]
        following = first + together
        while True:
            self._pass(texts)
            yield None
            for place, text in enumerate(texts):
                if text.is_done:
                    self._target.free(text.sequence)
                    yield text.conversation()
                    texts[place] = self._begin(following)
                    following += 1

    def _begin(self, number: int) -> _Text:
        start = beginning(
            number,
            self._recipe,
            self._model.tokenizer,
            self._frame,
            self._prompts,
            longest=self._longest,
        )
        noise = fast_noise(self._recipe.seed, number)
        ends = self._model.tokenizer.eos_ids
        text = _Text(number, self._target.open(), start, self._frame, noise, frozenset(ends))
        text.limit(self._recipe.answer_tokens, self._target.context_length)
        return text

    def _pass(self, texts: Sequence[_Text]) -> None:
        """Read what the texts hold and the target has not seen, and let each write a token."""
        rows: list[Row] = []
        places: list[tuple[_Text, int, int]] = []
        share = max(_MOST_ROWS // len(texts), 1)
        for text in texts:
            begin, position = len(rows), text.seen
            for token in text.tokens[position : position + share]:
                parent = len(rows) - 1 if len(rows) > begin else -1
                rows.append(Row(text.sequence, token, position, parent))
                position += 1
            places.append((text, begin, len(rows)))
        scores = self._target.score(rows, layers=self._recipe.layers)
        made = self._made_of(scores.logits, [scores.hidden[layer] for layer in self._recipe.layers])
        for text, begin, end in places:
            self._target.commit(text.sequence, range(begin, end))
            text.take(tuple(part[begin:end] for part in made))
            if text.seen == len(text.tokens):
                warp = self._warp(*text.law)
                text.write(warp.token(scores.logits[end - 1], State(), text.noise, text.seen))
        self.written += len(rows)

    def _made_of(
        self, logits: NDArray[np.float32], hidden: Sequence[NDArray[np.float32]]
    ) -> tuple[NDArray[np.generic], ...]:
        """Return what is kept of each row: features, likely tokens, their log p, the rest's p."""
        threads = self._target.capabilities.threads
        likely, log_p, rest = kept_laws(logits, self._recipe.top, self._warp(1.0, 1.0), threads)
        most = np.finfo(np.float16).max
        features = np.concatenate(hidden, axis=1).clip(-most, most)
        return features.astype(np.float16), likely, log_p, rest

    def _warp(self, temperature: float, top_p: float) -> Warp:
        key = temperature, top_p
        if key not in self._warps:
            sampling = Sampling(temperature=temperature, top_p=top_p)
            self._warps[key] = fast_warp(
                sampling,
                self._target.vocab_size,
                threads=self._target.capabilities.threads,
            )
        return self._warps[key]


class _Text:
    """A conversation while it is written.

    Attributes:
        number, sequence, noise: Whose it is.
        tokens: All so far.
        seen: How many of them the target has read.
        is_done: Whether it ended.
    """

    def __init__(
        self,
        number: int,
        sequence: int,
        start: Beginning,
        frame: Frame,
        noise: Noise,
        ends: frozenset[int],
    ) -> None:
        self.number, self.sequence, self.noise = number, sequence, noise
        self.tokens = list(start.tokens)
        self.seen = 0
        self.is_done = False
        self._start, self._frame, self._ends = start, frame, ends
        self._answer = len(self.tokens) if start.is_whole else None
        self._made: list[tuple[NDArray[np.generic], ...]] = []
        self._loop = LoopWatch()
        first = len(frame.before)
        self._prompt_end = max(first + start.most, len(self.tokens) + 1)
        self._passages_until = first + start.least
        self._answer_tokens = self._room = 0

    def limit(self, answer: int, room: int) -> None:
        """Set how much may follow the prompt, and how much there may be in all."""
        self._answer_tokens, self._room = answer, room

    @property
    def law(self) -> tuple[float, float]:
        """Temperature and top-p of what is written now."""
        if self._answer is None:
            return self._start.prompt_temperature, 0.95
        return self._start.temperature, 1.0

    def take(self, made: tuple[NDArray[np.generic], ...]) -> None:
        """Take what the target made of the next tokens; the text ends once all is seen."""
        self._made.append(made)
        self.seen += len(made[0])

    def write(self, token: int) -> None:
        """Take the target's next token, or end."""
        if self._answer is None:
            self._write_prompt(token)
            return
        written = len(self.tokens) - self._answer
        self.is_done = self.tokens[-1] in self._ends and written > 0
        self.is_done |= written >= self._answer_tokens or len(self.tokens) >= self._room
        self.is_done |= written > 0 and self._loop.loops(self.tokens[-1])
        if not self.is_done:
            self.tokens.append(token)

    def _write_prompt(self, token: int) -> None:
        is_over = token in self._ends or token == self._frame.after[0]
        if is_over and self._frame.between and len(self.tokens) < self._passages_until:
            self.tokens += self._frame.between[: self._prompt_end - len(self.tokens)]
            is_over = len(self.tokens) >= self._prompt_end
        elif not is_over:
            self.tokens.append(token)
            is_over = len(self.tokens) >= self._prompt_end or self._loop.loops(token)
        if is_over:
            self.tokens += self._frame.after
            self._answer = len(self.tokens)
            self._loop = LoopWatch()

    def conversation(self) -> Conversation:
        """Return what is kept of it."""
        features, likely, log_p, rest = (
            np.concatenate([made[i] for made in self._made]) for i in range(4)
        )
        return Conversation(
            self.number,
            self._start.temperature,
            len(self.tokens) if self._answer is None else self._answer,
            np.array(self.tokens, np.int32),
            features.astype(np.float16, copy=False),
            likely.astype(np.int32, copy=False),
            log_p.astype(np.float16, copy=False),
            rest.astype(np.float32, copy=False),
        )
