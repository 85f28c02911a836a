"""The training loop: what it did so far is on the disk, and whoever is killed ends the same.

The state after step n is a function of the options, the seed and the shards that each epoch began
with, all of which are written down. It is saved now and then; a restart goes on from the last save
and makes the same steps again. What learns is a `Learner`; the loop is the same for all kinds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from time import monotonic

import torch

from forerun.errors import TrainingError
from forerun.train.evaluation import Look, Measured
from forerun.train.examples import batches, split
from forerun.train.learner import Learner, Progress, Taught, Text, Trained, TrainingNews
from forerun.train.network import Weights
from forerun.train.options import Learning
from forerun.train.shards import Recipe, Shards
from forerun.train.training_state import StateFolder

__all__ = ["HELD_OUT", "state_folder", "train"]

HELD_OUT = 25
"""One conversation of so many is held out."""

_SAVED_EVERY = 50  # steps
_FIRST_TIMED = 10  # steps, after which it is first said how many there will be
_LOOKED_EVERY = 100


def state_folder(folder: Path, kind: str) -> Path:
    """Return where the training of a kind of drafter keeps its state."""
    return folder / kind


def train(
    make: Callable[[Recipe], Learner],
    folder: Path,
    options: Learning,
    *,
    report: Callable[[TrainingNews], None],
    is_over: Callable[[], bool],
    seconds: float | None = None,
) -> Trained:
    """Train a drafter on what was captured into a folder; one that was begun there goes on.

    Args:
        make: Makes what learns, as it is before the first step.
        folder: Where `capture` wrote; the state is kept in its folder of the kind's name.
        options: How to train.
        report: Told how far it is after each step.
        is_over: Asked between steps whether to end early; the state is saved then.
        seconds: Learn for so long instead of to the options' budget. The budget then follows from
            what a second teaches; it is saved with the state before a step is made by it.

    Raises:
        TrainingError: The text is of another target, too little or damaged, or the state is of
            another training; or numbers ceased to be finite, which leaves the last good state.
    """
    torch.set_num_threads(options.threads or torch.get_num_threads())
    trainer = _Trainer(make(Shards(folder).recipe), folder, options, seconds)
    for news in trainer.steps():
        report(news)
        if is_over():
            trainer.save()
            break
    return trainer.result()


class _Trainer:
    """One training: its data, weights and state."""

    def __init__(
        self, learner: Learner, folder: Path, options: Learning, seconds: float | None = None
    ) -> None:
        self._began = monotonic()
        self.learner, self._options, self._folder = learner, options, folder
        self._seconds = seconds
        self._home = StateFolder(state_folder(folder, learner.name), options.kept())
        self._state = self._home.recorded()
        self._best: Weights | None = None
        saved = self._home.load(learner.weights)
        for values in learner.weights.values():
            values.requires_grad_()
        self._optimizer = torch.optim.AdamW(
            learner.weights.values(), lr=options.rate, betas=(0.9, 0.95), weight_decay=0.01
        )
        if saved:
            self._state, moments, self._best = saved
            self._restore(moments)
        self._begin_epoch()

    # ---- the steps

    def steps(self) -> Iterator[TrainingNews]:
        """Make steps until the end, yielding after each."""
        state = self._state
        learned_before, seconds_before = state.learned, state.seconds
        looked: Measured | None = None
        while not self._is_over:
            if state.batch == len(self._plan):
                state.epoch, state.batch = state.epoch + 1, 0
                self._begin_epoch()
            loss = self._step().losses[0]
            state.batch += 1
            state.step += 1
            spent = monotonic() - self._began
            state.seconds = seconds_before + spent
            is_planned = self._plan_again()
            is_last = state.learned >= self._budget
            is_look = state.step % _LOOKED_EVERY == 0 or is_last
            if is_look:
                looked = self._look(loss)
            if state.step % _SAVED_EVERY == 0 or is_planned or is_last:
                self.save()
            rate = (state.learned - learned_before) / max(spent, 1e-9)
            yield TrainingNews(state.step, state.learned, self._budget, loss, rate, looked, is_look)

    @property
    def _is_over(self) -> bool:
        return self._state.learned >= self._budget or self._state.worse >= self._options.patience

    @property
    def _budget(self) -> int:
        """When it ends, as far as is known."""
        is_timed = self._seconds is not None and self._state.budget > 0
        return self._state.budget if is_timed else self._options.budget

    def _plan_again(self) -> bool:
        """Let the budget follow from the time that is left; return whether it did."""
        state = self._state
        if self._seconds is None:
            return False
        left = self._seconds - state.seconds
        if left > 0 and state.step % _SAVED_EVERY and state.step != _FIRST_TIMED:
            return False
        rate = state.learned / max(state.seconds, 1e-9)
        state.budget = state.learned + int(max(left, 0.0) * rate)
        return True

    def _step(self) -> Taught:
        state = self._state
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate()
        self._optimizer.zero_grad()
        progress = Progress(state.step, state.learned, self._budget)
        taught = self.learner.backward(self._plan[state.batch], progress)
        norm = torch.nn.utils.clip_grad_norm_(list(self.learner.weights.values()), 0.5)
        self._check_finite(*taught.losses, float(norm))
        self._optimizer.step()
        state.learned += taught.rows
        return taught

    def _check_finite(self, *numbers: float) -> None:
        if not all(map(math.isfinite, numbers)):
            raise TrainingError(
                f"The numbers are no longer finite at step {self._state.step + 1}.",
                f"The state of the last save is kept in {self._home.path}; lower the rate.",
            )

    def _rate(self) -> float:
        """A short rise, then half a cosine down to a fiftieth."""
        done = min(self._state.learned / self._budget, 1.0)
        rise = min((self._state.step + 1) / 30, 1.0)
        return self._options.rate * rise * (0.02 + 0.49 * (1 + math.cos(math.pi * done)))

    # ---- the data

    def _begin_epoch(self) -> None:
        """Take the shards that are there now, or those that were when this epoch first began."""
        state, shards = self._state, Shards(self._folder)
        if len(state.shards) <= state.epoch:
            state.shards.append(len(shards.shards))
            if state.step:
                self.save()
            else:
                self._home.record(state)
        taken = state.shards[state.epoch]
        if taken > len(shards.shards):
            what = f"Of {taken} shards in {self._folder}, {len(shards.shards)} are left."
            raise TrainingError(what, "Capture again, or train in another folder.")
        shards.shards = shards.shards[:taken]
        learned, held_out = split(list(shards.conversations()), HELD_OUT)
        if not learned or not held_out:
            what = f"{self._folder} holds {shards.num_tokens} tokens, too few to learn from."
            raise TrainingError(what, "Capture more.")
        self._text = Text(shards.recipe, learned, held_out, shards.num_tokens)
        self._plan = batches(learned, self._options.rows, self._options.seed, state.epoch)
        if state.batch > len(self._plan):
            what = f"batch = {state.batch} of {len(self._plan)} comes next in {self._home.path}."
            raise TrainingError(what, "Delete that folder to begin anew.")
        self.learner.take(self._text)

    def _look(self, loss: float) -> Measured:
        measured = self.learner.measure()
        state = self._state
        self._check_finite(*measured.alpha, *measured.loss)
        state.history.append(Look(state.step, state.learned, loss, **asdict(measured)))
        score = sum(measured.alpha)
        if score > state.best:
            state.best, state.worse = score, 0
            weights = self.learner.weights.items()
            self._best = {name: values.detach().clone() for name, values in weights}
        else:
            state.worse += 1
        return measured

    # ---- the end

    def result(self) -> Trained:
        """Return the best weights so far."""
        state, last = self._state, self.learner.weights
        weights = self._best or {name: values.detach() for name, values in last.items()}
        return Trained(
            self.learner,
            weights,
            self._text,
            state.history,
            state.learned,
            self._budget,
            state.seconds,
            self._is_over,
        )

    def save(self) -> None:
        """Write the state; a kill leaves this or the one before."""
        self._home.save(self._state, self.learner.weights, self._optimizer, self._best)

    def _restore(self, moments: Weights) -> None:
        for name, values in self.learner.weights.items():
            self._optimizer.state[values] = {
                "step": torch.tensor(float(self._state.step)),
                "exp_avg": moments[f"exp_avg.{name}"],
                "exp_avg_sq": moments[f"exp_avg_sq.{name}"],
            }
