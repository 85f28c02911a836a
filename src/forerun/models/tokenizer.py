"""Text to tokens and back, from the metadata of a GGUF file, with the ids llama.cpp gives.

Two kinds are known: byte-level BPE (`gpt2`), merged by the `tokenizers` library, and
SentencePiece-type (`llama`), merged by score. Special tokens are cut out of the text first, the
longest first. Two kinds of them differ: *user-defined* tokens are ordinary text and always found;
*control* tokens steer the model and come out of text only where the caller asks for it, so that
what a user types can never end a turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tokenizers import Tokenizer as Pipeline
from tokenizers import models

from forerun.errors import PromptError, TokenizerError
from forerun.models.detokenizer import Detokenizer
from forerun.models.pretokenizer import PreTokenizer, pretokenizer
from forerun.models.score_merging import SPACE, ScoreMerger
from forerun.models.vocabulary import TokenType, Vocabulary, read_vocabulary

__all__ = ["Detokenizer", "Tokenizer"]

CONTROL = (TokenType.CONTROL, TokenType.UNKNOWN)
SPECIAL = (*CONTROL, TokenType.USER_DEFINED)


class Tokenizer:
    """Encodes and decodes for one model.

    Attributes:
        vocab_size: Number of tokens.
        bos_id: The token that begins a text, if there is one.
        eos_ids: The tokens that end a text or a turn.
        add_bos: Whether `encode` begins with `bos_id` by default.
        special_ids: Control and unknown tokens: those that leave no text unless asked for.
        missing_bytes: Bytes no token can spell; `encode` leaves them out.
        control_texts: The texts of control tokens, the longest first.
        fingerprint: Equal for two models if and only if they share a vocabulary.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        types = vocabulary.types
        self.vocab_size = len(vocabulary.tokens)
        self.bos_id = vocabulary.bos_id
        self.eos_ids = vocabulary.eos_ids
        self.special_ids = frozenset(i for i, kind in enumerate(types) if kind in CONTROL)
        self.fingerprint = vocabulary.fingerprint()
        self._opening = vocabulary.add_space_prefix
        self._openers = frozenset(i for i, kind in enumerate(types) if kind in SPECIAL)
        self._special = _by_length(vocabulary, SPECIAL)
        self.control_texts = tuple(
            vocabulary.tokens[token] for _, token in _by_length(vocabulary, tuple(CONTROL))
        )
        self._user_defined = _by_length(vocabulary, (TokenType.USER_DEFINED,))
        self._encoder: _Encoder
        if vocabulary.kind == "gpt2":
            pre = pretokenizer(vocabulary.pre)
            self._pieces = _byte_level_pieces(vocabulary)
            self._encoder = _ByteLevel(vocabulary, pre)
            default_bos = pre.add_bos
        else:
            self._pieces = _sentence_pieces(vocabulary)
            self._encoder = _score_merger(vocabulary)
            default_bos = True
        self.missing_bytes = self._encoder.missing_bytes
        wanted = default_bos if vocabulary.add_bos is None else vocabulary.add_bos
        self.add_bos = wanted and self.bos_id is not None

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, object]) -> Tokenizer:
        """Build the tokenizer that a GGUF file describes.

        Args:
            metadata: The file's keys and plain Python values (str, int, float, bool, list).

        Raises:
            TokenizerError: The description is incomplete, contradictory or of an unknown kind.
        """
        return cls(read_vocabulary(metadata))

    def encode(
        self, text: str, *, special: bool = False, bos: bool | None = None, guard: str = ""
    ) -> list[int]:
        """Return the ids of `text`.

        Args:
            text: Any text without lone surrogates.
            special: Read the texts of control tokens as those tokens. Only for text whose every
                part is trusted, such as a rendered chat template.
            bos: Begin with `bos_id`; None does as the model wants, and not twice.
            guard: A character that is not part of the text: what it stands in is not read as a
                special token.

        Raises:
            PromptError: `text` is not text, or a begin token is asked for and there is none.
        """
        _require_text(text)
        ids = self._ids(text, special, guard)
        if bos and self.bos_id is None:
            raise PromptError("This model has no begin-of-text token.", "Leave it out.")
        if bos or (bos is None and self.add_bos and ids[:1] != [self.bos_id]):
            assert self.bos_id is not None
            ids.insert(0, self.bos_id)
        return ids

    def _ids(self, text: str, special: bool, guard: str) -> list[int]:
        """Return the ids of `text`, without one to begin with."""
        ids: list[int] = []
        is_opening = self._opening
        for part in self._split(text, self._special if special else self._user_defined):
            if isinstance(part, int):
                ids.append(part)
                is_opening = self._opening
            else:
                part = part.replace(guard, "") if guard else part
                ids.extend(self._encoder.encode(" " + part if is_opening else part))
                is_opening = False
        return ids

    def source(self, text: str, *, special: bool = False) -> list[int]:
        """Return the ids of a text that an encoder is to read.

        Raises:
            PromptError: As `encode`.
        """
        return self.encode(text, special=special)

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        """Return the text of `ids`: what a detokenizer emits for them, with no clean-up.

        Raises:
            PromptError: An id is not in the vocabulary.
        """
        stream = self.detokenizer(special=special)
        return "".join(map(stream.push, ids)) + stream.flush()

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes `token` stands for, which may be part of a character.

        A special token gives its text. Raises PromptError for an id outside the vocabulary.
        """
        if not 0 <= token < self.vocab_size:
            raise PromptError(f"Token {token} is not in the vocabulary of {self.vocab_size}.")
        return self._pieces[token]

    def detokenizer(self, *, special: bool = False, after: Sequence[int] = ()) -> Detokenizer:
        """Return a stream from tokens to text.

        Args:
            special: Write control tokens out as well.
            after: The tokens before the first one, usually the prompt.
        """
        return Detokenizer(
            self._pieces,
            hidden=frozenset() if special else self.special_ids,
            opens=self._openers if self._opening else None,
            after=after,
        )

    def _split(self, text: str, special: Sequence[tuple[str, int]]) -> list[str | int]:
        """Cut special tokens out of `text`, each in what the longer ones left of it."""
        parts: list[str | int] = [text] if text else []
        for name, token in special:
            if name not in text:
                continue
            cut: list[str | int] = []
            for part in parts:
                if isinstance(part, int):
                    cut.append(part)
                    continue
                first, *rest = part.split(name)
                cut.append(first)
                for piece in rest:
                    cut += (token, piece)
            parts = [part for part in cut if part != ""]
        return parts


class _Encoder(Protocol):
    missing_bytes: frozenset[int]

    def encode(self, text: str) -> list[int]: ...


class _ByteLevel:
    """Byte-level BPE over the words of a pre-tokenizer (Radford et al., 2019, section 2.2)."""

    def __init__(self, vocabulary: Vocabulary, pre: PreTokenizer) -> None:
        # Control tokens are left out: no word and no merge may turn into one.
        ids = {
            text: token
            for token, text in enumerate(vocabulary.tokens)
            if text and vocabulary.types[token] not in CONTROL
        }
        merges = [
            (left, right)
            for left, right in vocabulary.merges
            if left in ids and right in ids and left + right in ids
        ]
        missing = {letter: byte for letter, byte in BYTE_OF.items() if letter not in ids}
        self.missing_bytes = frozenset(missing.values())
        try:
            self._pipeline = Pipeline(
                models.BPE(vocab=ids, merges=merges, ignore_merges=pre.ignore_merges)
            )
            self._pipeline.pre_tokenizer = pre.build("".join(sorted(missing)))
        except Exception as error:  # the library raises nothing narrower
            raise TokenizerError(f"The vocabulary cannot be built: {error}.") from error

    def encode(self, text: str) -> list[int]:
        """Return the ids of plain text."""
        try:
            return self._pipeline.encode(text, add_special_tokens=False).ids
        except Exception as error:  # the library raises nothing narrower
            raise PromptError(f"The text cannot be cut into words: {error}.") from error


def _score_merger(vocabulary: Vocabulary) -> ScoreMerger:
    plain = (TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.UNUSED)
    ids = {
        text: token
        for token, text in enumerate(vocabulary.tokens)
        if text and vocabulary.types[token] in plain
    }
    by_text = {text: token for token, text in enumerate(vocabulary.tokens)}
    spelt = [by_text.get(f"<0x{byte:02X}>") for byte in range(256)]
    byte_ids = [token for token in spelt if token is not None]
    if len(byte_ids) < 256 and (byte_ids or vocabulary.unknown_id is None):
        raise TokenizerError(
            f"{256 - len(byte_ids)} of the 256 byte tokens <0x00> to <0xFF> are missing.",
            "A vocabulary needs all of them, or none and an unknown token.",
        )
    return ScoreMerger(ids, vocabulary.scores, byte_ids, vocabulary.unknown_id)


def _byte_alphabet() -> dict[str, int]:
    """Return the printable letter that stands for each byte in byte-level tokens, inverted."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in set(shown)]
    letters = {chr(byte): byte for byte in shown}
    return letters | {chr(0x100 + rank): byte for rank, byte in enumerate(hidden)}


BYTE_OF = _byte_alphabet()
"""The byte of each letter in byte-level tokens."""


def _byte_level_pieces(vocabulary: Vocabulary) -> list[bytes]:
    def piece(text: str, kind: TokenType) -> bytes:
        if kind in SPECIAL:
            return text.encode()
        if kind == TokenType.UNUSED:
            return b""
        try:
            return bytes([BYTE_OF[letter] for letter in text])
        except KeyError:  # added later, as plain text
            return text.encode()

    return list(map(piece, vocabulary.tokens, vocabulary.types))


def _sentence_pieces(vocabulary: Vocabulary) -> list[bytes]:
    def piece(text: str, kind: TokenType) -> bytes:
        if kind in SPECIAL:
            return text.encode()
        if kind == TokenType.BYTE:
            return _byte(text)
        return b"" if kind == TokenType.UNUSED else text.replace(SPACE, " ").encode()

    return list(map(piece, vocabulary.tokens, vocabulary.types))


def _byte(text: str) -> bytes:
    try:
        return bytes.fromhex(text.removeprefix("<0x").removesuffix(">"))
    except ValueError:
        raise TokenizerError(
            f"The byte token {text[:40]!r} is not spelt <0x00> to <0xFF>."
        ) from None


def _by_length(vocabulary: Vocabulary, kinds: Sequence[TokenType]) -> list[tuple[str, int]]:
    """Return texts and ids of the tokens of these kinds, the longest in bytes first."""
    found = [
        (text, token)
        for token, (text, kind) in enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True))
        if text and kind in kinds
    ]
    return sorted(found, key=lambda item: -len(item[0].encode()))


def _require_text(text: object) -> None:
    if not isinstance(text, str):
        raise PromptError(f"The prompt is of type {type(text).__name__}, not text.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PromptError(
            f"The prompt is not valid text: a lone surrogate at character {error.start}.",
            "Decode it from its source as UTF-8.",
        ) from None
