"""What `generate` of transformers was asked for: texts to write on, and what can't be honoured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers.generation.configuration_utils import GenerationMode

from forerun.errors import OptionError, PromptError
from forerun.targets.transformers_source import ReadTokens

__all__ = ["Batch", "check_asked", "read_batch"]

# What says something that is said by other means, too, or that drafts make no use of.
_KNOWN = {"attention_mask", "position_ids", "logits_to_keep", "use_cache", "return_dict"}
_KNOWN |= {"streamer", "synced_gpus", "cache_position"}
_KNOWN |= {"encoder_outputs", "decoder_attention_mask", "inputs_tensor"}
_CACHES = ("cache", "past_key_values", "cache_params")
_OUTPUTS = ("output_scores", "output_logits", "output_attentions", "output_hidden_states")
_PLAIN = (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE)
_WAYS_OUT = {
    GenerationMode.BEAM_SEARCH: "Use forerun.load(...).beam_search, which finds the same beams; or "
    "leave custom_generate out.",
    GenerationMode.ASSISTED_GENERATION: "Name a drafter instead: drafter='lookup', 'early_exit', "
    "or 'model' with draft_model.",
}


def check_asked(config: Any, given: Mapping[str, Any], count: int) -> None:
    """Refuse what can't be honoured with drafts.

    Args:
        config: The generation's configuration, prepared.
        given: For the model's passes; and a streamer, an assistant model.
        count: How many texts there are.

    Raises:
        OptionError: There is something such.
    """
    mode = config.get_generation_mode(given.get("assistant_model"))
    if mode not in _PLAIN:
        named = mode.value.replace("_", " ")
        way_out = _WAYS_OUT.get(mode, "Leave custom_generate out for it, or its options.")
        what = f"{named.capitalize()} can't be had with drafts inside of generate."
        raise OptionError(what, way_out)
    for name in _OUTPUTS:
        if config.return_dict_in_generate and getattr(config, name, False):
            what = f"{name}: drafts that fail leave what no text has."
            raise OptionError(what, f"Leave {name} out.")
    if given.get("streamer") is not None and count > 1:
        what = f"A streamer hears one text, and there are {count}."
        raise OptionError(what, "Write them one by one, or leave the streamer out.")
    if given.get("synced_gpus"):
        raise OptionError("synced_gpus: passes of other ranks aren't waited for.", "Leave it out.")
    _check_cache(given)
    strange = {name for name, value in given.items() if value is not None}
    strange -= {*_KNOWN, *_CACHES}
    if strange:
        names = ", ".join(sorted(strange))
        what = f"{names}: texts are written on from their tokens alone."
        raise OptionError(what, "Leave it out, or leave custom_generate out.")


def _check_cache(given: Mapping[str, Any]) -> None:
    """Refuse a cache that holds something, or whose owner wants it filled."""
    for name in _CACHES:
        cache = given.get(name)
        if cache is None:
            continue
        if getattr(cache, "_is_user_defined", False) or int(cache.get_seq_length()):
            what = f"{name}: Forerun keeps keys and values of its own."
            raise OptionError(what, "Leave it out; give the whole text.")


class Batch:
    """Texts to write on.

    Args:
        rows: [texts, tokens] int64, padded.
        prompts: Their tokens, without padding.

    Attributes:
        rows: As given.
        prompts: As given.
        sources: What an encoder has read for each; empty without one.
    """

    def __init__(self, rows: torch.Tensor, prompts: Sequence[tuple[int, ...]]) -> None:
        self.rows, self.prompts = rows, prompts
        self.sources: Sequence[ReadTokens] = ()

    def continued(self, texts: Sequence[Sequence[int]], config: Any) -> torch.Tensor:
        """Return the rows with their texts behind them, those that ended earlier filled up.

        Raises:
            OptionError: There is nothing to fill up with.
        """
        longest = max(map(len, texts))
        pad = getattr(config, "_pad_token_tensor", None)
        if pad is None and any(len(text) < longest for text in texts):
            what = "Texts end at different places, and there is no token to fill them up with."
            raise OptionError(what, "Give pad_token_id.")
        fill = 0 if pad is None else int(pad)
        new = [[*text, *[fill] * (longest - len(text))] for text in texts]
        behind = torch.tensor(new, dtype=self.rows.dtype, device=self.rows.device)
        return torch.cat([self.rows, behind.view(len(texts), longest)], dim=1)


def read_batch(rows: torch.Tensor, given: Mapping[str, Any], mask_name: str) -> Batch:
    """Return the texts, whose padding the mask of that name tells.

    Raises:
        PromptError: A row holds nothing, or padding stands in its middle.
        OptionError: Positions are given that aren't those of the tokens.
    """
    mask = given.get(mask_name)
    mask = torch.ones_like(rows) if mask is None else mask
    if mask.shape != rows.shape:
        what = f"The attention mask is {list(mask.shape)} for tokens {list(rows.shape)}."
        raise PromptError(what, "Give one of the same shape.")
    kept = mask.to(rows.device) != 0
    positions = given.get("position_ids")
    if positions is not None:
        counted = (kept.long().cumsum(-1) - 1)[kept]
        if not torch.equal(positions.to(rows.device).expand_as(rows)[kept], counted):
            what = "position_ids: not those of tokens one after the other."
            raise OptionError(what, "Leave them out.")
    prompts = []
    for row, (tokens, held) in enumerate(zip(rows.tolist(), kept.tolist(), strict=True)):
        prompt = tuple(token for token, is_kept in zip(tokens, held, strict=True) if is_kept)
        if not prompt:
            raise PromptError(f"Row {row} holds no token.", "Give at least one.")
        if True in held[held.index(True) :][len(prompt) :]:
            what = f"Row {row} is masked in its middle."
            raise PromptError(what, "Pad rows on one side.")
        prompts.append(prompt)
    return Batch(rows, prompts)
