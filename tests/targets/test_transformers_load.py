"""Folders into the transformers target: chosen, said, placed; and what is wrong with them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

import forerun
from forerun.cli.waiting import open_model
from forerun.config import Loading
from forerun.errors import (
    CapabilityError,
    ModelFileError,
    OptionError,
    OtherTargetError,
    UnsupportedModelError,
)
from forerun.extras import pip_command
from forerun.models.model import load_model
from forerun.targets import transformers_load
from forerun.targets.table import open_target
from models.tiny_folder import TinyFolder, byte_tokenizer, unigram_tokenizer, write_json
from models.tiny_gguf import Tiny
from targets.tiny_networks import tiny_network, tiny_pair

pytestmark = pytest.mark.judge

SIZE = 300


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that only transformers runs."""
    return saved("gpt2", tmp_path_factory.mktemp("gpt2"))


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a model with an encoder."""
    folder = tmp_path_factory.mktemp("t5")
    network = tiny_network("t5", vocab_size=SIZE)
    network.generation_config.bad_words_ids = [[0]]
    network.save_pretrained(folder)
    write_json(folder / "tokenizer.json", unigram_tokenizer(SIZE))
    write_json(folder / "tokenizer_config.json", {"eos_token": "</s>", "pad_token": "<pad>"})
    return folder


def saved(family: str, folder: Path, **how: Any) -> Path:
    tiny_network(family, vocab_size=SIZE).save_pretrained(folder, **how)
    write_json(folder / "tokenizer.json", byte_tokenizer(SIZE))
    return folder


def test_auto_takes_transformers_for_what_only_that_runs(gpt2: Path) -> None:
    """The model says why, each text what ran it; and no drafter changes the text."""
    lm = forerun.load(gpt2)
    assert lm.target.capabilities.name == "transformers"
    assert "model_type 'gpt2'" in lm.target_reason
    plain = lm.generate("the hen", max_tokens=16, drafter="none", seed=3, temperature=0.8)
    assert plain.target == "transformers"
    for drafter in ("auto", "lookup", "early_exit"):
        found = lm.generate("the hen", max_tokens=16, drafter=drafter, seed=3, temperature=0.8)
        assert found.token_ids == plain.token_ids


def test_an_encoder_and_a_decoder_of_other_families_load(tmp_path: Path) -> None:
    """A folder of EncoderDecoderModel; no drafter changes its text."""
    tiny_pair("bert", vocab_size=SIZE).save_pretrained(tmp_path)
    write_json(tmp_path / "tokenizer.json", byte_tokenizer(SIZE))
    lm = forerun.load(tmp_path)
    texts = [lm.generate("the hen", max_tokens=8, drafter=name) for name in ("none", "lookup")]
    assert texts[0].token_ids == texts[1].token_ids


def test_a_network_in_memory_runs_as_it_is(gpt2: Path) -> None:
    """Not another copy of it; with the tokenizer of the folder that is named."""
    network = tiny_network("gpt2", vocab_size=SIZE)
    lm = forerun.load(gpt2, network=network)
    assert lm.target.model is network
    texts = [
        each.generate("the hen", max_tokens=8, drafter="lookup", draft_length=3).token_ids
        for each in (lm, forerun.load(gpt2))
    ]
    assert texts[0] == texts[1]
    with pytest.raises(OptionError, match="knows 61 tokens"):
        forerun.load(gpt2, network=tiny_network("gpt2"))
    with pytest.raises(OptionError, match="device says nothing"):
        forerun.load(gpt2, network=network, device="cpu")
    with pytest.raises(OptionError, match="no model of transformers"):
        forerun.load(gpt2, network="gpt2")


def test_our_own_engines_refuse_it(gpt2: Path) -> None:
    """By name, and with the way out."""
    for target in ("native", "reference"):
        with pytest.raises(UnsupportedModelError, match="model_type 'gpt2'"):
            forerun.load(gpt2, target=target)
        with pytest.raises(UnsupportedModelError, match="Choose target 'transformers'"):
            open_target(target, load_model(gpt2, foreign=True))
    with pytest.raises(UnsupportedModelError, match=r"forerun\[hf\]"):
        load_model(gpt2)


def test_auto_keeps_our_own_engine_where_it_can(tmp_path: Path) -> None:
    """A folder that both run is native's, and transformers' where that is asked for."""
    path = TinyFolder(Tiny(layers=2, width=64, inner=96)).write(tmp_path)
    assert forerun.load(path).target.capabilities.name == "native"
    exact = forerun.load(path, target="reference")
    lm = forerun.load(path, target="transformers", dtype="float32", context=48)
    assert (lm.target.capabilities.name, lm.target_reason) == ("transformers", "")
    assert lm.target.context_length == 48
    for prompt in ("the hen", "one two one two"):
        texts = [each.generate(prompt, max_tokens=12).token_ids for each in (exact, lm)]
        assert texts[0] == texts[1]


def test_a_draft_model_may_be_of_either_kind(gpt2: Path) -> None:
    """One that transformers runs drafts for another; a part of the target itself does not."""
    lm = forerun.load(gpt2, draft_model=gpt2)
    plain = lm.generate("the hen", max_tokens=12, drafter="none")
    drafted = lm.generate("the hen", max_tokens=12, drafter="model", draft_length=3)
    assert drafted.token_ids == plain.token_ids
    assert drafted.stats.accepted > 6
    with pytest.raises(OptionError, match="cut"):
        forerun.load(gpt2).generate("the hen", drafter="model", draft_length=3)


def test_weights_are_placed_as_asked(gpt2: Path) -> None:
    """In the type that is stored or another, on a device that is there."""
    import torch

    assert forerun.load(gpt2).target.model.dtype == torch.float32
    lm = forerun.load(gpt2, dtype="bfloat16", device="cpu")
    assert lm.target.model.dtype == torch.bfloat16
    assert lm.target.capabilities.devices == ("cpu",)
    for device in ("abacus", "cuda:77", "meta"):
        with pytest.raises(OptionError, match="device = "):
            forerun.load(gpt2, device=device)


def test_options_of_other_targets_are_refused(gpt2: Path) -> None:
    """Nothing is ignored."""
    for option in ({"threads": 2}, {"kv_bits": 16}):
        with pytest.raises(OptionError, match="for the native target"):
            forerun.load(gpt2, **option)
    for options in ({"weights": "int4"}, {"threads": 2}):
        with pytest.raises(OptionError, match=next(iter(options))):
            forerun.load(gpt2, target="transformers", **options)
    for option in ({"device": "cpu"}, {"dtype": "float16"}, {"remote_code": True}):
        with pytest.raises(OptionError, match="for the transformers target"):
            forerun.load(gpt2, target="native", **option)
    with pytest.raises(OptionError, match="positions for 64"):
        forerun.load(gpt2, context=65)


def test_missing_weights_are_not_made_up(tmp_path: Path) -> None:
    """A shard that is gone, a tensor that is gone, a file cut short: refused, never drawn."""
    from safetensors.torch import load_file, save_file

    shards = saved("opt", tmp_path / "shards", max_shard_size="20KB")
    sorted(shards.glob("*.safetensors"))[-1].unlink()
    with pytest.raises(ModelFileError, match="safetensors"):
        forerun.load(shards)
    whole = saved("opt", tmp_path / "whole")
    tensors = load_file(whole / "model.safetensors")
    gone = next(name for name in tensors if "fc1.weight" in name)
    del tensors[gone]
    save_file(tensors, whole / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelFileError, match="lacks 1 tensors of its network"):
        forerun.load(whole)
    (whole / "model.safetensors").write_bytes((whole / "model.safetensors").read_bytes()[:-100])
    with pytest.raises(ModelFileError):
        forerun.load(whole)


def test_code_of_a_folder_is_not_run(
    gpt2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network of the folder's own is refused, unless that is allowed; then it runs."""
    from transformers import dynamic_module_utils

    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = saved("gpt2", tmp_path / "own")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoModelForCausalLM": "own.Own"}}
    config["auto_map"]["AutoConfig"] = "own.OwnConfig"
    write_json(folder / "config.json", config)
    trace = tmp_path / "trace"
    (folder / "own.py").write_text(
        f"open({str(trace)!r}, 'w').close()\n"
        "from transformers import GPT2Config, GPT2LMHeadModel\n"
        "class OwnConfig(GPT2Config): model_type = 'own'\n"
        "class Own(GPT2LMHeadModel): config_class = OwnConfig\n"
    )
    with pytest.raises(UnsupportedModelError, match="code of its own"):
        forerun.load(folder)
    assert not trace.exists()
    lm = forerun.load(folder, remote_code=True)
    assert trace.exists()
    expected = forerun.load(gpt2).generate("the hen", max_tokens=8).token_ids
    assert lm.generate("the hen", max_tokens=8).token_ids == expected


def test_pickled_weights_stay_refused(tmp_path: Path) -> None:
    """They can run code as they are read, whoever reads them."""
    folder = saved("gpt2", tmp_path)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(UnsupportedModelError, match="pickled"):
        forerun.load(folder)


def test_without_the_library_it_is_said(gpt2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to install, and why the model needs it."""
    found = importlib.util.find_spec
    hidden = ("torch", "transformers")
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in hidden else found(name)
    )
    with pytest.raises(CapabilityError, match=r"gpt2.*needs torch and transformers.*forerun\[hf\]"):
        forerun.load(gpt2)


def test_heads_do_not_run_beside_it(gpt2: Path) -> None:
    """Drafter eagle is refused; auto does without."""
    lm = forerun.load(gpt2)
    with pytest.raises((CapabilityError, OptionError, OtherTargetError)):
        lm.generate("the hen", drafter="eagle")
    assert lm.generate("the hen", max_tokens=4).token_ids


def test_a_model_with_an_encoder_answers_its_prompt(t5: Path) -> None:
    """As transformers' own generate does; no drafter changes it, and a batch neither."""
    import torch
    from tokenizers import Tokenizer

    lm = forerun.load(t5)
    library = Tokenizer.from_file(str(t5 / "tokenizer.json"))
    prompts = ["the hen walks", "to the house, the hen"]
    plain = lm.generate_batch(prompts, max_tokens=12, drafter="none", ignore_eos=True)
    for prompt, result in zip(prompts, plain, strict=True):
        ids = library.encode(prompt).ids
        assert lm.tokens_of(prompt) == tuple(ids)
        assert result.stats.prompt_tokens == len(ids) + 1
        found = lm.target.model.generate(
            torch.tensor([ids]), max_new_tokens=12, do_sample=False, eos_token_id=None
        )[0, 1:].tolist()
        assert list(result.token_ids) == found
        assert 0 not in found
        assert result.text == library.decode(found, skip_special_tokens=True)
    for drafter in ("auto", "lookup", "early_exit"):
        drafted = lm.generate_batch(prompts, max_tokens=12, drafter=drafter, ignore_eos=True)
        assert [each.token_ids for each in drafted] == [each.token_ids for each in plain]


def test_beams_of_a_model_with_an_encoder(t5: Path) -> None:
    """Those of transformers' own generate, with drafts and without."""
    import torch

    lm = forerun.load(t5)
    ids = torch.tensor([lm.tokens_of("the hen walks to the house")])
    asked = {"num_beams": 3, "num_return_sequences": 3, "max_new_tokens": 8, "do_sample": False}
    theirs = lm.target.model.generate(ids, **asked)[:, 1:].tolist()
    for drafter in ("none", "lookup", "early_exit"):
        found = lm.beam_search(
            "the hen walks to the house", beams=3, max_tokens=8, drafter=drafter, draft_length=2
        )
        assert [list(beam.token_ids) for beam in found.beams] == theirs
        assert found.guarantee == "same law"


def test_what_an_answer_begins_with(t5: Path) -> None:
    """Given, it is read and not written again; a model without an encoder goes on from prompts."""
    lm = forerun.load(t5)
    begun = lm.generate("the hen", begin="<extra_id_0>", max_tokens=6, ignore_eos=True)
    request = lm.stream("the hen", begin="<extra_id_0>")._request
    assert request.prompt == (0, SIZE - 1)
    assert begun.token_ids != lm.generate("the hen", max_tokens=6, ignore_eos=True).token_ids


def test_a_beginning_that_is_no_token_is_said(t5: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A language's code that is misspelt would be read as words, and nobody would know."""
    loading = Loading.make(model=t5)
    open_model(loading, begin="<extra_id_0>")
    assert "is no token" not in capsys.readouterr().err
    open_model(loading, begin="<extra_id_O>")
    told = capsys.readouterr().err
    assert "begin = '<extra_id_O>' is no token of" in told
    assert "every text begins with" in told


def test_a_head_is_refused_with_what_to_use_instead(t5: Path) -> None:
    """No head runs beside transformers: said before any text, also where none was named."""
    with pytest.raises(CapabilityError, match="this model runs on transformers") as refused:
        forerun.load(t5).stream("the hen", drafter="eagle")
    assert "suffix" in refused.value.way_out


def test_a_missing_library_is_installed_by_the_python_that_runs_forerun(gpt2: Path) -> None:
    """Not by a bare pip, as the library says it."""
    model = forerun.load(gpt2).model
    told = "is required `pip install accelerate` or pip3 install -U 'gguf>=0.10'"
    error = transformers_load._translated(model, ImportError(told))
    for name in ("accelerate", "'gguf>=0.10'"):
        assert f"{pip_command()}{name}" in str(error)


def test_encoders_are_not_mixed_up(t5: Path, gpt2: Path) -> None:
    """Draft models are of the target's kind; what only one kind has is refused by the other."""
    lm = forerun.load(gpt2)
    with pytest.raises(OptionError, match="has no encoder"):
        lm.generate("the hen", begin="a")
    network = tiny_network("t5", seed=3, vocab_size=SIZE, d_model=16, num_decoder_layers=1)
    draft = t5.parent / "draft"
    network.save_pretrained(draft)
    write_json(draft / "tokenizer.json", json.loads((t5 / "tokenizer.json").read_text()))
    lm = forerun.load(t5, draft_model=draft)
    plain = lm.generate("the hen", max_tokens=8, drafter="none", ignore_eos=True)
    drafted = lm.generate("the hen", max_tokens=8, drafter="model", ignore_eos=True)
    assert drafted.token_ids == plain.token_ids
    causal = saved("gpt2", gpt2.parent / "causal")
    description = json.loads((t5 / "tokenizer.json").read_text())
    write_json(causal / "tokenizer.json", {**description, "post_processor": None})
    with pytest.raises(OptionError, match="one has an encoder"):
        forerun.load(t5, draft_model=causal).generate("the hen", drafter="model", draft_length=2)
