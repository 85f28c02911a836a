"""Tiny seeded networks of transformers' families: real code, untrained weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["FAMILIES", "tiny_network", "tiny_pair"]


class Family(NamedTuple):
    """One family.

    Attributes:
        config: Its configuration's class.
        network: Its model's class.
        changes: What its configuration says otherwise.
    """

    config: str
    network: str
    changes: Mapping[str, Any]


_USUAL: Mapping[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
_STATE = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_d_state": 8}
_WINDOW = {"sliding_window": 5}
_WIDE = {"head_dim": 12, "query_pre_attn_scalar": 12}
_ENCODER = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
    "tie_word_embeddings": False,
}
_OLDER = {"hidden_size": 32, "n_layer": 2, "n_head": 4}

# How each spells its numbers; a window of 5 is shorter than any text of the tests.
FAMILIES: Mapping[str, Family] = {
    "llama": Family("LlamaConfig", "LlamaForCausalLM", _USUAL),
    "qwen2": Family("Qwen2Config", "Qwen2ForCausalLM", _USUAL),
    "qwen3": Family("Qwen3Config", "Qwen3ForCausalLM", {**_USUAL, "head_dim": 12}),
    "mistral": Family("MistralConfig", "MistralForCausalLM", {**_USUAL, **_WINDOW}),
    "gemma2": Family("Gemma2Config", "Gemma2ForCausalLM", {**_USUAL, **_WINDOW, **_WIDE}),
    "gemma3": Family("Gemma3TextConfig", "Gemma3ForCausalLM", {**_USUAL, **_WINDOW, **_WIDE}),
    "gpt2": Family("GPT2Config", "GPT2LMHeadModel", {**_OLDER, "n_embd": 32, "n_positions": 64}),
    "gpt_neox": Family("GPTNeoXConfig", "GPTNeoXForCausalLM", _USUAL),
    "opt": Family(
        "OPTConfig", "OPTForCausalLM", {**_USUAL, "ffn_dim": 48, "word_embed_proj_dim": 32}
    ),
    "phi": Family("PhiConfig", "PhiForCausalLM", _USUAL),
    "falcon": Family("FalconConfig", "FalconForCausalLM", {**_USUAL, "alibi": True}),
    "bloom": Family("BloomConfig", "BloomForCausalLM", _OLDER),
    "gpt_neo": Family(
        "GPTNeoConfig",
        "GPTNeoForCausalLM",
        {
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 5,
            "max_position_embeddings": 64,
        },
    ),
    "t5": Family(
        "T5Config",
        "T5ForConditionalGeneration",
        {
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 48,
            "num_layers": 2,
            "num_decoder_layers": 2,
            "num_heads": 4,
            "pad_token_id": 0,
            "decoder_start_token_id": 0,
            "relative_attention_num_buckets": 8,
            "relative_attention_max_distance": 12,
            "initializer_factor": 2.0,
            "tie_word_embeddings": False,
        },
    ),
    "bart": Family("BartConfig", "BartForConditionalGeneration", _ENCODER),
    "mbart": Family("MBartConfig", "MBartForConditionalGeneration", _ENCODER),
    "marian": Family("MarianConfig", "MarianMTModel", _ENCODER),
    "pegasus": Family("PegasusConfig", "PegasusForConditionalGeneration", _ENCODER),
    "m2m_100": Family("M2M100Config", "M2M100ForConditionalGeneration", _ENCODER),
    "mamba": Family("MambaConfig", "MambaForCausalLM", {"hidden_size": 32, "num_hidden_layers": 2}),
    "jamba": Family("JambaConfig", "JambaForCausalLM", {**_USUAL, "num_experts": 2}),
    "bamba": Family(
        "BambaConfig", "BambaForCausalLM", {**_USUAL, **_STATE, "attn_layer_indices": [1]}
    ),
    "falcon_h1": Family(
        "FalconH1Config", "FalconH1ForCausalLM", {**_USUAL, **_STATE, "mamba_d_ssm": 64}
    ),
    "lfm2": Family(
        "Lfm2Config", "Lfm2ForCausalLM", {**_USUAL, "layer_types": ["conv", "full_attention"]}
    ),
    "qwen3_next": Family(
        "Qwen3NextConfig",
        "Qwen3NextForCausalLM",
        {
            **_USUAL,
            "layer_types": ["linear_attention", "full_attention"],
            "num_experts": 2,
            "num_experts_per_tok": 1,
            "moe_intermediate_size": 16,
            "shared_expert_intermediate_size": 16,
        },
    ),
    "openai_gpt": Family("OpenAIGPTConfig", "OpenAIGPTLMHeadModel", {**_OLDER, "n_embd": 32}),
}


def tiny_network(family: str, *, seed: int = 0, vocab_size: int = 61, **changes: Any) -> Any:
    """Return a network whose logits tell texts apart: the same one each time."""
    import torch
    import transformers

    spec = FAMILIES[family]
    names = {"vocab_size": vocab_size, "pad_token_id": None, "bos_token_id": 0, "eos_token_id": 1}
    config = getattr(transformers, spec.config)(**{**names, **spec.changes, **changes})
    torch.manual_seed(seed)
    return _talkative(getattr(transformers, spec.network)(config))


def tiny_pair(decoder: str, *, width: int = 32, vocab_size: int = 61) -> Any:
    """Return a BERT whose states a decoder of another family, or of its own, attends to.

    Args:
        decoder: bert or gpt2.
        width: Of the encoder; other than 32 its states are made as wide as the decoder first.
        vocab_size: Of both.
    """
    import torch
    import transformers

    sizes = {"vocab_size": vocab_size, "num_hidden_layers": 2, "num_attention_heads": 4}
    crossed = {**sizes, "is_decoder": True, "add_cross_attention": True, "hidden_size": 32}
    kinds = {"bert": transformers.BertConfig, "gpt2": transformers.GPT2Config}
    long = {"max_position_embeddings": 64, "bos_token_id": 0, "eos_token_id": 1}
    config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(
        transformers.BertConfig(**sizes, **long, hidden_size=width, intermediate_size=48),
        kinds[decoder](**crossed, **long),
    )
    config.decoder_start_token_id, config.pad_token_id = 2, 0
    torch.manual_seed(0)
    network = _talkative(transformers.EncoderDecoderModel(config))
    network.generation_config.decoder_start_token_id = 2
    return network


def _talkative(network: Any) -> Any:
    """Give a network weights whose logits tell texts apart."""
    import torch

    network.eval()
    with torch.no_grad():
        for weight in network.parameters():  # norms are ones and biases zeros before training
            is_matrix = weight.ndim > 1
            weight.add_(torch.randn_like(weight) * (0.15 if is_matrix else 0.1))
    return network
