"""The reference target against transformers, in float32 on the same dequantised weights."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from forerun.models.gguf_file import GGUFFile
from forerun.models.model import Model, load_model
from forerun.targets.protocol import Row
from forerun.targets.reference import ReferenceTarget
from models.tiny_gguf import Tiny

pytestmark = pytest.mark.judge

Array = NDArray[np.float32]

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
TRAINED_FOR = 64

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n    ",
    "Photosynthesis is the process by which",
    "1, 2, 3, 4, 5,",
    "Dear Sir or Madam,\n\nI am writing to",
    "The three laws of motion are:\n1.",
    "Water boils at",
    "import numpy as np\n\n# Compute the mean of each row\n",
    "In 1969, two people",
    "Ingredients: flour, sugar, eggs.\nMethod:",
    "The opposite of hot is",
    "Q: What is the largest planet?\nA:",
    "Roses are red,",
    "<|im_start|>user\nSay hello.<|im_end|>\n<|im_start|>assistant\n",
    "To be, or not to be,",
    "A triangle has three sides, a square has",
    "SELECT name FROM users WHERE",
    "My favourite season is autumn because",
    "The mitochondria",
]


def llama3_factors(tiny: Tiny) -> tuple[float, ...]:
    """Each pair's factor as a converter writes it for Llama 3's scaling."""
    factors = []
    for exponent in np.arange(0, tiny.head_dim, 2) / tiny.head_dim:
        wavelength = 2 * math.pi * tiny.rope_base**exponent
        low, high = LLAMA3["low_freq_factor"], LLAMA3["high_freq_factor"]
        smooth = (TRAINED_FOR / wavelength - low) / (high - low)
        smooth = min(max(smooth, 0.0), 1.0)
        factors.append(1 / ((1 - smooth) / LLAMA3["factor"] + smooth))
    return tuple(factors)


def judge_of(model: Model, **extra: Any) -> Any:
    """The same network in transformers, with the file's dequantised weights."""
    import torch
    import transformers

    own = model.architecture
    family = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "smollm3": "SmolLM3"}[own.name]
    config = getattr(transformers, f"{family}Config")(
        vocab_size=own.vocab_size,
        hidden_size=own.width,
        num_hidden_layers=own.num_layers,
        num_attention_heads=own.num_heads,
        num_key_value_heads=own.num_kv_heads,
        head_dim=own.head_dim,
        pad_token_id=None,
        intermediate_size=own.inner_width,
        max_position_embeddings=own.context_length,
        rms_norm_eps=own.norm_epsilon,
        tie_word_embeddings=own.is_tied,
        rope_parameters={"rope_type": "default", "rope_theta": own.rope.base, **extra},
        attn_implementation="eager",
    )
    network = getattr(transformers, f"{family}ForCausalLM")(config).float().eval()
    state = {name: torch.from_numpy(value) for name, value in judged_weights(model).items()}
    missing, unexpected = network.load_state_dict(state, strict=False)
    assert unexpected == []
    assert set(missing) <= {"lm_head.weight"}
    network.tie_weights()
    return network


def judged_weights(model: Model) -> dict[str, Array]:
    """The file's weights under transformers' names, with its order of turning pairs."""
    own, file = model.architecture, model.file
    names = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
    names |= {f"attn_{letter}": f"self_attn.{letter}_proj" for letter in "qkv"}
    names |= {f"attn_{letter}_norm": f"self_attn.{letter}_norm" for letter in "qk"}
    names |= {f"ffn_{part}": f"mlp.{part}_proj" for part in ("gate", "up", "down")}
    names["attn_output"] = "self_attn.o_proj"
    weights = {
        "model.embed_tokens.weight": tensor(file, "token_embd.weight"),
        "model.norm.weight": tensor(file, "output_norm.weight"),
    }
    if not own.is_tied:
        weights["lm_head.weight"] = tensor(file, "output.weight")
    for layer in range(own.num_layers):
        for full, _ in own.layer_shapes():
            name, kind = full.rsplit(".", 1)
            value = tensor(file, f"blk.{layer}.{full}")
            if own.rope.interleaved and name in ("attn_q", "attn_k"):
                # Neighbouring pairs here, halves there.
                pairs = value.reshape(-1, own.head_dim // 2, 2, *value.shape[1:])
                value = np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(value.shape)
            weights[f"model.layers.{layer}.{names[name]}.{kind}"] = value
    return weights


def tensor(file: GGUFFile, name: str) -> Array:
    """A copy that may be written to, as torch wants it."""
    return np.array(file.tensor(name))


def judged(network: Any, tokens: list[int]) -> Array:
    """Logits of every token of a text."""
    import torch

    with torch.no_grad():
        result: Array = network(torch.tensor([tokens])).logits[0].numpy()
    return result


def chain(sequence: int, start: int, tokens: list[int]) -> list[Row]:
    """A chain of rows from the committed end."""
    return [Row(sequence, token, start + i, i - 1) for i, token in enumerate(tokens)]


TINY = {
    "llama": (Tiny(is_tied=False, context=256), {}),
    "qwen2": (Tiny("qwen2", context=256), {}),
    "qwen3": (Tiny("qwen3", head_dim=12, context=256), {}),
    "smollm3": (Tiny("smollm3", layers=5, context=256), {}),
    "llama 3": (
        Tiny(rope_factors=llama3_factors(Tiny()), context=256),
        {"rope_type": "llama3", "original_max_position_embeddings": TRAINED_FOR, **LLAMA3},
    ),
    "linear": (
        Tiny(
            metadata={"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0},
            context=256,
        ),
        {"rope_type": "linear", "factor": 4.0},
    ),
}


@pytest.mark.parametrize("case", TINY)
def test_tiny_networks(tmp_path: Path, case: str) -> None:
    """Every family, and both ways to stretch the context, give transformers' logits."""
    tiny, extra = TINY[case]
    model = load_model(tiny.write(tmp_path / "tiny.gguf"))
    tokens = [int(token) for token in np.random.default_rng(0).integers(0, 300, 200)]
    target = ReferenceTarget(model)
    logits = target.score(chain(target.open(), 0, tokens)).logits
    np.testing.assert_allclose(logits, judged(judge_of(model, **extra), tokens), atol=1e-4)
    if extra:
        plain = judged(judge_of(model), tokens)
        assert np.abs(plain - logits).max() > 1e-2


@pytest.fixture(scope="module")
def sides() -> tuple[ReferenceTarget, Any]:
    """The default model on both sides."""
    model = load_model("smollm2")
    return ReferenceTarget(model), judge_of(model)


def write_greedily(
    target: ReferenceTarget, prompts: list[list[int]], count: int
) -> list[list[int]]:
    """Continue all prompts together, one row each a pass, ties to the lowest id."""
    texts = [list(prompt) for prompt in prompts]
    names = [target.open(prompt[:-1]) for prompt in prompts]
    for _ in range(count):
        rows = [
            Row(name, text[-1], len(text) - 1, -1) for name, text in zip(names, texts, strict=True)
        ]
        for text, best in zip(texts, target.score(rows).logits.argmax(axis=1), strict=True):
            text.append(int(best))
        for index, name in enumerate(names):
            target.commit(name, [index])
    for name in names:
        target.free(name)
    return texts


def check_default_model(sides: tuple[ReferenceTarget, Any], prompts: list[str], count: int) -> None:
    """Same greedy tokens, and all logits of prompt and text within 2e-3."""
    target, network = sides
    encode = target.model.tokenizer.encode
    encoded = [encode(prompt, special=True) for prompt in prompts]
    for prompt, text in zip(encoded, write_greedily(target, encoded, count), strict=True):
        expected = judged(network, text)
        # Its choice after our text so far is our next token, at every step: the texts are equal.
        chosen = expected[len(prompt) - 1 : -1].argmax(axis=1)
        assert chosen.tolist() == text[len(prompt) :]
        logits = target.score(chain(name := target.open(), 0, text)).logits
        assert np.abs(logits - expected).max() < 2e-3
        target.free(name)


@pytest.mark.model
def test_default_model_on_three_prompts(sides: tuple[ReferenceTarget, Any]) -> None:
    """The default model writes what transformers writes."""
    check_default_model(sides, PROMPTS[:3], 16)


@pytest.mark.model
@pytest.mark.slow
def test_default_model_on_twenty_prompts(sides: tuple[ReferenceTarget, Any]) -> None:
    """The default model writes what transformers writes, 64 tokens after each of 20 prompts."""
    check_default_model(sides, PROMPTS, 64)
