"""Architectures: what is supported is read exactly, and all else is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun.errors import ModelFileError, OptionError, UnsupportedModelError
from forerun.models.architecture import Architecture
from forerun.models.gguf_file import GGUFFile
from models.tiny_gguf import Tiny


def read(folder: Path, **changes: Any) -> Architecture:
    return Architecture.from_file(GGUFFile.open(Tiny(**changes).write(folder / "tiny.gguf")))


def test_numbers_are_the_files(tmp_path: Path) -> None:
    """Every number comes from its own key."""
    changes: dict[str, Any] = {"vocab_size": 301, "width": 24, "layers": 3, "heads": 6}
    changes |= {"kv_heads": 3, "head_dim": 10, "inner": 50, "context": 77, "rope_base": 5e5}
    found = read(tmp_path, **changes, is_tied=False)
    assert (found.name, found.vocab_size, found.width, found.num_layers) == ("llama", 301, 24, 3)
    assert (found.num_heads, found.num_kv_heads, found.head_dim) == (6, 3, 10)
    assert (found.inner_width, found.context_length, found.is_tied) == (50, 77, False)
    assert found.norm_epsilon == 1e-5
    assert (found.rope.dimension, found.rope.base, found.rope.factors) == (10, 5e5, (1.0,) * 5)


@pytest.mark.parametrize(
    ("name", "interleaved", "bias", "norm"),
    [
        ("llama", True, False, False),
        ("qwen2", False, True, False),
        ("qwen3", False, False, True),
        ("smollm3", True, False, False),
    ],
)
def test_families(tmp_path: Path, name: str, interleaved: bool, bias: bool, norm: bool) -> None:
    """Each family turns its pairs its own way, and has its own biases and norms."""
    found = read(tmp_path, architecture=name)
    assert found.rope.interleaved is interleaved
    assert (found.has_qkv_bias, found.has_qk_norm) == (bias, norm)


def test_defaults(tmp_path: Path) -> None:
    """Keys that files leave out have the values that the format gives them."""
    left_out = ["vocab_size", "attention.head_count_kv", "attention.key_length"]
    left_out += ["attention.value_length", "rope.freq_base"]
    metadata = {f"llama.{key}": None for key in left_out}
    found = read(tmp_path, kv_heads=4, metadata=metadata)
    assert (found.vocab_size, found.num_kv_heads, found.head_dim) == (300, 4, 8)
    assert found.rope.base == 10000.0


def test_frequencies(tmp_path: Path) -> None:
    """Pair i turns by base^(-2i/d), divided by its factor and by a linear stretch."""
    metadata = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    rope = read(tmp_path, rope_base=1e4, rope_factors=(1, 2, 4, 8), metadata=metadata).rope
    expected = 1e4 ** (-np.arange(4) / 4) / np.array([1, 2, 4, 8]) / 4
    np.testing.assert_allclose(rope.frequencies(), expected, rtol=1e-15)


def test_old_linear_stretch(tmp_path: Path) -> None:
    """The stretch's older key means the same."""
    rope = read(tmp_path, metadata={"llama.rope.scale_linear": 2.0}).rope
    assert rope.factors == (2.0,) * 4


UNSUPPORTED: list[tuple[str, Mapping[str, object]]] = [
    ("expert_count = 8", {"llama.expert_count": 8}),
    ("rope scaling 'yarn'", {"llama.rope.scaling.type": "yarn"}),
    ("rope scaling 'longrope'", {"llama.rope.scaling.type": "longrope"}),
    ("sliding window of 100", {"llama.attention.sliding_window": 100}),
    ("sliding window of True", {"llama.attention.sliding_window": True}),
    ("attention.clamp_kqv = 8.0", {"llama.attention.clamp_kqv": 8.0}),
    ("attention.scale = 0.5", {"llama.attention.scale": 0.5}),
    ("logit_scale = 0.25", {"llama.logit_scale": 0.25}),
    ("attention.causal = False", {"llama.attention.causal": False}),
    ("values of another length", {"llama.attention.value_length": 4}),
    ("layers that differ in feed_forward_length", {"llama.feed_forward_length": [48, 64]}),
    ("a split model", {"split.count": 3}),
]


@pytest.mark.parametrize(("reason", "metadata"), UNSUPPORTED)
def test_unsupported_details(tmp_path: Path, reason: str, metadata: Mapping[str, object]) -> None:
    """Whatever would change the pass and is not implemented is named."""
    with pytest.raises(UnsupportedModelError, match=rf"tiny\.gguf needs .*{reason}"):
        read(tmp_path, metadata=metadata)


def test_unsupported_architecture(tmp_path: Path) -> None:
    """Another architecture is named."""
    with pytest.raises(UnsupportedModelError, match="the architecture 'gemma3'"):
        read(tmp_path, architecture="gemma3")


@pytest.mark.parametrize("name", ["blk.0.attn_q_norm.bias", "output.bias", "blk.2.attn_q.weight"])
def test_tensors_nobody_reads(tmp_path: Path, name: str) -> None:
    """A tensor that the network would leave out is an error, so no part of a model is ignored."""
    with pytest.raises(UnsupportedModelError, match=rf"has the tensor '{name}'"):
        read(tmp_path, tensors={name: np.ones(32, dtype=np.float32)})


def test_neutral_details_pass(tmp_path: Path) -> None:
    """Details at the value that changes nothing are no reason to refuse a file."""
    metadata: dict[str, object] = {"llama.expert_count": 0, "llama.attention.sliding_window": 128}
    metadata |= {"llama.rope.scaling.type": "none", "llama.attention.causal": True}
    metadata |= {"llama.feed_forward_length": [48, 48], "split.count": 1}
    assert read(tmp_path, metadata=metadata).num_layers == 2


DAMAGED: list[tuple[str, dict[str, Any]]] = [
    (r"4 heads over 3", {"kv_heads": 3}),
    (
        r"3 heads in a width of 32",
        {"heads": 3, "kv_heads": 1, "metadata": {"llama.attention.key_length": None}},
    ),
    (r"embedding_length is 0", {"metadata": {"llama.embedding_length": 0}}),
    (r"embedding_length is None", {"metadata": {"llama.embedding_length": None}}),
    (r"embedding_length is 32\.0", {"metadata": {"llama.embedding_length": 32.0}}),
    (r"block_count is -1", {"metadata": {"llama.block_count": -1}}),
    (r"block_count is True", {"metadata": {"llama.block_count": True}}),
    (r"head_count is '4'", {"metadata": {"llama.attention.head_count": "4"}}),
    (r"context_length is 0", {"context": 0}),
    (r"epsilon is nan", {"metadata": {"llama.attention.layer_norm_rms_epsilon": float("nan")}}),
    (r"epsilon is 2\.0", {"metadata": {"llama.attention.layer_norm_rms_epsilon": 2.0}}),
    (r"freq_base is inf", {"rope_base": float("inf")}),
    (r"freq_base is -1\.0", {"rope_base": -1.0}),
    (r"factor is None", {"metadata": {"llama.rope.scaling.type": "linear"}}),
    (r"9 turning components", {"metadata": {"llama.rope.dimension_count": 9}}),
    (r"10 turning components", {"metadata": {"llama.rope.dimension_count": 10}}),
    (r"3,\) rope factors for 4", {"rope_factors": (1, 1, 1)}),
    (r"factor that is not positive", {"rope_factors": (1, 1, 1, 0)}),
    (r"299 tokens and embeds 300", {"metadata": {"llama.vocab_size": 299}}),
    (r"lacks the tensor 'blk\.2\.attn_norm", {"metadata": {"llama.block_count": 3}}),
    ("claims 1073741824 layers", {"metadata": {"llama.block_count": 2**30}}),
    ("heads of 1073741824 components", {"metadata": {"llama.attention.key_length": 2**30}}),
    (r"lacks the tensor 'blk\.1\.ffn_up", {"tensors": {"blk.1.ffn_up.weight": None}}),
    (r"lacks 'token_embd", {"tensors": {"token_embd.weight": None}}),
    (
        r"'output_norm.weight' is \(31,\), not \(32,\)",
        {"tensors": {"output_norm.weight": np.ones(31)}},
    ),
    (
        r"attn_q.weight' is \(32, 32\), not \(64, 32\)",
        {"metadata": {"llama.attention.head_count": 8}},
    ),
    (r"attn_k.bias'", {"architecture": "qwen2", "tensors": {"blk.1.attn_k.bias": None}}),
    (
        r"attn_k_norm.weight'",
        {"architecture": "qwen3", "tensors": {"blk.0.attn_k_norm.weight": None}},
    ),
]


@pytest.mark.parametrize(("reason", "changes"), DAMAGED)
def test_impossible_numbers(tmp_path: Path, reason: str, changes: dict[str, Any]) -> None:
    """A number that cannot be, or a tensor that does not fit it, is named with its value."""
    with pytest.raises(ModelFileError, match=reason):
        read(tmp_path, **changes)


def test_file_without_architecture(tmp_path: Path) -> None:
    """A file that does not say what it holds is refused."""
    path = Tiny().write(tmp_path / "tiny.gguf")
    path.write_bytes(path.read_bytes().replace(b"general.architecture", b"general.architexture"))
    with pytest.raises(ModelFileError, match="does not name its architecture"):
        Architecture.from_file(GGUFFile.open(path))


def test_cut_keeps_all_but_the_layers(tmp_path: Path) -> None:
    """A cut network has fewer layers and else the same numbers; more than all is an error."""
    whole = read(tmp_path, layers=4)
    cut = whole.cut(2)
    assert cut.num_layers == 2
    assert set(dict(cut.tensor_shapes())) < set(dict(whole.tensor_shapes()))
    for layers in (0, -1, 5):
        with pytest.raises(OptionError, match="the model has 4"):
            whole.cut(layers)


@pytest.mark.model
def test_default_model(default_model: Path) -> None:
    """The default model is what its publisher says it is."""
    found = Architecture.from_file(GGUFFile.open(default_model))
    assert (found.name, found.vocab_size, found.width, found.num_layers) == (
        "llama",
        49152,
        576,
        30,
    )
    assert (found.num_heads, found.num_kv_heads, found.head_dim) == (9, 3, 64)
    assert (found.inner_width, found.context_length, found.is_tied) == (1536, 8192, True)
    assert (found.rope.base, found.rope.interleaved) == (100000.0, True)
