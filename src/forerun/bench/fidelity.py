"""How far an engine's laws are from those of the same weights in 32-bit floats.

The reference target dequantises a model's weights and computes in float32. An engine that rounds
activations, keys and values to fewer bits writes other laws; the divergence says how much others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forerun.errors import PromptError
from forerun.models.chat_prompt import chat_tokens
from forerun.models.model import Model
from forerun.regular_file import read_file
from forerun.targets.protocol import Row, Target

__all__ = [
    "Distance",
    "Scorer",
    "Text",
    "as_texts",
    "compare",
    "logits_of",
    "prompt_tokens",
    "read_prompts",
]

Logits = NDArray[np.float32]

# Tokens of a text to the logits of every position, float32 [n, vocab].
Scorer = Callable[[Sequence[int]], Logits]

_MOST_BYTES = 1 << 26
_ROWS = 16  # compared at a time: laws are kept in float64


class Text(NamedTuple):
    """Tokens to be read, the first of which an earlier text may have had too.

    Attributes:
        tokens: All of them.
        repeated: How many positions at the beginning have a context that has been counted.
    """

    tokens: tuple[int, ...]
    repeated: int


class _Rows(NamedTuple):
    """What was found at each position of one text."""

    divergence: NDArray[np.float64]
    is_flipped: NDArray[np.bool_]
    is_new: NDArray[np.bool_]


@dataclass
class Distance:
    """From the reference's laws to an engine's.

    A context is counted once: its rounding is the same each time, so the tokens with which a
    chat template begins every text would be one number many times over.
    """

    _texts: list[_Rows] = field(default_factory=list)

    def add(self, expected: Logits, found: Logits, repeated: int = 0) -> None:
        """Take the positions of one text, float32 [n, vocab] twice; count the new ones."""
        parts = [
            _divergence(expected[first : first + _ROWS], found[first : first + _ROWS])
            for first in range(0, len(expected), _ROWS)
        ]
        flipped = expected.argmax(axis=1) != found.argmax(axis=1)
        is_new = np.arange(len(expected)) >= repeated
        self._texts.append(_Rows(np.concatenate(parts), flipped, is_new))

    def as_json(self) -> dict[str, Any]:
        """Return nats per position, and the positions where another token is likeliest."""
        every, flipped, is_new = (np.concatenate(x) for x in zip(*self._texts, strict=True))
        divergence = every[is_new]
        return {
            "mean_kl": float(divergence.mean()),
            "standard_error": float(divergence.std() / np.sqrt(len(divergence))),
            "median_kl": float(np.median(divergence)),
            "largest_kl": float(divergence.max()),
            "flips": int(flipped[is_new].sum()),
            "flip_share": float(flipped[is_new].mean()),
            "mean_kl_repeats_counted": float(every.mean()),
            "mean_kl_of_each": [float(text.divergence.mean()) for text in self._texts],
        }


def as_texts(token_lists: Sequence[Sequence[int]]) -> list[Text]:
    """Return texts with what each repeats of the earlier ones."""
    known: set[tuple[int, ...]] = set()
    texts = []
    for tokens in map(tuple, token_lists):
        contexts = [tokens[: i + 1] for i in range(len(tokens))]
        texts.append(Text(tokens, sum(context in known for context in contexts)))
        known.update(contexts)
    return texts


def compare(
    reference: Scorer,
    engines: Mapping[str, Scorer],
    texts: Sequence[Text],
    progress: Callable[[str, float], None] = lambda part, share: None,
) -> dict[str, Distance]:
    """Return each engine's distance from the reference over the texts.

    Args:
        reference: Whose laws are the right ones.
        engines: The others, by name.
        texts: Of `as_texts`, at least one token each.
        progress: Told which text is next, and the share that is done.
    """
    distances = {name: Distance() for name in engines}
    for i, (tokens, repeated) in enumerate(texts):
        progress(f"text {i + 1} of {len(texts)}", i / len(texts))
        expected = reference(tokens)
        for name, engine in engines.items():
            distances[name].add(expected, engine(tokens), repeated)
    return distances


def logits_of(target: Target) -> Scorer:
    """Return the scorer of a target: one pass over the whole text."""

    def score(tokens: Sequence[int]) -> Logits:
        sequence = target.open()
        rows = [Row(sequence, token, i, i - 1) for i, token in enumerate(tokens)]
        try:
            return target.score(rows).logits
        finally:
            target.free(sequence)

    return score


def read_prompts(path: Path, count: int) -> list[str]:
    """Return the first texts of a file of JSON lines: of each its `prompt`, or first of `turns`.

    Raises:
        PromptError: The file can't be read, or a line has neither.
    """
    try:
        lines = [
            line
            for line in read_file(path, _MOST_BYTES).decode("utf-8").splitlines()
            if line.strip()
        ]
        records = [json.loads(line) for line in lines[:count]]
        prompts = [record["prompt" if "prompt" in record else "turns"] for record in records]
        texts = [text if isinstance(text, str) else text[0] for text in prompts]
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise PromptError(f"{path} is no file of prompts: {error!r}.") from None
    if not texts or not all(isinstance(text, str) for text in texts):
        raise PromptError(f"{path} is no file of prompts: it has none, or one that is no text.")
    return texts


def prompt_tokens(model: Model, prompt: str, most: int) -> tuple[int, ...]:
    """Return a prompt's first tokens, under the model's chat template if it has one."""
    if model.chat_template is None:
        return tuple(model.tokenizer.encode(prompt))[:most]
    message = {"role": "user", "content": prompt}
    return chat_tokens(model.tokenizer, model.chat_template, [message])[:most]


def _divergence(expected: Logits, found: Logits) -> NDArray[np.float64]:
    """Return KL(expected || found) of each row, in nats."""
    p, q = _log_law(expected), _log_law(found)
    result: NDArray[np.float64] = (np.exp(p) * (p - q)).sum(axis=1)
    return result


def _log_law(logits: Logits) -> NDArray[np.float64]:
    x = logits.astype(np.float64)
    x -= x.max(axis=1, keepdims=True)
    result: NDArray[np.float64] = x - np.log(np.exp(x).sum(axis=1, keepdims=True))
    return result
