"""What a Hugging Face folder's config.json says the network is.

The same family of networks as in `architecture`, under other names and with transformers' defaults.
Pairs of components turn as halves here: GGUF's `llama` files hold the rows of q and k in another
order. Whatever changes the pass and is not implemented is refused by name, never ignored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from forerun.errors import UnsupportedModelError
from forerun.models.architecture import Architecture, Rope
from forerun.models.facts import UNSUPPORTED, Facts
from forerun.models.weight_file import WeightFile

__all__ = ["read_architecture"]


@dataclass(frozen=True, slots=True)
class _Family:
    """What transformers takes for granted in one model_type."""

    architecture: str
    causal: str
    is_tied: bool = False
    rope_base: float = 10000.0


_FAMILIES = {
    "llama": _Family("llama", "LlamaForCausalLM"),
    "mistral": _Family("llama", "MistralForCausalLM"),
    "qwen2": _Family("qwen2", "Qwen2ForCausalLM"),
    "qwen3": _Family("qwen3", "Qwen3ForCausalLM"),
    "smollm3": _Family("smollm3", "SmolLM3ForCausalLM", is_tied=True, rope_base=2e6),
}

# Details that would change the pass, with the values at which they do not.
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "attention_bias": (None, False),
    "auto_map": (None,),
    "compression_config": (None,),
    "hidden_act": (None, "silu", "swish"),
    "mlp_bias": (None, False),
    "quantization_config": (None,),
}
_ROPE_KEYS = {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}


def read_architecture(
    path: Path, config: Mapping[str, object], weights: WeightFile
) -> Architecture:
    """Read the architecture and check every number and every tensor's shape.

    Args:
        path: The folder.
        config: Its config.json.
        weights: Its weights.

    Raises:
        ModelFileError: A number is missing or impossible, or a tensor is missing or misshapen.
        UnsupportedModelError: The model needs something that is not implemented; it is named.
    """
    facts = _Config(path, config)
    family = facts.family()
    facts.check_neutral(family)
    width, heads = facts.whole("hidden_size"), facts.whole("num_attention_heads")
    kv_heads = facts.whole("num_key_value_heads", heads)
    if heads % kv_heads:
        facts.damaged(f"{heads} heads over {kv_heads} key-value heads")
    if facts.get("head_dim") is None and width % heads:
        facts.damaged(f"{heads} heads in a width of {width}")
    head_dim = facts.head_dim("head_dim", max(width // heads, 1))
    layers = facts.layers(len(weights.tensor_names))
    is_tied = facts.flag("tie_word_embeddings", family.is_tied)
    architecture = Architecture(
        name=family.architecture,
        vocab_size=facts.whole("vocab_size"),
        width=width,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        inner_width=facts.whole("intermediate_size"),
        context_length=facts.context_length(layers),
        norm_epsilon=facts.real("rms_norm_eps", 1e-6, upper=1.0),
        rope=facts.rope(head_dim, family.rope_base),
        has_qkv_bias=family.architecture == "qwen2",
        has_qk_norm=family.architecture == "qwen3",
        # A head of its own is used even if the config says it is the embedding.
        is_tied=is_tied and "output.weight" not in weights,
        unturned_layers=facts.unturned_layers(layers),
    )
    architecture.check_tensors(weights)
    return architecture


class _Config(Facts):
    """The contents of config.json, typed and checked."""

    def __init__(self, path: Path, config: Mapping[str, object]) -> None:
        super().__init__(path / "config.json")
        self._config = config

    def get(self, key: str, default: object = None) -> object:
        value = self._config.get(key)
        return default if value is None else value

    def flag(self, key: str, default: bool) -> bool:
        value = self.get(key, default)
        if not isinstance(value, bool):
            self.damaged(f"{key} = {value!r:.80}")
        return value

    def family(self) -> _Family:
        name = self.get("model_type")
        if not isinstance(name, str):
            self.damaged(f"the model_type {name!r:.80}")
        if name not in _FAMILIES:
            raise UnsupportedModelError(f"{self.path}: model_type {name!r:.80}.", UNSUPPORTED)
        return _FAMILIES[name]

    def check_neutral(self, family: _Family) -> None:
        for key, neutral in _NEUTRAL.items():
            value = self._config.get(key)
            if value not in neutral:
                self.unsupported(f"{key} = {str(value)[:60]}")
        named = self.get("architectures", [family.causal])
        if not isinstance(named, list) or family.causal not in named:
            self.unsupported(f"the architecture {str(named)[:60]}, not {family.causal}")

    def layers(self, tensors: int) -> int:
        count = self.whole("num_hidden_layers")
        if count > tensors:
            self.damaged(f"{count} layers of {tensors} tensors in all")
        return count

    def context_length(self, layers: int) -> int:
        """A window that never slides within the context is none."""
        length = self.whole("max_position_embeddings")
        kinds = self.get("layer_types", [])
        if not isinstance(kinds, list) or len(kinds) not in (0, layers):
            self.damaged(f"layer_types = {kinds!r:.60} of {layers} layers")
        strange = [kind for kind in kinds if kind not in ("full_attention", "sliding_attention")]
        if strange:
            self.unsupported(f"a layer of type {strange[0]!r:.60}")
        window = self.get("sliding_window")
        slides = self.flag("use_sliding_window", True) and (
            not kinds or "sliding_attention" in kinds
        )
        if slides and window is not None and (type(window) is not int or window < length):
            self.unsupported(f"a sliding window of {window!r:.60} in a context of {length}")
        return length

    def unturned_layers(self, layers: int) -> frozenset[int]:
        if self.get("model_type") != "smollm3":
            return frozenset()
        turning = self.get("no_rope_layers")
        if turning is None:
            step = self.whole("no_rope_layer_interval", 4)
            return frozenset(range(step - 1, layers, step))
        if not isinstance(turning, list) or len(turning) < layers:
            self.damaged(f"no_rope_layers = {turning!r:.60} for {layers} layers")
        if any(type(turns) not in (int, bool) or turns not in (0, 1) for turns in turning):
            self.damaged(f"no_rope_layers = {turning!r:.60}")
        return frozenset(layer for layer in range(layers) if not turning[layer])

    def rope(self, head_dim: int, base: float) -> Rope:
        scaling = self.get("rope_parameters") or self.get("rope_scaling") or {}
        if not isinstance(scaling, dict):
            self.damaged(f"rope parameters {scaling!r:.80}")
        kind = scaling.get("rope_type", scaling.get("type", "default"))
        base = self.checked_real(
            "rope_theta", scaling.get("rope_theta", self.get("rope_theta", base))
        )
        if head_dim % 2:
            self.damaged(f"{head_dim} turning components")
        if kind not in ("default", "linear", "llama3"):
            self.unsupported(f"rope scaling {kind!r:.60}")
        partial = scaling.get("partial_rotary_factor", self.get("partial_rotary_factor", 1.0))
        strange = scaling.keys() - _ROPE_KEYS - {"rope_type", "type", "rope_theta"}
        if partial != 1 or strange - {"partial_rotary_factor"}:
            self.unsupported(f"rope parameters {str(scaling)[:120]}")
        factors = (1.0,) * (head_dim // 2)
        if kind == "linear":
            factors = (self.checked_real("factor", scaling.get("factor")),) * (head_dim // 2)
        elif kind == "llama3":
            numbers = {key: self.checked_real(key, scaling.get(key)) for key in _ROPE_KEYS}
            if numbers["low_freq_factor"] >= numbers["high_freq_factor"]:
                self.damaged(f"rope parameters {str(scaling)[:120]}")
            factors = _llama3_factors(head_dim, base, numbers)
        return Rope(False, head_dim, base, factors)


def _llama3_factors(head_dim: int, base: float, numbers: Mapping[str, float]) -> tuple[float, ...]:
    """Return by how much each pair turns slower: short waves as ever, long ones `factor` times."""
    low, high = numbers["low_freq_factor"], numbers["high_freq_factor"]
    factors = []
    for i in range(0, head_dim, 2):
        wavelength = 2 * math.pi * base ** (i / head_dim)
        waves = numbers["original_max_position_embeddings"] / wavelength
        unchanged = min(max((waves - low) / (high - low), 0.0), 1.0)
        factors.append(1 / ((1 - unchanged) / numbers["factor"] + unchanged))
    return tuple(factors)
