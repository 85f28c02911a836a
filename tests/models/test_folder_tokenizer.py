"""Tokenizers of folders: the library's ids, our bytes, and control tokens only where asked for."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tokenizers import Tokenizer as Pipeline
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from forerun.errors import PromptError, TokenizerError
from forerun.models.chat_prompt import chat_tokens
from forerun.models.chat_template import ChatTemplate
from forerun.models.folder_tokenizer import FolderTokenizer
from forerun.models.tokenizer import Tokenizer
from models.tiny_folder import byte_tokenizer, unigram_tokenizer
from models.tiny_gguf import byte_vocabulary

SIZE = 300
TEXTS = (
    "the hen is here, there and in the inn",
    "  two  spaces\n\nand\ttabs ",
    "1234 Ünïcode 你好 🙂 <|im_end|> the<|endoftext|>re",
    "<filling 7> there <filling 8>",
    "",
)


def made(size: int = SIZE, change: Callable[[Any], None] = lambda _: None) -> FolderTokenizer:
    """The tiny byte-level tokenizer, changed."""
    description = byte_tokenizer(SIZE)
    change(description)
    return FolderTokenizer(
        json.dumps(description),
        vocab_size=size,
        bos_token="<|endoftext|>",
        eos_ids=frozenset({1}),
    )


def test_it_is_the_gguf_files_tokenizer() -> None:
    """Of the same vocabulary it makes the same ids, bytes, text and fingerprint."""
    ours, theirs = made(), Tokenizer.from_metadata(byte_vocabulary(SIZE))
    for text in TEXTS:
        for special in (False, True):
            ids = ours.encode(text, special=special)
            assert ids == theirs.encode(text, special=special)
            assert ours.decode(ids, special=True) == text
            assert ours.decode(ids) == theirs.decode(ids)
    for name in ("vocab_size", "bos_id", "add_bos", "special_ids", "missing_bytes", "fingerprint"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.control_texts == theirs.control_texts
    assert ours.eos_ids == {1}
    assert [ours.token_bytes(i) for i in range(SIZE)] == [
        theirs.token_bytes(i) for i in range(SIZE)
    ]


def test_long_texts_are_not_cut() -> None:
    """The file's own truncation, to 8 tokens, is for training."""
    assert len(made().encode("x" * 100)) == 100


def test_control_tokens_only_where_asked_for() -> None:
    """Text never ends a turn; a trusted template does."""
    tokenizer = made()
    assert 1 not in tokenizer.encode("a<|im_end|>b")
    assert tokenizer.encode("a<|im_end|>b", special=True)[1] == 1
    assert tokenizer.decode(tokenizer.encode("a<|im_end|>b", special=True)) == "ab"


def test_messages_cannot_pass_for_the_template() -> None:
    """Inside of a message the letters of a control token are letters, also twice in a row."""
    tokenizer = made()
    template = ChatTemplate("{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}")
    for text in ("a<|im_end|>b", "<|im_<|im_end|>end|>", "\ufdd0<|im_end|>", "plain"):
        for _ in range(2):
            ids = chat_tokens(tokenizer, template, [{"role": "user", "content": text}])
            assert (ids.count(1), ids[-1]) == (1, 1)
            assert tokenizer.decode(ids[:-1], special=True) == text
        assert tokenizer.encode(text) == made().encode(text)


def test_tokens_that_only_the_model_has() -> None:
    """Ids beyond the tokenizer's are in the model's law, and leave no text."""
    tokenizer = made(320)
    assert tokenizer.vocab_size == 320
    assert tokenizer.token_bytes(319) == b""
    with pytest.raises(TokenizerError, match="has token 299, and the model embeds 299"):
        made(299)


def test_a_first_token() -> None:
    """A template that begins every text with a token makes it the begin token."""

    def prefixed(description: Any) -> None:
        begin = {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}}
        text = {"Sequence": {"id": "A", "type_id": 0}}
        description["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [begin, text],
            "pair": [begin, text, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {
                "<|im_end|>": {"id": "<|im_end|>", "ids": [1], "tokens": ["<|im_end|>"]}
            },
        }

    tokenizer = made(change=prefixed)
    assert (tokenizer.bos_id, tokenizer.add_bos) == (1, True)
    assert tokenizer.encode("a")[0] == 1
    assert tokenizer.encode("a", bos=False) == made().encode("a")
    assert tokenizer.encode("<|im_end|>a", special=True).count(1) == 1

    def suffixed(description: Any) -> None:
        prefixed(description)
        description["post_processor"]["single"].reverse()

    with pytest.raises(TokenizerError, match="puts 1 tokens around a text"):
        made(change=suffixed)


def sentence_pieces(scheme: str) -> FolderTokenizer:
    """A tokenizer of marked words with byte fallback, as of Llama 2."""
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    texts += ["▁", "a", "b", "▁a", "ab", "▁ab"]
    vocabulary = {text: token for token, text in enumerate(texts)}
    merges = [("▁", "a"), ("a", "b"), ("▁a", "b")]
    pipeline = Pipeline(models.BPE(vocabulary, merges, byte_fallback=True, unk_token="<unk>"))
    pipeline.add_special_tokens(["<unk>", "<s>", "</s>"])
    description = json.loads(pipeline.to_str())
    replaced = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    if scheme == "normalizer":
        steps = [{"type": "Prepend", "prepend": "▁"}, replaced]
        description["normalizer"] = {"type": "Sequence", "normalizers": steps}
    else:
        metaspace = {"type": "Metaspace", "replacement": "▁", "split": False}
        description["pre_tokenizer"] = {**metaspace, "prepend_scheme": scheme}
    back = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    decoders = [back, {"type": "ByteFallback"}, {"type": "Fuse"}]
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    description["decoder"] = {"type": "Sequence", "decoders": [*decoders, strip]}
    return FolderTokenizer(json.dumps(description), vocab_size=len(texts), bos_token="<s>")


@pytest.mark.parametrize("scheme", ["normalizer", "always", "first", "never"])
def test_marked_spaces(scheme: str) -> None:
    """Text comes back as it was, bytes and all, whatever space is put before it."""
    tokenizer = sentence_pieces(scheme)
    for text in ("ab a", " ab", "  a", "a\nü🙂 b", "ba"):
        ids = tokenizer.encode(text)
        # Metaspace takes a space that is there already for the one that it would put.
        text = text.removeprefix(" ") if scheme in ("always", "first") else text
        assert tokenizer.decode(ids) == text
        stream = tokenizer.detokenizer()
        assert "".join(map(stream.push, ids)) + stream.flush() == text
    assert tokenizer.decode(tokenizer.encode("ab</s>ab", special=True)) == "abab"
    first = tokenizer.token_bytes(tokenizer.encode("ab")[0])
    assert first == (b"ab" if scheme == "never" else b" ab")


CHANGES: list[tuple[str, Callable[[Any], Any]]] = [
    ("is of the kind 'WordLevel'", lambda d: d["model"].update(type="WordLevel")),
    ("is of the kind None", lambda d: d.update(model=None)),
    ("drops merges at random", lambda d: d["model"].update(dropout=0.1)),
    ("decodes by nothing", lambda d: d.update(decoder=None)),
    ("decodes by .*BPEDecoder", lambda d: d.update(decoder={"type": "BPEDecoder", "suffix": "x"})),
    ("cannot be used", lambda d: d["model"].update(merges=[["q", "nothing"]])),
    ("cannot be used", lambda d: d["model"].update(vocab=7)),
    ("normalises the control token", lambda d: d["added_tokens"][0].update(normalized=True)),
    (r"the id 1, not|the id 0, not", lambda d: d["model"]["vocab"].pop("<|im_end|>")),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "change"), CHANGES)
def test_tokenizers_that_do_not_run(reason: str, change: Callable[[Any], Any]) -> None:
    """What would give other ids or other bytes is refused by name."""
    with pytest.raises(TokenizerError, match=reason):
        made(change=change)


def test_a_pattern_without_end() -> None:
    """A splitting pattern that backtracks for ever ends in an error, soon."""

    def hostile(description: Any) -> None:
        pattern = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated"}
        description["pre_tokenizer"] = {**pattern, "invert": False}

    with pytest.raises(PromptError, match="cannot be cut into tokens"):
        made(change=hostile).encode("a" * 40 + "b")


def test_text_that_is_no_text() -> None:
    """Numbers and lone surrogates are no text."""
    for text in (7, None, "\ud800"):
        with pytest.raises(PromptError):
            made().encode(text)  # type: ignore[arg-type]


def test_threads_share_it() -> None:
    """Texts read in three ways at the same time come out as they do one by one."""
    tokenizer = made()
    ways: list[dict[str, Any]] = [{}, {"special": True}, {"special": True, "guard": "\ufdd0"}]
    text = "the<|im_\ufdd0end|><|im_end|>"
    expected = [tokenizer.encode(text, **way) for way in ways]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: tokenizer.encode(text, **ways[i % 3]), range(300)))
    assert found == expected * 100
    assert expected[1] != expected[2]


def of_encoder(description: dict[str, Any]) -> tuple[FolderTokenizer, Pipeline]:
    """A tokenizer of a model with an encoder, and the library's."""
    source = json.dumps(description)
    made = FolderTokenizer(source, vocab_size=SIZE, eos_token="</s>", has_encoder=True)
    return made, Pipeline.from_str(source)


def test_an_encoder_reads_the_librarys_ids() -> None:
    """Pieces by their scores, the end behind; decoded as the library does, and token by token."""
    tokenizer, library = of_encoder(unigram_tokenizer(SIZE))
    assert tokenizer.eos_ids == {1}
    for text in ("the hen walks to the house.", " caf\u00e9, \u732b  x", "The </s> end", "", "e"):
        ids = library.encode(text, add_special_tokens=True).ids
        assert tokenizer.source(text, special=True) == ids
        assert ids[-1] == 1
        assert tokenizer.encode(text, special=True) == ids[:-1]
        assert tokenizer.decode(ids) == library.decode(ids, skip_special_tokens=True)
    typed = tokenizer.source("The </s> end")
    assert typed[:-1].count(2) == 1  # unknown: the pieces have the end's name, too
    assert typed.index(1) == len(typed) - 1
    strange = [SIZE - 1, *tokenizer.encode("the hen"), SIZE - 1, 0, *tokenizer.encode("he n"), 1]
    assert tokenizer.decode(strange) == "the hen he n"
    assert tokenizer.decode(strange) == library.decode(strange, skip_special_tokens=True)
    for text in ("the hen walks to the house.", "Hen, the"):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def word_pieces(cleanup: bool) -> dict[str, Any]:
    """A tokenizer of BERT's kind, of a few words."""
    texts = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstuvwxyz.,!?'"]
    texts += ["##s", "##en", "##'", "the", "hen", "do", "not", "n't", "'m", "do not", "[", "]"]
    vocabulary = {text: token for token, text in enumerate(texts)}
    pipeline = Pipeline(models.WordPiece(vocabulary, unk_token="[UNK]"))
    pipeline.normalizer = normalizers.BertNormalizer(lowercase=True)
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.WordPiece(cleanup=cleanup)
    pipeline.add_special_tokens(texts[:4])
    pipeline.add_tokens(["extra"])
    around = [("[CLS]", 2), ("[SEP]", 3)]
    pipeline.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, around)
    description: dict[str, Any] = json.loads(pipeline.to_str())
    return description


@pytest.mark.parametrize("cleanup", [True, False])
def test_word_pieces_are_the_librarys(cleanup: bool) -> None:
    """Ids, text and text token by token; what is hidden or nameless at the start leaves it one."""
    tokenizer, library = of_encoder(word_pieces(cleanup))
    for text in (
        "The hens, the hen's!",
        "don't do not 'm",
        "",
        "[SEP] the",
        "caf\u00e9 \u732b extra .",
    ):
        ids = library.encode(text).ids
        assert tokenizer.source(text, special=True) == ids
    typed = tokenizer.source("[SEP] the")
    assert typed.count(3) == 1
    rng = random.Random(0)
    size = library.get_vocab_size()
    for _ in range(500):
        ids = [rng.randrange(size + 1) for _ in range(rng.randrange(9))]
        for special in (False, True):
            expected = library.decode(ids, skip_special_tokens=not special)
            stream = tokenizer.detokenizer(special=special)
            pieces = [stream.push(token) for token in ids]
            assert "".join(pieces) + stream.flush() == expected
            assert tokenizer.decode(ids, special=special) == expected
    prompt = library.encode("the hen", add_special_tokens=False).ids
    stream = tokenizer.detokenizer(after=prompt)
    assert stream.push(library.token_to_id("do")) == " do"


def test_tokens_on_both_sides_are_for_an_encoder_alone() -> None:
    """As BART has them; a model that goes on from its text can't have one behind it."""
    description: dict[str, Any] = byte_tokenizer(SIZE)
    ends = {"sep": ["<|im_end|>", 1], "cls": ["<|endoftext|>", 0]}
    description["post_processor"] = {"type": "RobertaProcessing", **ends}
    description["post_processor"] |= {"trim_offsets": True, "add_prefix_space": False}
    tokenizer, _ = of_encoder(description)
    plain = made().encode("the hen")
    assert tokenizer.source("the hen") == [0, *plain, 1]
    assert tokenizer.encode("the hen") == plain
    with pytest.raises(TokenizerError, match="puts 2 tokens around"):
        FolderTokenizer(json.dumps(description), vocab_size=SIZE)
