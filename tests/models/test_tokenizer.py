"""The tokenizer against llama.cpp's, and against files that lie."""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.errors import PromptError, TokenizerError
from forerun.models.pretokenizer import PRETOKENIZERS
from forerun.models.tokenizer import Tokenizer
from forerun.models.vocabulary import MAX_TOKENS

PREFIX = "tokenizer.ggml."
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@cache
def fixture(name: str) -> tuple[dict[str, Any], list[Any]]:
    """The header and the cases of a fixture that llama.cpp made."""
    path = Path(__file__).parent / "fixtures" / f"{name}.jsonl.xz"
    header, *cases = map(json.loads, lzma.decompress(path.read_bytes()).decode().split("\n"))
    return header, cases


@cache
def default_tokenizer(path: Path) -> Tokenizer:
    fields = gguf.GGUFReader(path).fields
    keys = [key for key in fields if key.startswith("tokenizer.")]
    return Tokenizer.from_metadata({key: fields[key].contents() for key in keys})


@pytest.fixture
def tokenizer(default_model: Path) -> Tokenizer:
    return default_tokenizer(default_model)


def pieces_digest(tokenizer: Tokenizer) -> str:
    """A digest of every token's bytes, as the fixtures have it from llama.cpp."""
    digest = hashlib.sha256()
    for piece in map(tokenizer.token_bytes, range(tokenizer.vocab_size)):
        digest.update(len(piece).to_bytes(4, "little") + piece)
    return digest.hexdigest()


def small(**changes: object) -> dict[str, Any]:
    """The metadata of the small byte-level vocabulary, some keys changed."""
    metadata = dict(fixture("pretokenizers")[0]["metadata"])
    return metadata | {PREFIX + key: value for key, value in changes.items()}


def sentencepiece(**changes: object) -> dict[str, Any]:
    metadata = dict(fixture("sentencepiece")[0]["metadata"])
    return metadata | {PREFIX + key: value for key, value in changes.items()}


@cache
def small_tokenizer() -> Tokenizer:
    return Tokenizer.from_metadata(small(pre="smollm"))


def tiny(tokens: dict[str, int], merges: list[str], **changes: object) -> dict[str, Any]:
    """Metadata of the letters of the byte alphabet, and some more tokens with their types."""
    letters = small()[PREFIX + "tokens"][:256]
    return {
        PREFIX + "model": "gpt2",
        PREFIX + "pre": "gpt-2",
        PREFIX + "tokens": [*letters, *tokens],
        PREFIX + "token_type": [1] * 256 + list(tokens.values()),
        PREFIX + "merges": merges,
    } | {PREFIX + key: value for key, value in changes.items()}


@pytest.mark.model
def test_ids_are_llama_cpps_on_the_default_model(tokenizer: Tokenizer) -> None:
    """All 12,000 texts get llama.cpp's ids, with special tokens parsed and without."""
    header, cases = fixture("default_model")
    assert len(cases) >= 10_000
    assert sorted(tokenizer.eos_ids) == header["ends"]
    assert pieces_digest(tokenizer) == header["pieces"]
    for text, plain, special in cases:
        assert tokenizer.encode(text) == plain, text
        assert tokenizer.encode(text, special=True) == (plain if special is None else special), text


@pytest.mark.model
def test_default_model_round_trip_is_exact(tokenizer: Tokenizer) -> None:
    """Decoding gives the text back, byte for byte, unless it has bytes the model cannot spell."""
    spelt = 0
    for text, plain, special in fixture("default_model")[1]:
        if not tokenizer.missing_bytes & set(text.encode()):
            spelt += 1
            assert tokenizer.decode(plain) == text
            assert tokenizer.decode(special or plain, special=True) == text
    assert spelt > 11_000


@pytest.mark.model
def test_bytes_the_default_model_cannot_spell_are_named(tokenizer: Tokenizer) -> None:
    """The vocabulary lacks six control characters and bytes that text hardly has."""
    assert {4, 6, 19, 20, 22, 29} <= tokenizer.missing_bytes
    assert not set(b"\n\t\r") & tokenizer.missing_bytes
    assert tokenizer.decode(tokenizer.encode("!\x04!")) == "!!"


@pytest.mark.model
def test_user_text_cannot_end_a_turn(tokenizer: Tokenizer) -> None:
    """A control token's text is text, unless the caller says that it is trusted."""
    assert not set(tokenizer.encode("<|im_end|>")) & tokenizer.special_ids
    assert tokenizer.encode("<|im_end|>", special=True) == [2]
    assert tokenizer.decode([2]) == ""
    assert tokenizer.decode([2], special=True) == "<|im_end|>"
    assert tokenizer.token_bytes(2) == b"<|im_end|>"


@pytest.mark.parametrize("name", PRETOKENIZERS)
def test_every_listed_pretokenizer_is_llama_cpps(name: str) -> None:
    """Listed means tested: the ids under each name are llama.cpp's, on 700 texts."""
    header, families = fixture("pretokenizers")
    (family,) = [family for family in families if name in family["names"]]
    tokenizer = Tokenizer.from_metadata(small(pre=name))
    assert tokenizer.add_bos == family["add_bos"]
    assert pieces_digest(tokenizer) == header["pieces"]
    for text, ids in zip(header["texts"], family["ids"], strict=True):
        assert tokenizer.encode(text, special=len(text) % 2 == 1, bos=False) == ids, text


def test_pretokenizers_that_differ_are_told_apart() -> None:
    """The texts show every difference: two names share ids only if they share a definition."""
    families = fixture("pretokenizers")[1]
    assert sorted(name for family in families for name in family["names"]) == sorted(PRETOKENIZERS)
    for family in families:
        assert len({PRETOKENIZERS[name] for name in family["names"]}) == 1
    assert len(families) == len(set(PRETOKENIZERS.values()))


def test_forgetting_to_split_digits_is_noticed() -> None:
    """The texts catch the commonest wrong converter: SmolLM's digits left together."""
    texts = fixture("pretokenizers")[0]["texts"]
    right, wrong = (Tokenizer.from_metadata(small(pre=name)) for name in ("smollm", "gpt-2"))
    differing = sum(right.encode(text) != wrong.encode(text) for text in texts)
    assert differing > len(texts) // 20


def test_unknown_pretokenizer_is_refused_by_name() -> None:
    """A name that is not in the table is not guessed at."""
    with pytest.raises(TokenizerError, match=r"'nonsuch' is unknown.*smollm"):
        Tokenizer.from_metadata(small(pre="nonsuch"))


@pytest.mark.parametrize("prefix", [True, False])
def test_sentencepiece_ids_are_llama_cpps(prefix: bool) -> None:
    """Scores, ties, byte fallback and the space prefix are llama.cpp's, on 2,000 texts."""
    header, variants = fixture("sentencepiece")
    (variant,) = [each for each in variants if each["add_space_prefix"] == prefix]
    tokenizer = Tokenizer.from_metadata(sentencepiece(add_space_prefix=prefix))
    assert tokenizer.add_bos == variant["add_bos"]
    assert sorted(tokenizer.eos_ids) == variant["ends"]
    assert pieces_digest(tokenizer) == variant["pieces"]
    rows = zip(header["texts"], variant["ids"], variant["special_ids"], strict=True)
    for text, plain, special in rows:
        assert tokenizer.encode(text, bos=False) == plain, text
        assert tokenizer.encode(text, bos=False, special=True) == special, text
        assert tokenizer.decode(plain) == text
        assert tokenizer.decode(special, special=True) == text


def test_sentencepiece_without_bytes_says_unknown() -> None:
    """Where there are no byte tokens, what cannot be spelt is the unknown token."""
    metadata = {
        PREFIX + "model": "llama",
        PREFIX + "tokens": ["<unk>", "<s>", "</s>", "▁a", "▁", "a"],
        PREFIX + "token_type": [2, 3, 3, 1, 1, 1],
        PREFIX + "scores": [0.0, 0.0, 0.0, -1.0, -2.0, -3.0],
        PREFIX + "unknown_token_id": 0,
    }
    tokenizer = Tokenizer.from_metadata(metadata)
    assert tokenizer.encode("aé a") == [1, 3, 0, 3]
    del metadata[PREFIX + "unknown_token_id"]
    metadata[PREFIX + "token_type"] = [1] * 6
    with pytest.raises(TokenizerError, match="byte tokens"):
        Tokenizer.from_metadata(metadata)


def test_no_merge_and_no_word_becomes_a_control_token() -> None:
    """Neither merges nor `ignore_merges` can make a control token out of a user's text."""
    merged = Tokenizer.from_metadata(tiny({"ab": 3}, ["a b"]))
    assert merged.encode("ab", special=False) == merged.encode("a") + merged.encode("b")
    whole = Tokenizer.from_metadata(tiny({"ab": 3}, [], pre="llama-bpe"))
    assert len(whole.encode("ab")) == 2
    assert whole.encode("ab", special=True) == [256]
    pieces = {"</": 1, "s>": 1}
    metadata = sentencepiece()
    metadata[PREFIX + "tokens"] = [*metadata[PREFIX + "tokens"], *pieces]
    metadata[PREFIX + "token_type"] = metadata[PREFIX + "token_type"] + [1, 1]
    metadata[PREFIX + "scores"] = metadata[PREFIX + "scores"] + [0.0, 0.0]
    assert not set(Tokenizer.from_metadata(metadata).encode("</s>", bos=False)) & {1, 2}


def test_what_cannot_be_spelt_still_stands_between() -> None:
    """A byte without a token is left out, and its two sides are not merged across it."""
    metadata = tiny({"!!": 1}, ["! !"])
    metadata[PREFIX + "tokens"][metadata[PREFIX + "tokens"].index("#")] = "unused"
    tokenizer = Tokenizer.from_metadata(metadata)
    assert tokenizer.missing_bytes == {ord("#")}
    assert tokenizer.encode("!#!") == tokenizer.encode("!") * 2
    assert tokenizer.encode("!!") == [256]


def test_user_defined_tokens_are_always_found_the_longest_first() -> None:
    """A user-defined token is ordinary text, and a longer special token wins over a shorter."""
    tokenizer = Tokenizer.from_metadata(tiny({"<t>": 4, "t>": 4, "<x><t>": 3}, []))
    assert tokenizer.encode("<t>t><t>") == [256, 257, 256]
    assert tokenizer.encode("<x><t>")[-1] == 256
    assert tokenizer.encode("<x><t>", special=True) == [258]
    assert tokenizer.decode([256]) == "<t>"
    assert 256 not in tokenizer.special_ids


def test_begin_token_is_added_as_the_model_wants_and_once() -> None:
    """None adds it if the model wants it and the text has none; True and False are obeyed."""
    tokenizer = Tokenizer.from_metadata(tiny({"<b>": 3}, [], bos_token_id=256, add_bos_token=True))
    plain = tokenizer.encode("a", bos=False)
    assert tokenizer.encode("a") == [256, *plain] == tokenizer.encode("<b>a", special=True)
    assert tokenizer.encode("<b>a", special=True, bos=True) == [256, 256, *plain]
    without = Tokenizer.from_metadata(tiny({"<b>": 3}, [], add_bos_token=True))
    assert without.bos_id is None
    assert without.encode("a") == plain
    with pytest.raises(PromptError, match="no begin-of-text token"):
        without.encode("a", bos=True)


def test_end_tokens_are_found_by_id_and_by_text() -> None:
    """The file's own end ids count, and so do tokens whose text says that they end a turn."""
    tokens = {"<stop>": 3, "<|eot_id|>": 1, "<|file_sep|>": 1, "<|im_start|>": 3, "<eom>": 3}
    metadata = tiny(tokens, [], eos_token_id=256, eom_token_id=260)
    tokenizer = Tokenizer.from_metadata(metadata)
    assert tokenizer.eos_ids == {256, 257, 258, 260}
    assert {257, 258} <= tokenizer.special_ids


def test_fingerprint_is_the_vocabularys() -> None:
    """Equal vocabularies have equal fingerprints; another token or merge changes it."""
    base = Tokenizer.from_metadata(tiny({"ab": 1, "cd": 1}, ["a b", "c d"]))
    same = Tokenizer.from_metadata(tiny({"ab": 1, "cd": 1}, ["a b", "c d"], eos_token_id=3))
    token = Tokenizer.from_metadata(tiny({"ab": 1, "ef": 1}, ["a b"]))
    merge = Tokenizer.from_metadata(tiny({"ab": 1, "cd": 1}, ["c d", "a b"]))
    assert base.fingerprint == same.fingerprint
    assert len({base.fingerprint, token.fingerprint, merge.fingerprint}) == 3


def bad_metadata() -> Iterator[tuple[str, dict[str, Any], str]]:
    """Name, metadata and what the error says."""
    good = tiny({"ab": 1}, ["a b"])

    def without(key: str) -> dict[str, Any]:
        return {name: value for name, value in good.items() if name != PREFIX + key}

    def changed(**changes: object) -> dict[str, Any]:
        return good | {PREFIX + key: value for key, value in changes.items()}

    tokens = good[PREFIX + "tokens"]
    yield "empty", {}, "no tokenizer.ggml.model"
    yield "no tokens", without("tokens"), "no tokenizer.ggml.tokens"
    yield "no merges", without("merges"), "no tokenizer.ggml.merges"
    yield "model", changed(model="wordpiece"), "'wordpiece' is not supported"
    yield "model type", changed(model=3), "not of type str"
    yield "pre type", changed(pre=["smollm"]), "a list of 1, not of type str"
    yield "token not text", changed(tokens=[*tokens[:-1], 7]), r"tokens\[256\] is 7"
    yield "tokens no list", changed(tokens="abc"), "not of type list"
    yield "duplicate", changed(tokens=[*tokens[:-1], "a"]), "are both 'a'"
    yield "surrogate", changed(tokens=[*tokens[:-1], "\ud800"]), "not text"
    yield "too many", changed(tokens=["a"] * (MAX_TOKENS + 1)), f"items; {MAX_TOKENS} is the limit"
    yield "types short", changed(token_type=[1]), "1 items for 257 tokens"
    yield "types float", changed(token_type=[1.0] * 257), "not of type int"
    yield "merge unknown", changed(merges=["a c"]), "needs 'ac', which is no token"
    yield "merge part", changed(merges=["a zz"]), "needs 'zz'"
    yield "merge shape", changed(merges=["ab"]), "not two parts"
    yield "merges ints", changed(merges=[1]), "not of type str"
    yield "bos range", changed(bos_token_id=257), "is 257, but there are 257 tokens"
    yield "eos negative", changed(eos_token_id=-1), "is -1"
    yield "eos text", changed(eos_token_id="</s>"), "not of type int"
    yield "flag", changed(add_bos_token=1), "not of type bool"
    yield "no scores", sentencepiece(scores=None), "scores has 0 items"
    yield "nan", sentencepiece(scores=[float("nan")] * 6000), "holds NaN"
    pieces = sentencepiece()[PREFIX + "tokens"]
    odd = ["<0xZZ>" if text == "<0x41>" else text for text in pieces]
    yield "byte spelling", sentencepiece(tokens=odd), "<0x"


@pytest.mark.parametrize(
    ("metadata", "message"), [pytest.param(m, e, id=name) for name, m, e in bad_metadata()]
)
def test_a_lying_file_gets_a_clear_error(metadata: dict[str, Any], message: str) -> None:
    """What is missing, ill-typed, doubled, dangling or too much is named in a TokenizerError."""
    with pytest.raises(TokenizerError, match=message):
        Tokenizer.from_metadata(metadata)


@pytest.mark.parametrize("text", ["\ud83d", "a\udfffb", b"bytes", None])
def test_what_is_not_text_is_refused(text: Any) -> None:
    """Lone surrogates and other types are a PromptError, not a crash and not a question mark."""
    with pytest.raises(PromptError, match=r"The prompt is"):
        small_tokenizer().encode(text)


@pytest.mark.parametrize("token", [-1, 10**9])
def test_ids_outside_the_vocabulary_are_refused(token: int) -> None:
    """A negative or too large id is a PromptError, in decode and in token_bytes."""
    with pytest.raises(PromptError, match="not in the vocabulary"):
        small_tokenizer().decode([token])
    with pytest.raises(PromptError, match="not in the vocabulary"):
        small_tokenizer().token_bytes(token)


@given(text=TEXT, name=st.sampled_from(sorted(PRETOKENIZERS)))
def test_any_text_survives_byte_level(text: str, name: str) -> None:
    """Every text comes back unchanged, whatever the pre-tokenizer, control tokens included."""
    tokenizer = _built(name)
    for special in (False, True):
        ids = tokenizer.encode(text, special=special, bos=False)
        assert tokenizer.decode(ids, special=True) == text


@given(text=TEXT, prefix=st.booleans())
def test_any_text_survives_sentencepiece(text: str, prefix: bool) -> None:
    """Every text comes back unchanged, with the space prefix or without."""
    tokenizer = _built_sentencepiece(prefix)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@cache
def _built(name: str) -> Tokenizer:
    return Tokenizer.from_metadata(small(pre=name))


@cache
def _built_sentencepiece(prefix: bool) -> Tokenizer:
    return Tokenizer.from_metadata(sentencepiece(add_space_prefix=prefix))
