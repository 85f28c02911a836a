"""Folders that transformers wrote, against transformers itself: logits, texts, tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from forerun.models.model import load_model
from forerun.targets.native import NativeTarget
from forerun.targets.protocol import Row, Target
from forerun.targets.reference import ReferenceTarget
from models.tiny_folder import byte_tokenizer, write_json

pytestmark = pytest.mark.judge

SIZE = 300
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
# transformers' name of the family, what its configuration adds, the type it is saved in.
CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "llama": ("Llama", {}, "float32"),
    "llama, tied, bf16": ("Llama", {"tie_word_embeddings": True}, "bfloat16"),
    "llama 3": ("Llama", {"rope_parameters": {"rope_theta": 5e5, **LLAMA3}}, "float32"),
    "linear": ("Llama", {"rope_parameters": {"rope_type": "linear", "factor": 4.0}}, "float16"),
    "mistral": ("Mistral", {"sliding_window": None, "head_dim": 10}, "float32"),
    "mistral, wide": ("Mistral", {"sliding_window": 4096}, "bfloat16"),
    "qwen2": ("Qwen2", {}, "bfloat16"),
    "qwen3": ("Qwen3", {"head_dim": 12, "tie_word_embeddings": True}, "float16"),
    "smollm3": ("SmolLM3", {"num_hidden_layers": 5}, "float32"),
    "smollm3, own layers": (
        "SmolLM3",
        {"no_rope_layers": [0, 1, 0], "tie_word_embeddings": False},
        "bfloat16",
    ),
}


def saved(case: str, folder: Path, **how: Any) -> Any:
    """Save a seeded network of a family with a tokenizer, and return it in float32."""
    import torch
    import transformers

    family, extra, dtype = CASES[case]
    values: dict[str, Any] = {"vocab_size": SIZE, "hidden_size": 32, "num_hidden_layers": 3}
    values |= {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48}
    values |= {"max_position_embeddings": 256, "pad_token_id": None, "bos_token_id": 0}
    values |= {"eos_token_id": 1, "attn_implementation": "eager", "initializer_range": 0.2}
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**(values | extra))
    network = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    with torch.no_grad():
        for weight in network.parameters():
            if weight.ndim == 1:  # norms are ones and biases zeros before training
                weight.add_(0.25 * torch.randn_like(weight))
    network.to(getattr(torch, dtype)).save_pretrained(folder, **how)
    write_json(folder / "tokenizer.json", byte_tokenizer(SIZE))
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})
    # Read anew: to another type and back, the network itself has coarser positions.
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )


def scored(target: Target, tokens: list[int]) -> NDArray[np.float32]:
    """Logits of every token of a text."""
    name = target.open()
    rows = [Row(name, token, place, place - 1) for place, token in enumerate(tokens)]
    logits = target.score(rows).logits
    target.free(name)
    return logits


def judged(network: Any, tokens: list[int]) -> NDArray[np.float32]:
    """Logits of every token of a text, by the judge."""
    import torch

    with torch.no_grad():
        result: NDArray[np.float32] = network(torch.tensor([tokens])).logits[0].numpy()
    return result


def written(target: Target, prompt: list[int], count: int) -> list[int]:
    """Tokens after a prompt, each the likeliest."""
    name, text = target.open(prompt[:-1]), list(prompt)
    for _ in range(count):
        row = Row(name, text[-1], len(text) - 1, -1)
        text.append(int(target.score([row]).logits[0].argmax()))
        target.commit(name, [0])
    return text[len(prompt) :]


@pytest.mark.parametrize("case", CASES)
def test_every_family_is_transformers(tmp_path: Path, case: str) -> None:
    """Logits within 1e-4 of transformers' in float32, on both targets, and the same greedy text."""
    import torch

    network = saved(case, tmp_path)
    model = load_model(tmp_path)
    tokens = [int(token) for token in np.random.default_rng(0).integers(0, SIZE, 200)]
    expected = judged(network, tokens)
    prompt = torch.tensor([tokens[:9]])
    options = {"max_new_tokens": 40, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    text = network.generate(prompt, **options)[0, 9:].tolist()
    for target in (ReferenceTarget(model), NativeTarget(model, kv_bits=32)):
        np.testing.assert_allclose(scored(target, tokens), expected, atol=1e-4)
        assert written(target, tokens[:9], 40) == text


def test_cases_can_fail(tmp_path: Path) -> None:
    """What tells the cases apart moves the logits by far more than the bound."""
    tokens = [int(token) for token in np.random.default_rng(0).integers(0, SIZE, 200)]
    for case, plain in (("llama 3", {"rope_theta": 5e5}), ("linear", None), ("smollm3", None)):
        folder = tmp_path / case.replace(" ", "")
        expected = judged(saved(case, folder), tokens)
        config = {"rope_parameters": plain, "no_rope_layers": [1] * 5}
        edit(folder / "config.json", **config)
        found = scored(ReferenceTarget(load_model(folder)), tokens)
        assert np.abs(found - expected).max() > 1e-2


def edit(path: Path, **changes: Any) -> None:
    """Change keys of a JSON file."""
    import json

    write_json(path, json.loads(path.read_text()) | changes)


def test_shards_of_transformers(tmp_path: Path) -> None:
    """A model saved in pieces has the bytes of the same model in one file."""
    saved("qwen3", tmp_path / "one")
    saved("qwen3", tmp_path / "many", max_shard_size="20KB")
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 2
    one, many = (load_model(tmp_path / name).file for name in ("one", "many"))
    assert set(one.tensor_names) == set(many.tensor_names)
    for name in one.tensor_names:
        np.testing.assert_array_equal(one.raw(name), many.raw(name))


TEXTS = (
    "the hen is here",
    "  two  spaces\n\nand\ttabs ",
    "1234 Ünïcode 你好 🙂 <|im_end|> the<|endoftext|>re",
    "<filling 270> there <filling 271>",
    "",
)


def test_tokens_are_transformers(tmp_path: Path) -> None:
    """Ids and decoded text are those of transformers' tokenizer, special tokens or not."""
    import transformers

    saved("llama", tmp_path)
    ours = load_model(tmp_path).tokenizer
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        ids = theirs.encode(text, add_special_tokens=False)
        assert ours.encode(text, special=True) == ids
        assert ours.decode(ids, special=True) == theirs.decode(ids)
        shown = theirs.decode(ids, skip_special_tokens=True)
        assert ours.decode(ids) == shown
        plain = theirs.encode(text, add_special_tokens=False, split_special_tokens=True)
        assert ours.encode(text) == plain
