"""Marian's folders: the library's ids, its text token by token, and what is missing told."""

from __future__ import annotations

import io
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import forerun
from forerun.errors import CapabilityError, TokenizerError
from forerun.models.marian_tokenizer import MarianTokenizer
from targets.tiny_networks import tiny_network

pytestmark = pytest.mark.judge

LINES = (
    "the hen walks to the house .",
    "a hen is here , there and in the inn !",
    "caf\u00e9 7 * 3",
)
SIZE = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Marian, with a tokenizer that sentencepiece learns on the spot."""
    sentencepiece = pytest.importorskip("sentencepiece")
    path = tmp_path_factory.mktemp("marian") / "tiny"
    network = tiny_network(
        "marian", vocab_size=SIZE, pad_token_id=SIZE - 1, decoder_start_token_id=SIZE - 1
    )
    network.save_pretrained(path)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 4), model_writer=model, vocab_size=34, minloglevel=2
    )
    for name in ("source.spm", "target.spm"):
        (path / name).write_bytes(model.getvalue())
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    texts = ["</s>", "<unk>", ">>fra<<"]
    texts += [pieces.id_to_piece(i) for i in range(3, pieces.get_piece_size())]
    vocabulary = {text: token for token, text in enumerate(texts)} | {"<pad>": SIZE - 1}
    (path / "vocab.json").write_text(json.dumps(vocabulary), "utf-8")
    config = {"source_lang": "en", "target_lang": "fr", "separate_vocabs": False}
    (path / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    return path


def read(folder: Path) -> tuple[MarianTokenizer, Any]:
    """Ours and transformers'."""
    import transformers

    ours = MarianTokenizer(folder, vocab_size=SIZE, eos_ids=frozenset())
    return ours, transformers.MarianTokenizer.from_pretrained(folder)


def test_ids_and_text_are_the_librarys(folder: Path) -> None:
    """Also token by token; a control token comes out of text only where it is asked for."""
    ours, library = read(folder)
    assert ours.eos_ids == {0}
    for text in (*LINES, ">>fra<< the hen", " the  hen", "strange \u732b </s> x", ""):
        ids = library(text).input_ids
        assert ours.source(text, special=True) == ids
        assert ours.encode(text, special=True) == ids[:-1]
    typed = ours.source("the </s> hen")
    assert typed.count(0) == 1
    assert typed[-1] == 0
    rng = random.Random(0)
    for _ in range(200):
        ids = [rng.randrange(2, 34) for _ in range(rng.randrange(8))]
        stream = ours.detokenizer()
        streamed = "".join(map(stream.push, ids)) + stream.flush()
        assert streamed == ours.decode(ids)
        assert streamed.strip() == library.decode(ids, skip_special_tokens=True)
    assert ours.decode([SIZE - 1, *ours.encode("the hen"), 0]) == "the hen"


def test_a_folder_writes_as_generate_does(folder: Path) -> None:
    """From text to text, drafting from what the encoder has read."""
    import torch

    lm = forerun.load(folder)
    _, library = read(folder)
    ids = torch.tensor([library(LINES[0]).input_ids])
    network = lm.target.model
    expected = network.generate(ids, max_new_tokens=8, do_sample=False, num_beams=1)
    for drafter in ("none", "lookup"):
        found = lm.generate(LINES[0], max_tokens=8, drafter=drafter, ignore_eos=True)
        assert list(found.token_ids) == expected[0, 1:].tolist()
    known = [token for token in found.token_ids if token in library.decoder]
    assert found.text.strip() == library.decode(known, skip_special_tokens=True)


@pytest.mark.parametrize("name", ["transformers", "sentencepiece"])
def test_what_is_missing_is_told(tmp_path: Path, monkeypatch: Any, name: str) -> None:
    """With the command that installs it."""
    for each in ("transformers", "sentencepiece"):
        monkeypatch.setitem(sys.modules, each, sys)
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    monkeypatch.setattr(sys, "meta_path", [_Missing()])
    with pytest.raises(CapabilityError, match=f"source.spm needs {name}.*\n?.*pip install"):
        MarianTokenizer(tmp_path, vocab_size=5, eos_ids=frozenset())


class _Missing:
    """Finds nothing."""

    def find_spec(self, *_: Any, **__: Any) -> None:
        return None


CHANGES: list[tuple[str, Callable[[Path], Any]]] = [
    ("cannot be used", lambda path: (path / "source.spm").write_bytes(b"no model")),
    ("cannot be used", lambda path: (path / "vocab.json").write_text("{}")),
    ("has token 60", lambda path: (path / "vocab.json").write_text('{"<unk>": 60, "</s>": 0}')),
    (
        "vocabulary for each language",
        lambda path: (
            (path / "target_vocab.json").write_text('{"<unk>": 1, "</s>": 0, "<pad>": 2}'),
            (path / "tokenizer_config.json").write_text('{"separate_vocabs": true}'),
        ),
    ),
]


@pytest.mark.parametrize(("reason", "change"), CHANGES)
def test_damaged_files_are_refused(
    folder: Path, tmp_path: Path, reason: str, change: Callable[[Path], Any]
) -> None:
    """Each by what is wrong."""
    for name in ("source.spm", "target.spm", "vocab.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    change(tmp_path)
    with pytest.raises(TokenizerError, match=reason):
        MarianTokenizer(tmp_path, vocab_size=SIZE, eos_ids=frozenset())
