"""What no transformers target can be made of, said before anything is run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from forerun.errors import CapabilityError, ModelFileError, OptionError, UnsupportedModelError
from forerun.targets.protocol import Encoder, Row
from forerun.targets.transformers_network import kinds_of
from forerun.targets.transformers_release import cache_parameter, decoder_config

__all__ = ["NO_LIMIT", "check_chains", "check_model", "encoder_of", "longest_context"]

NO_LIMIT = 1 << 20
"""The context of a model that counts no positions, as with ALiBi or relative positions."""

_ROLLED_BACK = {"full_attention", "sliding_attention", "chunked_attention"}
# Their frequencies change where a text grows beyond what the model was first trained for: what was
# stored before no longer fits, and the longest text of a batch would decide for all of it.
_CHANGING_ROPE = {"dynamic", "longrope"}


def check_model(model: Any, name: str) -> None:
    """Check that a model can be a target.

    Raises:
        OptionError: It is no model of transformers, or is being trained.
        ModelFileError: Its weights were not loaded.
        UnsupportedModelError: It keeps nothing from pass to pass, or what can't be rolled back.
    """
    if not isinstance(model, torch.nn.Module) or not hasattr(model, "config"):
        what = f"A {type(model).__name__} is no model of transformers."
        raise OptionError(what, "Give what AutoModelForCausalLM.from_pretrained returns.")
    if model.training:
        what = f"{name} is in training mode, where a pass draws what it drops."
        raise OptionError(what, "Call model.eval() first.")
    if any(each.device.type == "meta" for each in model.parameters()):
        raise ModelFileError(f"{name} has weights that were not loaded.", "Load it to a device.")
    config: Any = model.config
    if model.main_input_name != "input_ids":
        what = f"{name} reads {model.main_input_name!r}, which are no tokens."
        raise UnsupportedModelError(what, "Give a model that reads text.")
    strange = {kind.name for kind in kinds_of(decoder_config(config))} - _ROLLED_BACK
    if getattr(model, "_is_stateful", False):
        strange.add("recurrent")
    if strange:
        kinds = ", ".join(map(repr, sorted(strange)))
        what = f"{name} has layers of kind {kinds}, whose state can't be rolled back to a token."
        raise UnsupportedModelError(what, "Models of attention layers alone can be sped up here.")
    if cache_parameter(model) is None:
        what = f"{name} keeps no keys and values from pass to pass (its forward takes no cache)."
        raise UnsupportedModelError(what, "Each pass would read the whole text: use another.")


def longest_context(model: Any) -> int:
    """Return how many tokens the model has positions for."""
    config = decoder_config(model.config)
    longest = _limit(config, "max_decoder_position_embeddings")
    for rope in _ropes(config):
        if rope.get("rope_type", rope.get("type")) in _CHANGING_ROPE:
            first = rope.get("original_max_position_embeddings")
            first = first or getattr(config, "original_max_position_embeddings", None)
            longest = min(longest, int(first or longest))
    return int(longest)


def encoder_of(model: Any, name: str) -> Encoder | None:
    """Return what is to be known of a model's encoder, or None if it has none.

    The model's own settings say what its texts begin with and what they never hold.

    Raises:
        UnsupportedModelError: They ask for what is not done here.
    """
    if not model.config.is_encoder_decoder:
        return None
    begins = _setting(model, "decoder_start_token_id")
    begins = _setting(model, "bos_token_id") if begins is None else begins
    if type(begins) is not int:
        what = f"{name} does not say what its texts begin with (decoder_start_token_id = {begins})."
        raise UnsupportedModelError(what, "Set it in generation_config.json.")
    forced = _setting(model, "forced_bos_token_id")
    if _setting(model, "begin_suppress_tokens"):
        what = f"{name} has begin_suppress_tokens, tokens that may not come first."
        raise UnsupportedModelError(what, "Run it by transformers itself.")
    words = _several(model, "bad_words_ids")
    if not all(isinstance(word, list) and len(word) == 1 for word in words):
        what = f"{name} has bad_words_ids that are not one token each."
        raise UnsupportedModelError(what, "Take them out of generation_config.json.")
    start = (begins,) if forced is None else (begins, forced)
    banned = (*_several(model, "suppress_tokens"), *(word[0] for word in words))
    size = decoder_config(model.config).vocab_size
    for token in (*start, *banned):
        if type(token) is not int or not 0 <= token < size:
            what = f"{name} is to begin with or to leave out token {token!r:.80} of {size}."
            raise UnsupportedModelError(what, "Set its tokens in generation_config.json.")
    reader = model.get_encoder()
    return Encoder(
        context_length=_limit(reader.config, "max_encoder_position_embeddings"),
        vocab_size=int(reader.get_input_embeddings().weight.shape[0]),
        start=start,
        banned=banned,
    )


def _setting(model: Any, name: str) -> Any:
    """Return what a model's settings for writing say, or its configuration."""
    found = getattr(getattr(model, "generation_config", None), name, None)
    return getattr(model.config, name, None) if found is None else found


def _several(model: Any, name: str) -> list[Any]:
    """Return a setting that is a list, if it is there."""
    found = _setting(model, name)
    return found if isinstance(found, list) else [] if found is None else [found]


def _limit(config: Any, own: str) -> int:
    """Return how many positions there are, by the name that some have for it or by the usual."""
    for name in (own, "max_position_embeddings"):
        if getattr(config, name, None):
            return int(getattr(config, name))
    return NO_LIMIT


def _ropes(config: Any) -> Iterator[Mapping[str, Any]]:
    """Yield what the configuration says of rotary positions, of each kind of layer."""
    said = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    yield said
    yield from (each for each in said.values() if isinstance(each, dict))


def check_chains(rows: Sequence[Row]) -> None:
    """Check that no two rows have one parent.

    Raises:
        CapabilityError: Rows branch.
    """
    seen: set[tuple[int, int]] = set()
    for index, row in enumerate(rows):
        if (row.sequence, row.parent) in seen:
            what = f"Row {index} is the second below its parent, and this target scores chains."
            raise CapabilityError(what, "Give each row one child at most.")
        seen.add((row.sequence, row.parent))
