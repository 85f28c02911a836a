"""Models by name or path: loaded whole, cut to their first layers, or refused with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from forerun.errors import (
    ModelFileError,
    ModelNotFoundError,
    OptionError,
    TokenizerError,
)
from forerun.models import model as loading
from forerun.models.model import load_model
from models.tiny_gguf import Tiny


def test_load_from_a_path(tmp_path: Path) -> None:
    """A path gives numbers, tokenizer and file; without a template there is none."""
    path = Tiny().write(tmp_path / "tiny.gguf")
    model = load_model(path)
    assert (model.name, model.path) == (str(path), path)
    assert model.architecture.num_layers == 2
    assert model.tokenizer.vocab_size == model.architecture.vocab_size == 300
    assert model.tokenizer.decode(model.tokenizer.encode("the hen")) == "the hen"
    assert model.chat_template is None
    assert model.file.file_bytes == path.stat().st_size


def test_load_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is pulled and keeps its name."""
    path = Tiny().write(tmp_path / "tiny.gguf")
    monkeypatch.setattr(loading, "pull", lambda name, progress: path)
    assert load_model("smollm2").name == "smollm2"


def test_a_damaged_named_model_is_to_be_pulled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever did not bring the file is told the command that mends it."""
    path = tmp_path / "damaged.gguf"
    whole = Tiny().write(tmp_path / "tiny.gguf").read_bytes()
    monkeypatch.setattr(loading, "pull", lambda name, progress: path)
    for damaged in (b"\0" * 100, whole[:-1], whole.replace(b"llama", b"lxama")):
        path.write_bytes(damaged)
        with pytest.raises(ModelFileError, match="`forerun pull smollm2` checks"):
            load_model("smollm2")


def test_template_comes_along(tmp_path: Path) -> None:
    """The file's chat template is there to render."""
    source = "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"
    path = Tiny(metadata={"tokenizer.chat_template": source}).write(tmp_path / "tiny.gguf")
    template = load_model(path).chat_template
    assert template is not None
    rendered = template.render([{"role": "user", "content": "hi"}])
    assert rendered == "<|endoftext|>hi<|im_end|>"


def test_cut_is_the_same_model_but_shorter(tmp_path: Path) -> None:
    """`layers` cuts the network and says so in the name; tokenizer and file are the same."""
    path = Tiny(layers=3).write(tmp_path / "tiny.gguf")
    whole, cut = load_model(path), load_model(path, layers=1)
    assert cut.architecture == whole.architecture.cut(1)
    assert cut.name == f"{whole.name}[:1]"
    assert cut.tokenizer.fingerprint == whole.tokenizer.fingerprint
    assert whole.cut(1).file is whole.file
    with pytest.raises(OptionError, match="layers = 4"):
        load_model(path, layers=4)


@pytest.mark.parametrize("name", ["none.gguf", "some/none", "./smollm2", "user/model"])
def test_missing_file(name: str) -> None:
    """What looks like a path is reported as a missing file."""
    with pytest.raises(ModelNotFoundError, match="There is no file"):
        load_model(name)


def test_unknown_name() -> None:
    """What looks like a name gets near names, or all."""
    with pytest.raises(ModelNotFoundError, match="Did you mean 'smollm2'"):
        load_model("SmolLM")
    with pytest.raises(ModelNotFoundError, match="Known names: smollm2"):
        load_model("zzz")


def test_weights_are_for_folders(tmp_path: Path) -> None:
    """A GGUF file, named or not, has its own types: nothing is quantised twice."""
    path = Tiny().write(tmp_path / "tiny.gguf")
    with pytest.raises(OptionError, match=r"weights = int4: .*tiny.gguf is a GGUF file"):
        load_model(path, weights="int4")


def test_other_files_are_refused(tmp_path: Path) -> None:
    """A file that is no model says so."""
    (tmp_path / "notes.txt").write_text("not a model")
    with pytest.raises(ModelFileError, match="is not a GGUF file"):
        load_model(tmp_path / "notes.txt")


def test_tokens_must_match_the_embedding(tmp_path: Path) -> None:
    """A tokenizer of another size than the embedding is a damaged file."""
    tokens = Tiny(vocab_size=299).all_metadata()
    metadata = {key: value for key, value in tokens.items() if key.startswith("tokenizer.")}
    path = Tiny(vocab_size=300, metadata=metadata).write(tmp_path / "tiny.gguf")
    with pytest.raises(ModelFileError, match="has 299 tokens and embeds 300"):
        load_model(path)


def test_file_without_tokenizer(tmp_path: Path) -> None:
    """A file without a tokenizer is refused by the tokenizer."""
    path = Tiny(metadata={"tokenizer.ggml.model": None}).write(tmp_path / "tiny.gguf")
    with pytest.raises(TokenizerError):
        load_model(path)


@pytest.mark.model
def test_default_model(default_model: Path) -> None:
    """The default model loads by its name, with its tokenizer and template."""
    model = load_model("smollm2")
    assert model.path == default_model
    assert model.tokenizer.vocab_size == 49152
    assert model.chat_template is not None


@pytest.mark.parametrize(
    "name", ["x" * 5000, "/" + "x" * 5000, "a\0b", "~nobody-of-this-name/x.gguf"]
)
def test_a_path_that_cannot_be_is_no_file(name: str) -> None:
    """Too long, with a NUL, or in the home of nobody: the answer is a clear one."""
    with pytest.raises(ModelNotFoundError, match="no file"):
        load_model(name)


def test_a_loop_of_links_is_no_file(tmp_path: Path) -> None:
    """A link to itself is refused as the system refuses it."""
    (tmp_path / "loop.gguf").symlink_to("loop.gguf")
    with pytest.raises(ModelNotFoundError, match="no file"):
        load_model(tmp_path / "loop.gguf")
