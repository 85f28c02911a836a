"""The law of a text as the logits processors of transformers make it.

Rule `match` asks for the target's token once at each place of the text, in order, with what is
really written before it: so processors are called as `generate` calls them, also those that
remember something from one call to the next.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from transformers.generation import logits_process

from forerun.config import Sampling
from forerun.core.warp import Normaliser, Scores, State, Warp, only
from forerun.errors import EngineError, OptionError

__all__ = ["ProcessorWarp", "Processors", "of_one_text"]

# What holds the whole batch's prompts, or runs the model over it.
_OF_A_BATCH = (
    "EncoderRepetitionPenaltyLogitsProcessor",
    "EncoderNoRepeatNGramLogitsProcessor",
    "UnbatchedClassifierFreeGuidanceLogitsProcessor",
    "ClassifierFreeGuidanceLogitsProcessor",
    "SynthIDTextWatermarkLogitsProcessor",
)


def of_one_text(processors: Sequence[Any], row: int, count: int) -> list[Any]:
    """Return processors that are called with one row of a batch alone.

    Args:
        processors: Made for all rows.
        row: Which one.
        count: How many there are.

    Raises:
        OptionError: One works on all rows at once only.
    """
    own = []
    for each in processors:
        name = type(each).__name__
        if count > 1 and name in _OF_A_BATCH:
            what = f"{name} works on a whole batch, and texts are written one by one here."
            raise OptionError(what, "Write one text at a time, or leave custom_generate out.")
        if count > 1 and name == "PrefixConstrainedLogitsProcessor":
            own.append(_constrained(each, row))
        elif count > 1 and isinstance(getattr(each, "prompt_ignore_length", None), torch.Tensor):
            mine = copy.copy(each)
            mine.prompt_ignore_length = each.prompt_ignore_length[row : row + 1]
            own.append(mine)
        else:
            own.append(each)
    return own


def _constrained(processor: Any, row: int) -> Any:
    """Return such a processor that tells its function which row it is asked about."""
    allowed = processor._prefix_allowed_tokens_fn
    kind = logits_process.PrefixConstrainedLogitsProcessor
    return kind(lambda _, written: allowed(row, written), 1)


class _Written:
    """What stands in a text up to one position; as `forerun.core.warp.State`."""

    __slots__ = ("_processors", "length", "more")

    def __init__(self, processors: Processors, length: int, more: tuple[int, ...] = ()) -> None:
        self._processors, self.length, self.more = processors, length, more

    def advance(self, token: int) -> Self:
        """Return the state after one more token; this one stays as it is."""
        return type(self)(self._processors, self.length, (*self.more, token))

    def after(self, tokens: Sequence[int]) -> Self:
        """Return the state after more tokens, which are written now."""
        new = (*self.more, *tokens)
        return type(self)(self._processors, self._processors.write(self.length, new))


class Processors:
    """The processors of one text, and the text as they are shown it.

    Args:
        processors: Called one after the other with [1, tokens] and [1, vocabulary].
        padded: The prompt's row, [1, tokens].
    """

    def __init__(self, processors: Sequence[Any], padded: torch.Tensor) -> None:
        self._processors, self._padded = processors, padded
        self._ids = padded.clone()

    def start(self) -> State:
        """Return the state behind the prompt."""
        return cast(State, _Written(self, self._padded.shape[1]))

    def write(self, length: int, tokens: Sequence[int]) -> int:
        """Write tokens from a place on, and return where they end."""
        end = length + len(tokens)
        if end > self._ids.shape[1]:
            grown = self._ids.new_zeros((1, 2 * end))
            grown[:, :length] = self._ids[:, :length]
            self._ids = grown
        if tokens:
            self._ids[0, length:end] = torch.tensor(tokens, dtype=self._ids.dtype)
        return end

    def __call__(self, logits: NDArray[np.float32], state: State) -> NDArray[np.float32]:
        """Return what the processors make of a row of logits, float32 [vocabulary]."""
        written = cast(_Written, state)
        end = self.write(written.length, written.more)
        ids = self._ids[:, :end].clone()
        scores = torch.from_numpy(np.array(logits, dtype=np.float32)[np.newaxis]).to(ids.device)
        for processor in self._processors:
            scores = processor(ids, scores)
        found: NDArray[np.float32] = scores[0].float().cpu().numpy()
        return found


class ProcessorWarp(Warp):
    """Draws from the law that processors make.

    Args:
        processors: Of one text.
        sampling: Its temperature; 0 takes the likeliest token.
        vocab_size: Tokens the target knows.
    """

    def __init__(self, processors: Processors, sampling: Sampling, vocab_size: int) -> None:
        super().__init__(sampling, vocab_size)
        self._processors = processors
        self.is_plain = False

    def start(self, prompt: Sequence[int]) -> State:
        """Return the state at the beginning of the output."""
        return self._processors.start()

    def weigh(self, logits: NDArray[np.float32] | Scores, state: State) -> Scores:
        """Return logits as they are, for drafters: they guess, and no processor is asked."""
        return np.asarray(logits, dtype=np.float64)

    def weigh_few(
        self, tokens: Sequence[int], logits: Sequence[float], state: State
    ) -> list[float]:
        """Return logits as they are; as `weigh`."""
        return list(logits)

    def scores(self, logits: NDArray[np.float32], state: State) -> Scores:
        """Return the log-weights that the processors leave.

        Raises:
            EngineError: They leave nothing, or what is no number.
        """
        found = self._processors(logits, state).astype(np.float64)
        if not -np.inf < found.max() < np.inf:  # nor is NaN
            what = f"The processors leave {found.max()} as the highest score."
            raise EngineError(what, "One of them forbids all tokens, or the logits are broken.")
        if self.sampling.temperature == 0:
            return only(found, [int(np.argmax(found))])
        return found

    def log_probabilities_of(
        self,
        tokens: Sequence[int],
        logits: NDArray[np.float32],
        rows: Sequence[int],
        known: Mapping[int, Normaliser] = MappingProxyType({}),
    ) -> list[float]:
        """Return nothing worth the time: `generate` tells no probabilities."""
        return [0.0] * len(tokens)
