"""Writes the texts that `generate` of transformers has prepared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers.generation.utils import (
    GenerateDecoderOnlyOutput,
    GenerateEncoderDecoderOutput,
)

from forerun.config import Generation
from forerun.drafters.table import drafter_names
from forerun.engine.request import Ask
from forerun.errors import OptionError
from forerun.events import Result, TokenEvent
from forerun.hf.asked import Batch, check_asked, read_batch
from forerun.hf.criteria import CriteriaStop
from forerun.hf.processors import Processors, ProcessorWarp, of_one_text
from forerun.hf.runner import Runner, runner_of
from forerun.hf.sources import is_known, read_sources
from forerun.hf.wishes import Wishes
from forerun.targets.transformers_source import ReadTokens

__all__ = ["write"]


def write(
    model: Any,
    input_ids: torch.Tensor,
    prepared: tuple[list[Any], list[Any], Any],
    wishes: Wishes,
    given: Mapping[str, Any],
) -> Any:
    """Write texts and return them as `generate` does.

    Args:
        model: The target.
        input_ids: [texts, tokens] int64.
        prepared: Processors, criteria and the configuration.
        wishes: Of drafts and chance.
        given: For the model's passes; and a streamer, an assistant model, what an encoder read.

    Raises:
        OptionError: Something is asked for that can't be had with drafts.
        UnsupportedModelError: The model can't be a target.
        PromptError: A row holds nothing, or padding stands in its middle.
    """
    *_, config = prepared
    config = config if config is not None else model.generation_config
    runner = runner_of(model)
    check_asked(config, given, len(input_ids))
    has_encoder = bool(model.config.is_encoder_decoder)
    batch = read_batch(
        input_ids, given, "decoder_attention_mask" if has_encoder else "attention_mask"
    )
    if has_encoder:
        batch.sources = read_sources(model, len(input_ids), given)
        _check_read(batch.sources, wishes)
    with runner.lock:
        asks = _asks(runner, batch, prepared[:2], config, wishes)
        texts = _written(runner, asks, wishes, given.get("streamer"))
    sequences = batch.continued(texts, config)
    if config.return_dict_in_generate:
        kind = GenerateEncoderDecoderOutput if has_encoder else GenerateDecoderOnlyOutput
        return kind(sequences=sequences)
    return sequences


def _check_read(sources: Sequence[ReadTokens], wishes: Wishes) -> None:
    """Refuse a draft model whose encoder would have nothing to read."""
    if "model" in drafter_names(wishes.drafter) and not is_known(sources):
        what = "Drafter 'model' reads the prompt, and encoder_outputs alone don't tell it."
        raise OptionError(what, "Give input_ids beside them, or another drafter.")


def _options(config: Any, wishes: Wishes) -> dict[str, Any]:
    return {
        "drafter": wishes.drafter,
        "draft_length": wishes.draft_length,
        "draft_width": wishes.draft_width,
        "temperature": (config.temperature or 1.0) if config.do_sample else 0.0,
    }


def _seed() -> int:
    """Return a seed as torch's generator, which the user may have seeded, draws one."""
    return int(torch.randint(1 << 62, (1,)))


def _asks(
    runner: Runner,
    batch: Batch,
    prepared: tuple[list[Any], list[Any]],
    config: Any,
    wishes: Wishes,
) -> list[Ask]:
    """Return what is asked of the engine, a text each; equal prompts get samples of their own."""
    processors, criteria = prepared
    seed = _seed() if wishes.seed is None else wishes.seed
    options = _options(config, wishes)
    seen: dict[tuple[Any, ...], int] = {}
    asks = []
    for row, prompt in enumerate(batch.prompts):
        padded = batch.rows[row : row + 1]
        stop = CriteriaStop(criteria, padded, config.max_length)
        room = runner.target.context_length - len(prompt)
        if stop.left > room:
            what = f"A text of {len(prompt)} tokens shall grow by {stop.left}, and "
            what += f"the model has positions for {runner.target.context_length}."
            raise OptionError(what, f"Give max_new_tokens of at most {room}.")
        given = Generation(max_tokens=max(stop.left, 1), **options)
        warp = None
        if processors:
            own = Processors(of_one_text(processors, row, len(batch.prompts)), padded)
            warp = ProcessorWarp(own, given, runner.target.vocab_size)
        source = batch.sources[row] if batch.sources else None
        key = prompt, id(source)
        seen[key] = seen.get(key, -1) + 1
        more: dict[str, Any] = {"source": source, "warp": warp, "stop": stop}
        asks.append(Ask(prompt, given, seed, stop.ends, _Silent(), sample=seen[key], **more))
    return asks


def _written(
    runner: Runner, asks: Sequence[Ask], wishes: Wishes, streamer: Any
) -> list[tuple[int, ...]]:
    """Write all texts and return their tokens; each is told to the streamer as it comes."""
    found: dict[int, tuple[int, ...]] = {}
    for event in runner.run(asks, wishes.draft_model, wishes.draft_layers):
        if isinstance(event, Result):
            found[event.request] = event.token_ids
        elif isinstance(event, TokenEvent) and streamer is not None:
            streamer.put(torch.tensor([event.token], device="cpu"))
    if streamer is not None:
        streamer.end()
    return [found[request] for request in sorted(found)]


class _Silent:
    """Texts are told by their tokens."""

    def push(self, token: int) -> str:
        return ""

    def flush(self) -> str:
        return ""
