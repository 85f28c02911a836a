"""What every target refuses, in the same words, and how it reads a prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forerun.errors import CapabilityError, EngineError, NotEnoughMemoryError, PromptError
from forerun.printable import counted
from forerun.targets.protocol import Encoder, Row, Target

__all__ = [
    "PREFILL_ROWS",
    "Watch",
    "check_asked",
    "check_prompt",
    "check_rows",
    "check_source",
    "check_until",
    "read_prompt",
    "read_rest",
]

PREFILL_ROWS = 256
"""Rows of the passes that a prompt is read in."""


class Watch(NamedTuple):
    """Who wants to see hidden states of a prompt.

    Attributes:
        layers: Of which layers.
        see: Called after each pass with its first position, and of each layer float32
            [rows, width].
    """

    layers: Sequence[int]
    see: Callable[[int, Mapping[int, NDArray[np.float32]]], None]


def check_prompt(
    prompt: Sequence[int], source: Sequence[int] | None, vocab_size: int, context_length: int
) -> None:
    """Check that a sequence of a decoder can begin with `prompt`.

    Raises:
        PromptError: The prompt is longer than the context or holds an unknown token.
        CapabilityError: There is a source, and no encoder for it.
    """
    if source is not None:
        raise CapabilityError("This target has no encoder.", "Give a prompt only.")
    if len(prompt) > context_length:
        what = f"The prompt has {counted(len(prompt), 'token')}, the context {context_length}."
        raise PromptError(what, "Shorten the prompt.")
    for token in prompt:
        if not 0 <= token < vocab_size:
            raise PromptError(f"The prompt holds token {token} of {vocab_size}.")


def check_source(source: Sequence[int], encoder: Encoder | None) -> None:
    """Check that an encoder can read `source`.

    Raises:
        PromptError: It is empty, longer than the encoder has positions for, or holds an unknown
            token.
        CapabilityError: There is no encoder.
    """
    if encoder is None:
        raise CapabilityError("This target has no encoder.", "Give a prompt only.")
    if not source:
        raise PromptError("The encoder's input is empty.", "Give at least one token.")
    if len(source) > encoder.context_length:
        size = counted(len(source), "token")
        what = f"The prompt has {size}, and the encoder reads {encoder.context_length}."
        raise PromptError(what, "Shorten the prompt.")
    for token in source:
        if not 0 <= token < encoder.vocab_size:
            way_out = f"Token ids go from 0 to {encoder.vocab_size - 1}."
            raise PromptError(f"The prompt holds token {token}.", way_out)


def read_prompt(
    target: Target,
    sequence: int,
    prompt: Sequence[int],
    most_rows: int,
    watch: Watch | None = None,
) -> None:
    """Score and commit a new sequence's prompt, so many rows a pass; if that fails, free it.

    Where memory is too short for a pass, it is tried with half as many rows.

    Args:
        target: Whose sequence it is.
        sequence: Empty.
        prompt: Sound, by `check_prompt`.
        most_rows: Of a pass.
        watch: Who is shown hidden states, if any.
    """
    try:
        read_rest(target, sequence, prompt, most_rows, watch)
    except BaseException:
        # Interrupted: nobody will learn the name, so nobody could free it.
        target.free(sequence)
        raise


def read_rest(
    target: Target,
    sequence: int,
    rest: Sequence[int],
    most_rows: int,
    watch: Watch | None = None,
) -> None:
    """Score and commit what is left of a sequence's prompt; `read_prompt` says how.

    Args:
        target: Whose sequence it is.
        sequence: Holds what stands before.
        rest: To be read.
        most_rows: Of a pass.
        watch: Who is shown hidden states, if any.
    """
    done = 0
    while done < len(rest):
        start, chunk = target.length(sequence), rest[done : done + most_rows]
        rows = [Row(sequence, token, start + i, i - 1) for i, token in enumerate(chunk)]
        try:
            scores = target.score(rows, logits=(), layers=() if watch is None else watch.layers)
        except NotEnoughMemoryError:
            if len(rows) == 1:
                raise
            most_rows = len(rows) // 2
            continue
        target.commit(sequence, range(len(rows)))
        if watch is not None:
            watch.see(start, scores.hidden)
        done += len(rows)


def check_asked(
    num_rows: int, logits: Iterable[int], layers: Iterable[int], num_layers: int
) -> None:
    """Check that what is asked of a pass is there.

    Raises:
        EngineError: Logits of an unknown row, or hidden states of an unknown layer.
    """
    for index in logits:
        if not 0 <= index < num_rows:
            raise EngineError(f"Logits of row {index} of {num_rows} are asked for.")
    for layer in layers:
        if not 0 <= layer <= num_layers:
            raise EngineError(f"Hidden states of layer {layer} of {num_layers} are asked for.")


def check_until(until: int | None, num_layers: int) -> None:
    """Check that a pass can end after that many layers.

    Raises:
        CapabilityError: This target has no layers that it could run alone.
        EngineError: It has not so many.
    """
    if until is None:
        return
    if num_layers == 0:
        raise CapabilityError("This target's passes are whole.", "Leave `until` out.")
    if not 1 <= until <= num_layers:
        raise EngineError(f"A pass until layer {until} of {num_layers} is asked for.")


def check_rows(
    rows: Sequence[Row], lengths: Mapping[int, int], vocab_size: int, context_length: int
) -> None:
    """Check that rows can be scored together, for targets to call first.

    Args:
        rows: The rows of one pass.
        lengths: Committed length of each known sequence.
        vocab_size: Tokens are in [0, vocab_size).
        context_length: Positions are in [0, context_length).

    Raises:
        EngineError: The first row that is wrong, and why.
    """
    for index, row in enumerate(rows):
        if row.sequence not in lengths:
            raise EngineError(f"Row {index} names sequence {row.sequence}, which is not open.")
        if row.position >= context_length:
            raise EngineError(f"Row {index} stands at {row.position} of {context_length}.")
        if not 0 <= row.token < vocab_size:
            raise EngineError(f"Row {index} has token {row.token} of {vocab_size}.")
        if row.parent == -1:
            expected = lengths[row.sequence]
        elif 0 <= row.parent < index and rows[row.parent].sequence == row.sequence:
            expected = rows[row.parent].position + 1
        else:
            raise EngineError(
                f"Row {index} has parent {row.parent}, which is no earlier row of it."
            )
        if row.position != expected:
            raise EngineError(f"Row {index} stands at {row.position}, its parent asks {expected}.")
