"""Hugging Face folders: every number from its key, every weight from its place, or a refusal."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun.errors import (
    ForerunError,
    ModelFileError,
    ModelNotFoundError,
    OptionError,
    TemplateError,
    TokenizerError,
    UnsupportedModelError,
)
from forerun.models import plain_file
from forerun.models.folder_weights import FolderWeights
from forerun.models.gguf_file import GGUFFile
from forerun.models.model import load_model
from models.tiny_folder import TinyFolder, write_json, write_safetensors
from models.tiny_gguf import Tiny


def made(folder: Path, *, tiny: Tiny | None = None, **changes: Any) -> Path:
    """A folder of the given description."""
    return TinyFolder(tiny or Tiny(), **changes).write(folder / "model")


# What is read.


def test_numbers_are_the_configs(tmp_path: Path) -> None:
    """Every number comes from its own key; pairs turn as halves."""
    tiny = Tiny(vocab_size=301, width=24, layers=3, heads=6, kv_heads=3, head_dim=10, inner=50)
    tiny = replace(tiny, context=77, rope_base=5e5, is_tied=False)
    model = load_model(made(tmp_path, tiny=tiny))
    found = model.architecture
    assert (found.name, found.vocab_size, found.width, found.num_layers) == ("llama", 301, 24, 3)
    assert (found.num_heads, found.num_kv_heads, found.head_dim) == (6, 3, 10)
    assert (found.inner_width, found.context_length, found.is_tied) == (50, 77, False)
    assert (found.rope.base, found.rope.factors) == (5e5, (1.0,) * 5)
    assert not found.rope.interleaved
    assert model.path == model.file.path == tmp_path / "model"
    assert model.file.file_bytes == (tmp_path / "model" / "model.safetensors").stat().st_size


def test_defaults(tmp_path: Path) -> None:
    """Keys that are left out have the values that transformers gives them."""
    left_out = ("num_key_value_heads", "head_dim", "rope_theta", "rms_norm_eps", "hidden_act")
    config = dict.fromkeys([*left_out, "tie_word_embeddings", "architectures"])
    tiny = Tiny(kv_heads=4, is_tied=False)
    found = load_model(made(tmp_path, tiny=tiny, config=config)).architecture
    assert (found.num_kv_heads, found.head_dim, found.rope.base) == (4, 8, 10000.0)
    assert (found.norm_epsilon, found.is_tied) == (1e-6, False)


@pytest.mark.parametrize(
    ("config", "still"),
    [
        ({}, {3, 7}),
        ({"no_rope_layer_interval": 3}, {2, 5}),
        ({"no_rope_layers": [0, 1, 1, 0, 1, 1, 1, 1, 0]}, {0, 3}),
        ({"no_rope_layers": [1] * 8, "no_rope_layer_interval": 2}, set()),
    ],
)
def test_layers_without_positions(tmp_path: Path, config: dict[str, Any], still: set[int]) -> None:
    """SmolLM3's layers turn as its list says, and without one all but every fourth."""
    tiny = Tiny("smollm3", layers=8)
    model = load_model(made(tmp_path, tiny=tiny, config={"tie_word_embeddings": None, **config}))
    assert model.architecture.unturned_layers == still
    assert model.architecture.is_tied


@pytest.mark.parametrize("key", ["rope_parameters", "rope_scaling"])
def test_llama3_stretch(tmp_path: Path, key: str) -> None:
    """Short waves stay, long ones are `factor` times longer, those between lie between."""
    scaling: dict[str, object] = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}
    scaling |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 400}
    config = {key: {**scaling, **({"rope_theta": 1e6} if key == "rope_parameters" else {})}}
    tiny = Tiny(head_dim=8, rope_base=1e6)
    factors = load_model(made(tmp_path, tiny=tiny, config=config)).architecture.rope.factors
    assert factors[0] == 1.0
    assert 1 < factors[1] < factors[2] == factors[3] == 8.0


def test_old_constants_are_left_out(tmp_path: Path) -> None:
    """The rotary frequencies that old conversions store are no weights."""
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    path = made(tmp_path, tensors={name: ("F32", (4,), bytes(16))})
    assert name not in load_model(path).file.tensor_names


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_weights_are_those_stored(tmp_path: Path, dtype: str) -> None:
    """Without `weights` every tensor keeps its type and its bytes."""
    folder = TinyFolder(dtype=dtype)
    file = load_model(folder.write(tmp_path / "m")).file
    for own, (kind, shape, data) in folder.all_tensors().items():
        [name] = [name for name in file.tensor_names if file.own_name(name) == own]
        assert (file.tensor_type(name), file.tensor_shape(name)) == (kind, shape)
        assert file.raw(name).tobytes() == data
        assert file.nbytes(name) == len(data)


def test_shards_are_one_file(tmp_path: Path) -> None:
    """However the tensors are dealt out to files, they are the same."""
    whole = load_model(made(tmp_path / "1")).file
    parts = load_model(made(tmp_path / "5", shards=5)).file
    assert set(whole.tensor_names) == set(parts.tensor_names)
    for name in whole.tensor_names:
        np.testing.assert_array_equal(whole.raw(name), parts.raw(name))
    sizes = [path.stat().st_size for path in (tmp_path / "5" / "model").glob("*.safetensors")]
    assert (len(sizes), sum(sizes)) == (5, parts.file_bytes)


def test_a_head_of_its_own_is_used(tmp_path: Path) -> None:
    """Where a file has a head, the config's word that it is the embedding does not count."""
    tiny = Tiny(is_tied=False)
    assert not load_model(
        made(tmp_path, tiny=tiny, config={"tie_word_embeddings": True})
    ).architecture.is_tied


# Quantised at load.


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
@pytest.mark.parametrize(
    ("weights", "kind", "ends"), [("int8", "Q8_0", "Q8_0"), ("int4", "Q4_0", "Q8_0")]
)
def test_blocks_are_the_gguf_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, weights: Any, kind: str, ends: str
) -> None:
    """Every tensor of a quantised folder is, byte for byte, that of a GGUF file so quantised."""
    # Rows are quantised a few at a time; the feed-forward's 50 inputs are no whole blocks.
    monkeypatch.setattr("forerun.models.folder_weights._CHUNK", 1000)
    folder = TinyFolder(Tiny("qwen3", width=64, inner=50, is_tied=False), dtype=dtype)
    found = load_model(folder.write(tmp_path / "m"), weights=weights).file
    expected = GGUFFile.open(folder.as_gguf(tmp_path / "t.gguf", kind, ends))
    for name in expected.tensor_names:
        if name.endswith(("ffn_down.weight", "norm.weight")):
            assert found.tensor_type(name) == dtype
        else:
            assert found.tensor_type(name) == expected.tensor_type(name)
            np.testing.assert_array_equal(found.raw(name), expected.raw(name))
            assert found.nbytes(name) == expected.nbytes(name)
        np.testing.assert_array_equal(found.tensor(name), expected.tensor(name))


def test_bf16_rounds_floats_and_refuses_halves(tmp_path: Path) -> None:
    """F32 becomes the nearest BF16, BF16 stays, and F16 would lose bits for nothing."""
    folder = TinyFolder()
    file = load_model(folder.write(tmp_path / "m"), weights="bf16").file
    expected = replace(folder, dtype="BF16").all_tensors()
    for name in ("token_embd.weight", "blk.1.ffn_up.weight"):
        assert file.tensor_type(name) == "BF16"
        assert file.raw(name).tobytes() == expected[file.own_name(name)][2]
    assert file.tensor_type("output_norm.weight") == "F32"
    with pytest.raises(OptionError, match="holds float16, which is as small"):
        load_model(made(tmp_path, dtype="F16"), weights="bf16")


def test_identity_tells_ways_to_read_apart(tmp_path: Path) -> None:
    """Targets share what they hold by identity: another quantisation is another file to them."""
    path = made(tmp_path)
    first, second = (
        load_model(path, weights=weights).file.identity for weights in ("int8", "int4")
    )
    assert first != second
    assert first == load_model(path, weights="int8").file.identity


@pytest.mark.parametrize("weights", ["auto", "int8", "int4", "bf16"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite(tmp_path: Path, weights: Any, value: float) -> None:
    """One bad number is found as it is read, by its tensor's own name."""
    bad = np.zeros((48, 32), np.float32)
    bad[47, 31] = value
    name = "model.layers.1.mlp.up_proj.weight"
    path = made(tmp_path, tensors={name: ("F32", (48, 32), bad.tobytes())})
    file = load_model(path, weights=weights).file
    for read in (file.raw, file.tensor):
        with pytest.raises(ModelFileError, match=rf"{name}' holds values that are not finite"):
            read("blk.1.ffn_up.weight")


# Refusals.

Refusal = type[ForerunError]
UNKNOWN, BROKEN = UnsupportedModelError, ModelFileError
CONFIGS: list[tuple[Refusal, str, dict[str, Any]]] = [
    (UNKNOWN, r"model_type 'gemma3'.*forerun\[hf\].", {"model_type": "gemma3"}),
    (BROKEN, "the model_type 7", {"model_type": 7}),
    (UNKNOWN, "the architecture .*Classif", {"architectures": ["LlamaForSequenceClassification"]}),
    (UNKNOWN, "attention_bias = True", {"attention_bias": True}),
    (UNKNOWN, "mlp_bias = True", {"mlp_bias": True}),
    (UNKNOWN, "hidden_act = gelu", {"hidden_act": "gelu"}),
    (UNKNOWN, "quantization_config = .*gptq", {"quantization_config": {"quant_method": "gptq"}}),
    (UNKNOWN, "auto_map", {"auto_map": {"AutoModel": "code.Model"}}),
    (UNKNOWN, "a sliding window of 64 in a context of 128", {"sliding_window": 64}),
    (
        UNKNOWN,
        "sliding window of 64",
        {"sliding_window": 64, "layer_types": ["full_attention", "sliding_attention"]},
    ),
    (UNKNOWN, "layer of type 'linear_attention'", {"layer_types": ["linear_attention"] * 2}),
    (BROKEN, "layer_types", {"layer_types": ["full_attention"]}),
    (UNKNOWN, "rope scaling 'yarn'", {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}),
    (UNKNOWN, "rope scaling 'dynamic'", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}),
    (UNKNOWN, "partial_rotary_factor", {"rope_parameters": {"partial_rotary_factor": 0.5}}),
    (UNKNOWN, "rope parameters", {"partial_rotary_factor": 0.5}),
    (UNKNOWN, "full_attention", {"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}),
    (BROKEN, "factor is None", {"rope_scaling": {"type": "linear"}}),
    (BROKEN, "factor is 0", {"rope_scaling": {"type": "linear", "factor": 0}}),
    (BROKEN, "rope parameters", {"rope_scaling": "linear"}),
    (BROKEN, "is None", {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}),
    (BROKEN, "rope_theta is -1", {"rope_theta": -1}),
    (BROKEN, "num_hidden_layers is None", {"num_hidden_layers": None}),
    (BROKEN, "claims 1073741824 layers", {"num_hidden_layers": 2**30}),
    (BROKEN, "heads of 1073741824 components", {"head_dim": 2**30}),
    (BROKEN, "9 turning components", {"head_dim": 9}),
    (BROKEN, "4 heads over 3 key-value", {"num_key_value_heads": 3}),
    (BROKEN, "hidden_size is '32'", {"hidden_size": "32"}),
    (BROKEN, "hidden_size is True", {"hidden_size": True}),
    (BROKEN, r"embed_tokens.weight' is \(300, 32\), not \(300, 64\)", {"hidden_size": 64}),
    (BROKEN, r"is \(300, 32\), not \(301, 32\)", {"vocab_size": 301}),
    (BROKEN, "lacks the tensor 'model.layers.2.input_layernorm.weight'", {"num_hidden_layers": 3}),
    (UNKNOWN, "has the tensor 'model.layers.1.", {"num_hidden_layers": 1}),
    (BROKEN, "lacks the tensor 'lm_head.weight'", {"tie_word_embeddings": False}),
    (BROKEN, "tie_word_embeddings = 'no'", {"tie_word_embeddings": "no"}),
    (BROKEN, "rms_norm_eps is 0", {"rms_norm_eps": 0}),
]


@pytest.mark.parametrize(("kind", "reason", "config"), CONFIGS)
def test_configs_that_do_not_run(
    tmp_path: Path, kind: type[ForerunError], reason: str, config: dict[str, Any]
) -> None:
    """What is not implemented or cannot be is named with its value."""
    with pytest.raises(kind, match=reason):
        load_model(made(tmp_path, config=config))


def test_windows_that_never_slide(tmp_path: Path) -> None:
    """A window as long as the context, or one that is switched off, changes nothing."""
    for number, config in enumerate(
        (
            {"sliding_window": 128},
            {"sliding_window": 64, "use_sliding_window": False},
            {"sliding_window": 64, "layer_types": ["full_attention"] * 2},
        )
    ):
        path = made(tmp_path / str(number), config=config, model_type="mistral")
        assert load_model(path).architecture.context_length == 128


@pytest.mark.parametrize("layers", [[1, 1], [1, 1, 2, 1], [1, "0", 1, 1], "1011", [1, 1, 1, None]])
def test_layers_that_turn_somehow(tmp_path: Path, layers: object) -> None:
    """A list of layers that is too short or no list of 0 and 1 is refused."""
    path = made(tmp_path, tiny=Tiny("smollm3", layers=4), config={"no_rope_layers": layers})
    with pytest.raises(ModelFileError, match="no_rope_layers"):
        load_model(path)


def test_a_tensor_that_no_network_here_has(tmp_path: Path) -> None:
    """Biases, norms and names of GGUF in places where none belong are named, not ignored."""
    for number, name in enumerate(
        (
            "model.layers.0.self_attn.q_proj.bias",
            "model.layers.0.self_attn.o_proj.bias",
            "model.layers.0.self_attn.q_norm.weight",
            "blk.0.attn_q.bias",
            "output.weight",
            "score.weight",
        )
    ):
        path = made(tmp_path / str(number), tensors={name: ("F32", (32,), bytes(128))})
        with pytest.raises(UnsupportedModelError, match=f"has the tensor '{name}"):
            load_model(path)


@pytest.mark.parametrize(("dtype", "size"), [("I64", 8), ("F8_E4M3", 1), ("U8", 1), ("F64", 8)])
def test_types_that_are_no_plain_floats(tmp_path: Path, dtype: str, size: int) -> None:
    """Integers and 8-bit floats are another format's weights."""
    path = made(tmp_path, tensors={"model.norm.weight": (dtype, (32,), bytes(32 * size))})
    with pytest.raises(UnsupportedModelError, match=f"has type {dtype}"):
        load_model(path)


def without(*names: str) -> Callable[[Path], None]:
    """Remove files."""
    return lambda path: [(path / name).unlink() for name in names] and None


def written(name: str, text: str | bytes) -> Callable[[Path], None]:
    """Write a file."""
    data = text.encode() if isinstance(text, str) else text
    return lambda path: (path / name).write_bytes(data) and None


DAMAGES: list[tuple[type[ForerunError], str, Callable[[Path], None]]] = [
    (ModelFileError, "without config.json", without("config.json")),
    (ModelFileError, "config.json is not valid JSON", written("config.json", "{")),
    (ModelFileError, "nested too deeply", written("config.json", "[" * 100_000)),
    (ModelFileError, "does not hold a JSON object", written("config.json", "[]")),
    (ModelFileError, "is not UTF-8 at byte 0", written("config.json", b"\xff")),
    (
        ModelFileError,
        "5000000 bytes; 4194304 is the limit",
        written("config.json", " " * 5_000_000),
    ),
    (ModelFileError, "has no weights", without("model.safetensors")),
    (TokenizerError, "has no tokenizer.json", without("tokenizer.json")),
    (TokenizerError, "is not valid JSON", written("tokenizer.json", "{")),
    (
        TokenizerError,
        "cannot be used",
        written("tokenizer.json", '{"model": {}, "decoder": {"type": "ByteLevel"}}'),
    ),
    (ModelFileError, "tokenizer_config.json is not valid", written("tokenizer_config.json", "x")),
    (
        ModelFileError,
        "eos_token_id = -1",
        written("generation_config.json", '{"eos_token_id": -1}'),
    ),
    (
        ModelFileError,
        r"eos_token_id = \['x'\]",
        written("generation_config.json", '{"eos_token_id": ["x"]}'),
    ),
    (
        TokenizerError,
        "Token 300 ends texts",
        written("generation_config.json", '{"eos_token_id": 300}'),
    ),
]


@pytest.mark.parametrize(("kind", "reason", "damage"), DAMAGES)
def test_folders_that_lack_something(
    tmp_path: Path, kind: type[ForerunError], reason: str, damage: Callable[[Path], None]
) -> None:
    """A missing or damaged file is named."""
    path = made(tmp_path)
    damage(path)
    with pytest.raises(kind, match=reason):
        load_model(path)


def test_pickles_are_never_read(tmp_path: Path) -> None:
    """A folder of pickled weights is refused in words, whatever is in them."""
    path = made(tmp_path)
    (path / "model.safetensors").rename(path / "pytorch_model.bin")
    with pytest.raises(UnsupportedModelError, match=r"only pickled weights \(pytorch_model.bin\)"):
        load_model(path)


@pytest.mark.parametrize(
    "shard",
    ["../model.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..\\x.safetensors", "x.bin",
     "\0.safetensors", 7, None, ""],
)  # fmt: skip
def test_an_index_points_nowhere_else(tmp_path: Path, shard: object) -> None:
    """Only plain names of safetensors files beside the index are followed."""
    path = made(tmp_path, shards=2)
    index = json.loads((path / "model.safetensors.index.json").read_text())
    index["weight_map"]["model.norm.weight"] = shard
    write_json(path / "model.safetensors.index.json", index)
    with pytest.raises(ModelFileError, match="no safetensors file beside it"):
        load_model(path)


def test_an_index_that_is_wrong(tmp_path: Path) -> None:
    """A missing shard, a missing tensor, a stray tensor and an empty map are told apart."""
    path = made(tmp_path, shards=2)
    place = path / "model.safetensors.index.json"
    index = json.loads(place.read_text())
    placed = index["weight_map"]
    other = ({*placed.values()} - {placed["model.norm.weight"]}).pop()
    for change, reason in (
        ({"extra.weight": other}, "lacks the tensor 'extra.weight'"),
        ({"model.norm.weight": "gone.safetensors"}, "names 'gone.safetensors', which is not there"),
        ({"model.norm.weight": other}, "which the index does not place there|index names"),
    ):
        write_json(place, {"weight_map": placed | change})
        with pytest.raises(ModelFileError, match=reason):
            load_model(path)
    write_json(place, {"weight_map": {n: s for n, s in placed.items() if "embed" not in n}})
    with pytest.raises(ModelFileError, match=r"holds the tensor .*embed.*index does not place"):
        load_model(path)
    for broken in ({}, {"weight_map": []}, {"weight_map": {}}):
        write_json(place, broken)
        with pytest.raises(ModelFileError, match="has no weight_map"):
            load_model(path)


# Files that do not stay as they are.


def test_a_file_that_changes_vanishes_or_shrinks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between header and data anything may happen: an error, never a crash."""
    path = made(tmp_path)
    place = path / "model.safetensors"
    data = place.read_bytes()
    file = FolderWeights.open(path)
    place.write_bytes(data[:-100])
    with pytest.raises(ModelFileError, match="changed after it was opened"):
        file.raw("token_embd.weight")
    monkeypatch.setattr(plain_file.FileIdentity, "__ne__", lambda *_: False)
    last = max(file.tensor_names, key=lambda name: file._tensors[name].stored.start)
    with pytest.raises(ModelFileError, match=f"ends within .*{file.own_name(last)}"):
        file.raw(last)
    place.unlink()
    with pytest.raises(ModelNotFoundError, match="no file"):
        file.raw("token_embd.weight")


# Chat templates.

TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}{{ eos_token }}"


def test_templates_come_along(tmp_path: Path) -> None:
    """From tokenizer_config.json, by name where there are several, or from a file of its own."""
    path = made(
        tmp_path,
        template="{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}{{ eos_token }}",
    )
    messages = [{"role": "user", "content": "hi"}]

    def rendered() -> str:
        template = load_model(path).chat_template
        assert template is not None
        return template.render(messages)

    assert rendered() == "<|endoftext|>hi<|im_end|>"
    settings = json.loads((path / "tokenizer_config.json").read_text())
    several = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "yes"}]
    write_json(path / "tokenizer_config.json", {**settings, "chat_template": several})
    assert rendered() == "yes"
    (path / "chat_template.jinja").write_text("file")
    assert rendered() == "file"


def test_a_broken_template_is_told_to_who_chats(tmp_path: Path) -> None:
    """The model itself is sound; without any template there is no error."""
    model = load_model(made(tmp_path, template="{% for %}"))
    assert model.chat_template is None
    assert isinstance(model.template_error, TemplateError)
    assert load_model(made(tmp_path)).template_error is None
    (tmp_path / "model" / "chat_template.jinja").write_bytes(b"\xff")
    assert isinstance(load_model(tmp_path / "model").template_error, TemplateError)


def test_ends_of_text(tmp_path: Path) -> None:
    """generation_config.json says which; else config.json, else the tokenizer's settings."""
    path = made(tmp_path, config={"eos_token_id": 7})
    assert load_model(path).tokenizer.eos_ids == {1}
    (path / "generation_config.json").unlink()
    assert load_model(path).tokenizer.eos_ids == {7}
    path = made(tmp_path / "other")
    (path / "generation_config.json").unlink()
    assert load_model(path).tokenizer.eos_ids == {1}


def test_files_written_twice_are_one_kind(tmp_path: Path) -> None:
    """One file is preferred to an index beside it, as transformers does."""
    path = made(tmp_path)
    write_json(path / "model.safetensors.index.json", {"weight_map": {"x": "y.safetensors"}})
    assert load_model(path).file.file_bytes == (path / "model.safetensors").stat().st_size
    write_safetensors(path / "consolidated.safetensors", {})
    (path / "model.safetensors").unlink()
    (path / "model.safetensors.index.json").unlink()
    with pytest.raises(UnsupportedModelError, match=r"but consolidated\.safetensors"):
        load_model(path)
