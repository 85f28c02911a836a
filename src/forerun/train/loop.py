"""The training loop: what it did so far is on the disk, and whoever is killed ends the same.

The state after step n is a function of the options, the seed and the shards that each epoch began
with, all of which are written down. It is saved now and then; a restart goes on from the last save
and makes the same steps again.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from forerun.errors import ModelFileError, TrainingError
from forerun.models.model import Model
from forerun.models.target_checksum import target_checksum
from forerun.train.evaluation import Measured, measure
from forerun.train.examples import Examples, Task, split
from forerun.train.folder import read_record, write_record, written_whole
from forerun.train.head import Frozen, Network, Weights, initial_weights
from forerun.train.losses import LossName, learn
from forerun.train.options import HeadLearning
from forerun.train.shards import Conversation, Shards
from forerun.train.vocabulary import choose_tokens, ids_of, token_weights

__all__ = ["HeadNews", "Trained", "head_state", "learning_rate", "train_head"]

HELD_OUT = 25
"""One conversation of so many is held out."""

_WATCHED = 48  # of them, that are looked at as it goes
_DECAY_OF_LEVELS = 0.8
_SAVED_EVERY = 50  # steps
_LOOKED_EVERY = 100


@dataclass(frozen=True, slots=True)
class HeadNews:
    """How far a training is.

    Attributes:
        step: Steps made.
        learned: Tokens that were learned from, repeats counted.
        wanted: When it ends.
        loss: Of the last steps, at level 0.
        rate: Tokens a second.
        held_out: What was last measured on held-out text.
        is_look: Whether that was now.
    """

    step: int
    learned: int
    wanted: int
    loss: float
    rate: float
    held_out: Measured | None
    is_look: bool = False

    def as_json(self) -> dict[str, object]:
        """Return it as plain data."""
        return asdict(self)

    def text(self) -> str:
        """Return it in words."""
        told = f"{self.learned:,} of {self.wanted:,} tokens, {self.rate:,.0f} tokens/s"
        told += f", loss {self.loss:.3f}"
        return f"{told}; held out: {self.held_out.text()}" if self.held_out else told


@dataclass
class _State:
    """What is saved beside weights and the optimizer's moments."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    learned: int = 0
    shards: list[int] = field(default_factory=list)  # of each epoch
    best: float = -1.0
    worse: int = 0  # looks since the best
    seconds: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """What came of a training.

    Attributes:
        weights: The best ones on held-out text.
        tokens: The draft's vocabulary, int64 [R].
        layers: Of the features.
        frozen: What the head takes from the target.
        held_out: Conversations that were not learned from.
        history: One record for each look at held-out text.
        learned: Tokens learned from, repeats counted.
        captured: Tokens of all shards.
        seconds: That all of it took.
        is_over: Whether it came to its end.
    """

    weights: Weights
    tokens: NDArray[np.int64]
    layers: tuple[int, ...]
    frozen: Frozen
    held_out: Sequence[Conversation]
    history: Sequence[dict[str, Any]]
    learned: int
    captured: int
    seconds: float
    is_over: bool


def head_state(folder: Path) -> Path:
    """Return where a head's training keeps its state."""
    return folder / "head"


def train_head(
    model: Model,
    folder: Path,
    options: HeadLearning,
    *,
    report: Callable[[HeadNews], None],
    is_over: Callable[[], bool],
) -> Trained:
    """Train a head on what was captured into a folder; one that was begun there goes on.

    Args:
        model: The target.
        folder: Where `capture` wrote; the state is kept in its folder `head`.
        options: How to train.
        report: Told how far it is after each step.
        is_over: Asked between steps whether to end early; the state is saved then.

    Raises:
        TrainingError: The text is of another target, too little or damaged, or the state is of
            another training; or numbers ceased to be finite, which leaves the last good state.
    """
    torch.set_num_threads(options.threads or torch.get_num_threads())
    trainer = _Trainer(model, folder, options)
    for news in trainer.steps():
        report(news)
        if is_over():
            trainer.save()
            break
    return trainer.result()


def learning_rate(
    model: Model, options: HeadLearning, conversations: Sequence[Conversation], steps: int
) -> float:
    """Return how many tokens a second a training learns from here; nothing is kept.

    Args:
        model: The target.
        options: Of the training.
        conversations: Text as long as a step wants; what it says is all the same.
        steps: To try it on.
    """
    torch.set_num_threads(options.threads or torch.get_num_threads())
    tokens = np.arange(min(options.vocabulary, model.architecture.vocab_size))
    frozen = Frozen.of(model, tokens)
    layers = conversations[0].features.shape[1] // model.architecture.width
    weights = initial_weights(model, layers, options.seed)
    for values in weights.values():
        values.requires_grad_()
    optimizer = torch.optim.AdamW(weights.values(), lr=1e-6)
    network, head = Network(weights, frozen), _typed(frozen.head, options)
    ids = ids_of(tokens, model.architecture.vocab_size)
    task = Examples(conversations, ids, 1, 0).task(range(len(conversations)))
    began = time.monotonic()
    for _ in range(steps):
        _backward(network, head, task, options.levels, options.loss)
        optimizer.step()
    return steps * len(task.laws.rest) / (time.monotonic() - began)


def _typed(head: torch.Tensor, options: HeadLearning) -> torch.Tensor:
    return head if options.fp32 else head.bfloat16()


def _backward(
    network: Network, head: torch.Tensor, task: Task, levels: int, loss: LossName
) -> list[float]:
    """Add the slopes of a batch's losses to the weights'; return each level's mean loss."""
    with torch.autocast("cpu", torch.bfloat16, enabled=head.dtype == torch.bfloat16):
        outputs = network.levels(task.batch, levels)
    rows = len(task.laws.rest)
    slopes, losses = [], []
    for level, output in enumerate(outputs):
        learned = learn(output.to(head.dtype), head, task.level(level), loss)
        slopes.append(learned.slope.float() * (_DECAY_OF_LEVELS**level / rows))
        losses.append(float(learned.loss.mean()))
    torch.autograd.backward(outputs, slopes)
    return losses


def _packed(state: dict[str, object]) -> bytes:
    return json.dumps(state, allow_nan=False).encode()


def _unpacked(data: bytes) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(data)
    return state


class _Trainer:
    """One training: its data, weights and state."""

    def __init__(self, model: Model, folder: Path, options: HeadLearning) -> None:
        self._model, self._options, self._folder = model, options, folder
        self._home = head_state(folder)
        self._home.mkdir(exist_ok=True)
        self._state = self._recorded()
        recipe = Shards(folder).recipe
        if recipe.target != target_checksum(model):
            what = f"The text in {folder} is of another target ({recipe.target_name})."
            raise TrainingError(what, f"Capture text of {model.name} into another folder.")
        self._recipe = recipe
        self.weights = initial_weights(model, len(recipe.layers), options.seed)
        self._best: Weights | None = None
        moments = self._load()
        for values in self.weights.values():
            values.requires_grad_()
        self._optimizer = torch.optim.AdamW(
            self.weights.values(), lr=options.rate, betas=(0.9, 0.95), weight_decay=0.01
        )
        self._restore(moments)
        self._begin_epoch()

    # ---- the steps

    def steps(self) -> Iterator[HeadNews]:
        """Make steps until the end, yielding after each."""
        options, state = self._options, self._state
        began, learned_before = time.monotonic(), state.learned
        seconds_before = state.seconds
        looked: Measured | None = None
        while state.learned < options.budget and state.worse < options.patience:
            if state.batch == len(self._plan):
                state.epoch, state.batch = state.epoch + 1, 0
                self._begin_epoch()
            loss = self._step(self._examples.task(self._plan[state.batch]))
            state.batch += 1
            state.step += 1
            state.seconds = seconds_before + time.monotonic() - began
            is_last = state.learned >= options.budget
            is_look = state.step % _LOOKED_EVERY == 0 or is_last
            if is_look:
                looked = self._look(loss)
            if state.step % _SAVED_EVERY == 0 or is_last:
                self.save()
            rate = (state.learned - learned_before) / max(time.monotonic() - began, 1e-9)
            yield HeadNews(state.step, state.learned, options.budget, loss, rate, looked, is_look)

    def _step(self, task: Task) -> float:
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate()
        self._optimizer.zero_grad()
        losses = _backward(self._network, self._head, task, self._levels(), self._loss_name())
        norm = torch.nn.utils.clip_grad_norm_(list(self.weights.values()), 0.5)
        self._check_finite(*losses, float(norm))
        self._optimizer.step()
        self._state.learned += len(task.laws.rest)
        return losses[0]

    def _check_finite(self, *numbers: float) -> None:
        if not all(map(math.isfinite, numbers)):
            raise TrainingError(
                f"The numbers are no longer finite at step {self._state.step + 1}.",
                f"The state of the last save is kept in {self._home}; lower the rate.",
            )

    def _rate(self) -> float:
        """A short rise, then half a cosine down to a fiftieth."""
        done = min(self._state.learned / self._options.budget, 1.0)
        rise = min((self._state.step + 1) / 30, 1.0)
        return self._options.rate * rise * (0.02 + 0.49 * (1 + math.cos(math.pi * done)))

    def _is_early(self) -> bool:
        return self._state.learned < self._options.cross_entropy * self._options.budget

    def _loss_name(self) -> LossName:
        return "ce" if self._is_early() else self._options.loss

    def _levels(self) -> int:
        """Deep guesses teach little before the first ones are any good."""
        return min(self._options.levels, 2) if self._is_early() else self._options.levels

    # ---- the data

    def _begin_epoch(self) -> None:
        """Take the shards that are there now, or those that were when this epoch first began."""
        state, shards = self._state, Shards(self._folder)
        if len(state.shards) <= state.epoch:
            state.shards.append(len(shards.shards))
            if state.step:
                self.save()
            else:
                self._record()
        taken = state.shards[state.epoch]
        if taken > len(shards.shards):
            what = f"Of {taken} shards in {self._folder}, {len(shards.shards)} are left."
            raise TrainingError(what, "Capture again, or train in another folder.")
        shards.shards = shards.shards[:taken]
        learned, held_out = split(list(shards.conversations()), HELD_OUT)
        if not learned or not held_out:
            what = f"{self._folder} holds {shards.num_tokens} tokens, too few to learn from."
            raise TrainingError(what, "Capture more.")
        weights = token_weights(learned, self._recipe.vocab_size)
        self._captured = shards.num_tokens
        self.tokens = choose_tokens(weights, min(self._options.vocabulary, len(weights)))
        ids = ids_of(self.tokens, self._recipe.vocab_size)
        self._examples = Examples(learned, ids, self._options.rows, self._options.seed)
        self._plan = self._examples.plan(state.epoch)
        self._held_out = held_out
        watched = held_out[:_WATCHED]
        self._watched = Examples(watched, ids, 1, 0).task(range(len(watched)))
        frozen = Frozen.of(self._model, self.tokens)
        self._network = Network(self.weights, frozen)
        self._head = _typed(frozen.head, self._options)

    def _look(self, loss: float) -> Measured:
        measured = measure(
            self._network, self._watched, self._options.levels, not self._options.fp32
        )
        state = self._state
        self._check_finite(*measured.alpha, *measured.loss)
        state.history.append(
            {
                "step": state.step,
                "learned": state.learned,
                "taught": loss,
                **asdict(measured),
            }
        )
        score = sum(measured.alpha)
        if score > state.best:
            state.best, state.worse = score, 0
            self._best = {name: w.detach().clone() for name, w in self.weights.items()}
        else:
            state.worse += 1
        return measured

    # ---- the disk

    def result(self) -> Trained:
        """Return the best weights so far."""
        state = self._state
        is_over = state.learned >= self._options.budget or state.worse >= self._options.patience
        weights = self._best or {name: w.detach() for name, w in self.weights.items()}
        return Trained(
            weights,
            self.tokens,
            self._recipe.layers,
            self._network.frozen,
            self._held_out,
            state.history,
            state.learned,
            self._captured,
            state.seconds,
            is_over,
        )

    def save(self) -> None:
        """Write the state; a kill leaves this or the one before."""
        tensors = {f"weight.{name}": values.detach() for name, values in self.weights.items()}
        for name, values in self.weights.items():
            for moment in ("exp_avg", "exp_avg_sq"):
                tensors[f"{moment}.{name}"] = self._optimizer.state[values][moment]
        tensors |= {f"best.{name}": values for name, values in (self._best or {}).items()}
        state = asdict(self._state)
        # One file holds it all: two would not be replaced at once.
        packed = torch.from_numpy(np.frombuffer(_packed(state), np.uint8).copy())
        tensors["state"] = packed
        written_whole(self._home / "state.safetensors", lambda path: save_file(tensors, path))

    def _record(self) -> None:
        record = {"options": self._kept_options(), "shards": self._state.shards}
        write_record(self._home / "training.json", record)

    def _kept_options(self) -> dict[str, object]:
        """What must not change between two runs of one training.

        The budget may: a larger one goes on from what was learned.
        """
        free = {"folder", "threads", "plot", "budget", "patience", "weights"}
        return self._options.model_dump(exclude=free)

    def _recorded(self) -> _State:
        try:
            record = read_record(self._home / "training.json")
        except ModelFileError as error:
            raise TrainingError(error.what, f"Delete {self._home} to begin anew.") from None
        if record is None:
            return _State()
        options: Any = record["options"]
        if {**options, **self._kept_options()} != options:
            what = f"{self._home} holds a training with other options: {record['options']}."
            raise TrainingError(what, "Give the same, or delete that folder to begin anew.")
        return _State(shards=list(record["shards"]))  # type: ignore[call-overload]

    def _load(self) -> Weights:
        """Take weights and state from the last save, and return the optimizer's moments."""
        path = self._home / "state.safetensors"
        if not path.exists():
            return {}
        try:
            tensors = load_file(path)
            self._state = _State(**_unpacked(tensors.pop("state").numpy().tobytes()))
            for name, values in self.weights.items():
                values.copy_(tensors[f"weight.{name}"])
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
            what = f"The state {path} is damaged: {error}."
            raise TrainingError(what, "Delete it to begin anew.") from None
        best = {n.removeprefix("best."): v for n, v in tensors.items() if n.startswith("best.")}
        self._best = best or None
        return tensors

    def _restore(self, moments: Weights) -> None:
        if not moments:
            return
        for name, values in self.weights.items():
            self._optimizer.state[values] = {
                "step": torch.tensor(float(self._state.step)),
                "exp_avg": moments[f"exp_avg.{name}"],
                "exp_avg_sq": moments[f"exp_avg_sq.{name}"],
            }
