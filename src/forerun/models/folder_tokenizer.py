"""The tokenizer of a Hugging Face folder: tokenizer.json, run by the `tokenizers` library.

Ids are transformers'. As with GGUF's tokenizers, control tokens (`"special": true`) come out of
text only where the caller asks for it, and decoding goes by bytes, so that streamed text and
decoded text are one. The files are not trusted: what the library makes of them it may refuse, or
fail on, at any call.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from tokenizers import AddedToken, normalizers
from tokenizers import Tokenizer as Pipeline

from forerun.errors import ForerunError, PromptError, TokenizerError
from forerun.models.detokenizer import Detokenizer
from forerun.models.plain_file import parse_json
from forerun.models.score_merging import SPACE
from forerun.models.tokenizer import BYTE_OF, Tokenizer

__all__ = ["FolderTokenizer"]

_KINDS = ("BPE", "Unigram", "WordPiece")
_REMEDY = "Use another model, or convert this one to GGUF."


class FolderTokenizer(Tokenizer):
    """Encodes and decodes for one model.

    Args:
        source: The text of tokenizer.json.
        vocab_size: Tokens that the model embeds; those beyond the tokenizer's leave no text.
        bos_token: Text of the token that begins a text, if there is one.
        eos_ids: The tokens that end a text or a turn; none: `eos_token` alone.
        eos_token: Text of a token that ends a text, if there is one.
        has_encoder: Whether texts are an encoder's input, with tokens before and behind, and what
            is decoded is another text.

    Raises:
        TokenizerError: The description is damaged, contradictory, or of an unknown kind.
    """

    def __init__(
        self,
        source: str,
        *,
        vocab_size: int,
        bos_token: str | None = None,
        eos_ids: frozenset[int] = frozenset(),
        eos_token: str | None = None,
        has_encoder: bool = False,
    ) -> None:
        description = _described(source, has_encoder)
        with _translated(TokenizerError, "tokenizer.json cannot be used"):
            self._pipeline = Pipeline.from_str(source)
            self._pipeline.no_truncation()
            self._pipeline.no_padding()
            added = self._pipeline.get_added_tokens_decoder()
            texts = self._pipeline.get_vocab(with_added_tokens=True)
        _check_ids(description, texts)
        self.vocab_size = vocab_size
        self._normalizer = self._pipeline.normalizer
        self._unknown = _unknown(description, texts)
        self._guard = ""
        self._lock = threading.Lock()  # one pipeline, set anew for each way to read text
        self.special_ids = frozenset(token for token, each in added.items() if each.special)
        self.control_texts = _control_texts(added)
        tokens = _by_id(texts, vocab_size)
        spelling = _spelling(description)
        is_byte_level = spelling == "bytes"
        self._first: list[bytes] | None = None
        if spelling == "words":
            self._first, self._pieces = _words(tokens, self._pipeline.decoder)
        else:
            self._pieces = _pieces(tokens, added, is_byte_level)
        self.missing_bytes = frozenset(
            byte for letter, byte in BYTE_OF.items() if is_byte_level and letter not in texts
        )
        self._opening, self._openers = _openers(description, added, texts.get(bos_token or ""))
        if spelling == "words":
            self._opening, self._openers = True, frozenset()
            self._nameless = frozenset(i for i, text in enumerate(tokens) if not text)
        end = texts.get(eos_token or "")
        self.eos_ids = eos_ids or frozenset([] if end is None else [end])
        if (largest := max(self.eos_ids, default=0)) >= vocab_size:
            raise TokenizerError(f"Token {largest} ends texts, and the model has {vocab_size}.")
        self.bos_id, self.add_bos = texts.get(bos_token or ""), False
        self._around = self._dressing()
        self._has_encoder = has_encoder
        if has_encoder:
            self._openers = frozenset()
        elif any(self._around):
            self.bos_id, self.add_bos = self._only_first(), True
        merges = [list(pair) for pair in _merges(description)] if is_byte_level else []
        kind = {"bytes": "gpt2", "marks": "llama", "words": "wordpiece"}[spelling]
        content = json.dumps([kind, tokens, merges])
        self.fingerprint = hashlib.sha256(content.encode()).hexdigest()

    def _ids(self, text: str, special: bool, guard: str) -> list[int]:
        with self._lock, _translated(PromptError, "The text cannot be cut into tokens"):
            self._pipeline.encode_special_tokens = not special
            if guard != self._guard:
                # Special tokens have been cut out when this is run: then the guard may go.
                steps = [normalizers.Replace(guard, "")] if guard else []
                steps += [self._normalizer] if self._normalizer else []
                self._pipeline.normalizer = normalizers.Sequence(steps)
                self._guard = guard
            ids = self._pipeline.encode(text, add_special_tokens=False).ids
        if special or self._unknown is None:
            return ids
        # Unigram has pieces of the same names as its control tokens, and finds them in any text.
        return [self._unknown if token in self.special_ids else token for token in ids]

    def source(self, text: str, *, special: bool = False) -> list[int]:
        """Return the ids of a text that an encoder is to read, with those that stand around it.

        Raises:
            PromptError: `text` is not text.
        """
        before, after = self._around
        return [*before, *self.encode(text, special=special, bos=False), *after]

    def detokenizer(self, *, special: bool = False, after: Sequence[int] = ()) -> Detokenizer:
        """Return a stream from tokens to text.

        Args:
            special: Write control tokens out as well.
            after: The tokens before the first one, usually the prompt.
        """
        if not self._has_encoder and self._first is None:
            return super().detokenizer(special=special, after=after)
        hidden = frozenset() if special else self.special_ids
        return Detokenizer(
            self._pieces,
            hidden=hidden if self._first is None else hidden | self._nameless,
            opens=self._openers if self._opening else None,
            after=after,
            opens_late=True,
            first=self._first,
        )

    def _dressing(self) -> tuple[list[int], list[int]]:
        """Return the tokens that the tokenizer puts before and behind every text."""
        with _translated(TokenizerError, "tokenizer.json cannot be used"):
            bare = self._pipeline.encode("a", add_special_tokens=False).ids
            dressed = self._pipeline.encode("a", add_special_tokens=True).ids
        for start in range(len(dressed) - len(bare) + 1):
            if dressed[start : start + len(bare)] == bare:
                return dressed[:start], dressed[start + len(bare) :]
        raise TokenizerError("tokenizer.json changes a text's tokens as it adds its own.", _REMEDY)

    def _only_first(self) -> int:
        """Return the token that the tokenizer puts before every text; it puts no other."""
        before, after = self._around
        if len(before) != 1 or after:
            what = f"tokenizer.json puts {len(before) + len(after)} tokens around a text."
            raise TokenizerError(what, "One token before it is all that a model here can have.")
        return before[0]


@contextmanager
def _translated(kind: type[ForerunError], what: str) -> Iterator[None]:
    """Turn whatever the library raises into an error of ours."""
    try:
        yield
    except ForerunError:
        raise
    except Exception as error:  # the library raises nothing narrower
        raise kind(f"{what}: {str(error)[:200]}.", _REMEDY) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of its Rust code; it can't be imported
            raise
        raise kind(f"{what}: {str(error)[:200]}.", _REMEDY) from error


def _described(source: str, has_encoder: bool) -> dict[str, Any]:
    """Return the description, of a kind whose tokens' bytes are known."""
    try:
        description = parse_json(source)
    except ValueError as error:
        raise TokenizerError(f"tokenizer.json {error}.", _REMEDY) from None
    model, added = description.get("model"), description.get("added_tokens")
    if not isinstance(model, dict) or model.get("type", "BPE") not in _KINDS:
        kind = model.get("type") if isinstance(model, dict) else model
        what = f"tokenizer.json is of the kind {kind!r:.60}."
        raise TokenizerError(what, f"Supported: {', '.join(_KINDS)}.")
    if model.get("dropout"):
        raise TokenizerError("tokenizer.json drops merges at random.", _REMEDY)
    # An encoder's input is never guarded: it has no template.
    for token in added if isinstance(added, list) and not has_encoder else []:
        # Else a guarded text could become a control token after all, once the guard is gone.
        if isinstance(token, dict) and token.get("special") and token.get("normalized"):
            what = f"tokenizer.json normalises the control token {token.get('content')!r:.60}."
            raise TokenizerError(what, _REMEDY)
    return description


def _unknown(description: Mapping[str, Any], texts: Mapping[str, int]) -> int | None:
    """Return the token of what a vocabulary of words lacks; others spell bytes or have no such."""
    model = description["model"]
    if model.get("type") == "WordPiece":
        return texts.get(model.get("unk_token"))
    unknown = model.get("unk_id") if model.get("type") == "Unigram" else None
    return unknown if type(unknown) is int else None


def _check_ids(description: Mapping[str, Any], texts: Mapping[str, int]) -> None:
    """The library numbers added tokens itself where the vocabulary does not know them."""
    for token in description.get("added_tokens") or []:
        text, claimed = token["content"], token["id"]
        if texts.get(text) != claimed:
            what = (
                f"tokenizer.json gives {text!r:.60} the id {claimed!r:.20}, not {texts.get(text)}."
            )
            raise TokenizerError(what, _REMEDY)


def _control_texts(added: Mapping[int, AddedToken]) -> tuple[str, ...]:
    texts = [each.content for each in added.values() if each.special]
    return tuple(sorted(texts, key=lambda text: -len(text.encode())))


def _by_id(texts: Mapping[str, int], size: int) -> list[str]:
    """Return texts by id; ids that the tokenizer lacks have none."""
    tokens = [""] * size
    for text, token in texts.items():
        if token >= size:
            raise TokenizerError(f"tokenizer.json has token {token}, and the model embeds {size}.")
        tokens[token] = text
    return tokens


def _steps(part: object) -> Iterator[Mapping[str, Any]]:
    """Yield the steps of a normaliser, pre-tokenizer or decoder, sequences taken apart."""
    if not isinstance(part, dict):
        return
    inner = next((part[key] for key in part if key in _INNER and isinstance(part[key], list)), None)
    if inner is None:
        yield part
        return
    for step in inner:
        yield from _steps(step)


_INNER = ("decoders", "normalizers", "pretokenizers")


def _spelling(description: Mapping[str, Any]) -> Literal["bytes", "marks", "words"]:
    """Return what tokens spell: bytes by letters, text with a mark for spaces, or whole words."""
    kinds = {step.get("type") for step in _steps(description.get("decoder"))}
    if "ByteLevel" in kinds:
        return "bytes"
    if kinds & {"ByteFallback", "Metaspace"}:
        return "marks"
    if kinds == {"WordPiece"}:
        return "words"
    what = f"tokenizer.json decodes by {sorted(map(str, kinds)) or 'nothing'}."
    raise TokenizerError(what, "Supported: ByteLevel, ByteFallback, Metaspace and WordPiece.")


def _words(tokens: Sequence[str], decoder: Any) -> tuple[list[bytes], list[bytes]]:
    """Return the bytes of every token where a text begins, and behind another token.

    The library puts spaces between words and takes those before full stops and the like away again,
    token by token: what follows changes nothing.
    """
    with _translated(TokenizerError, "tokenizer.json cannot be used"):
        first = [decoder.decode([text]).encode() if text else b"" for text in tokens]
        later = [decoder.decode(["a", text])[1:].encode() if text else b"" for text in tokens]
    return first, later


def _pieces(
    tokens: Sequence[str], added: Mapping[int, AddedToken], is_byte_level: bool
) -> list[bytes]:
    """Return the bytes of every token."""

    def piece(token: int, text: str) -> bytes:
        if token in added:
            return text.encode()
        if is_byte_level:
            try:
                return bytes([BYTE_OF[letter] for letter in text])
            except KeyError:  # added by hand, as plain text
                return text.encode()
        if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
            try:
                return bytes.fromhex(text[3:5])
            except ValueError:  # it only looks like a byte
                pass
        return text.replace(SPACE, " ").encode()

    return [piece(token, text) for token, text in enumerate(tokens)]


def _openers(
    description: Mapping[str, Any], added: Mapping[int, AddedToken], bos_id: int | None
) -> tuple[bool, frozenset[int]]:
    """Return whether a space is put before text, and after which tokens beside at its start."""
    steps = [*_steps(description.get("normalizer")), *_steps(description.get("pre_tokenizer"))]
    for step in steps:
        if step.get("type") == "Prepend" and step.get("prepend") == SPACE:
            return True, frozenset(added)
        if step.get("type") == "Metaspace":
            scheme = step.get(
                "prepend_scheme", "always" if step.get("add_prefix_space") else "never"
            )
            if scheme == "first":
                return True, frozenset() if bos_id is None else frozenset({bos_id})
            return scheme == "always", frozenset(added)
    return False, frozenset()


def _merges(description: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the merges, which are written as pairs or, in older files, as lines."""
    merges = description["model"].get("merges", [])
    for merge in merges if isinstance(merges, list) else []:
        if isinstance(merge, str):
            left, _, right = merge.partition(" ")
            yield left, right
        elif isinstance(merge, list) and len(merge) == 2:
            yield str(merge[0]), str(merge[1])
