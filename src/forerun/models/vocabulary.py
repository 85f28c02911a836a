"""The vocabulary that a GGUF file's `tokenizer.ggml.*` keys describe, checked before use.

The file is not trusted: whatever is missing, of another type, doubled or out of range is a
`TokenizerError` that names the key. Which tokens end a text follows llama.cpp: the file's own ids
and a list of well-known texts, since many files name only one of them.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from forerun.errors import TokenizerError

__all__ = ["TokenType", "Vocabulary", "read_vocabulary"]

MAX_TOKENS = 1 << 20
MAX_MERGES = 1 << 22
PREFIX = "tokenizer.ggml."
REMEDY = "Convert the model again, or use another file."

END_TEXTS = frozenset(
    [
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "</s>",
        "<|eom_id|>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "[EOS]",
        "<|end_of_text|>",
        "<end_of_utterance>",
        "<eos>",
        "<turn|>",
        "<|flush|>",
        "<|calls|>",
        "<|tool_response>",
        "<｜end▁of▁sentence｜>",
        "[e~[",
    ]
)
"""Texts of tokens that end a turn or a document in one model family or another."""

# Of each group one token, the first found, is a control token; it also ends the text if the group
# is one of END_GROUPS: a model that opens another file or pads has finished this one.
CONTROL_GROUPS: dict[str, list[str]] = {
    "fim_pre_token_id": [
        "<|fim_prefix|>",
        "<fim-prefix>",
        "<fim_prefix>",
        "<｜fim▁begin｜>",
        "<PRE>",
        "▁<PRE>",
        "<|code_prefix|>",
        "<|prefix|>",
    ],
    "fim_suf_token_id": [
        "<|fim_suffix|>",
        "<fim-suffix>",
        "<fim_suffix>",
        "<｜fim▁hole｜>",
        "<SUF>",
        "▁<SUF>",
        "<|code_suffix|>",
        "<|suffix|>",
    ],
    "fim_mid_token_id": [
        "<|fim_middle|>",
        "<fim-middle>",
        "<fim_middle>",
        "<｜fim▁end｜>",
        "<MID>",
        "▁<MID>",
        "<|code_middle|>",
        "<|middle|>",
    ],
    "fim_pad_token_id": ["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"],
    "fim_rep_token_id": ["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"],
    "fim_sep_token_id": ["<|file_sep|>"],
}
END_GROUPS = ("fim_pad_token_id", "fim_rep_token_id", "fim_sep_token_id")


class TokenType(IntEnum):
    """What a token is, as GGUF numbers it."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Vocabulary:
    """Everything a tokenizer is made from.

    Attributes:
        kind: `gpt2` (byte-level merges) or `llama` (SentencePiece-type).
        pre: The pre-tokenizer's name; `default` if the file has none.
        tokens: Texts by id, in the spelling of the kind; no two are alike, save empty ones.
        types: By id.
        scores: By id; empty for `gpt2`.
        merges: Left and right part, best first; empty for `llama`.
        bos_id: Begins a text, if the model has such a token.
        eos_ids: End it.
        unknown_id: Stands for what no token can spell, if there is such a token.
        add_bos: What the file says about beginning with `bos_id`; None if nothing.
        add_space_prefix: A space is put before text, at its start and after special tokens.
    """

    kind: str
    pre: str
    tokens: tuple[str, ...]
    types: tuple[TokenType, ...]
    scores: tuple[float, ...]
    merges: tuple[tuple[str, str], ...]
    bos_id: int | None
    eos_ids: frozenset[int]
    unknown_id: int | None
    add_bos: bool | None
    add_space_prefix: bool

    def fingerprint(self) -> str:
        """Return a SHA-256 over kind, tokens and merges: equal for equal vocabularies only."""
        content = json.dumps([self.kind, self.tokens, self.merges])
        return hashlib.sha256(content.encode()).hexdigest()


def read_vocabulary(metadata: Mapping[str, object]) -> Vocabulary:
    """Read and check the tokenizer keys of a GGUF file.

    Args:
        metadata: Keys and plain Python values (str, int, float, bool, list).

    Raises:
        TokenizerError: A key is missing, of the wrong type, or contradicts another.
    """
    kind = _required(metadata, "model", str)
    if kind not in ("gpt2", "llama"):
        raise TokenizerError(
            f"The tokenizer model {kind!r} is not supported.",
            "Supported: gpt2 (byte-level BPE) and llama (SentencePiece-type).",
        )
    tokens = _tokens(metadata)
    types = _types(metadata, len(tokens))
    ids = {text: token for token, text in enumerate(tokens) if text}
    named = {
        key: _id(metadata, f"{key}_token_id", len(tokens))
        for key in ("bos", "eos", "eot", "eom", "unknown")
    }
    if kind == "llama":  # SentencePiece's own numbering, where the file is silent
        for token, key in enumerate(("unknown", "bos", "eos")):
            if named[key] is None and token < len(tokens) and types[token] != TokenType.NORMAL:
                named[key] = token
    groups = _control_groups(metadata, ids, len(tokens))
    ends = {token for text, token in ids.items() if text in END_TEXTS}
    for token in ends | set(groups.values()):
        types[token] = TokenType.CONTROL
    ends.update(groups[key] for key in END_GROUPS if key in groups)
    ends |= {end for key in ("eos", "eot", "eom") if (end := named[key]) is not None}
    return Vocabulary(
        kind=kind,
        pre=_optional(metadata, "pre", str) or "default",
        tokens=tokens,
        types=tuple(types),
        scores=_scores(metadata, len(tokens)) if kind == "llama" else (),
        merges=_merges(metadata, ids) if kind == "gpt2" else (),
        bos_id=named["bos"],
        eos_ids=frozenset(ends),
        unknown_id=named["unknown"],
        add_bos=_optional(metadata, "add_bos_token", bool),
        add_space_prefix=kind == "llama"
        and _optional(metadata, "add_space_prefix", bool) is not False,
    )


T = TypeVar("T")


def _optional(metadata: Mapping[str, object], key: str, kind: type[T]) -> T | None:
    value = metadata.get(PREFIX + key)
    if value is None or type(value) is kind:
        return value
    raise TokenizerError(
        f"{PREFIX}{key} is {_short(value)}, not of type {kind.__name__}.",
        REMEDY,
    )


def _required(metadata: Mapping[str, object], key: str, kind: type[T]) -> T:
    value = _optional(metadata, key, kind)
    if value is None:
        raise TokenizerError(f"The file has no {PREFIX}{key}.", REMEDY)
    return value


def _list(metadata: Mapping[str, object], key: str, item: type[T], limit: int) -> list[T] | None:
    """Return a list all of whose items are of one type, its length checked first."""
    values = _optional(metadata, key, list)
    if values is None:
        return None
    if len(values) > limit:
        raise TokenizerError(f"{PREFIX}{key} has {len(values)} items; {limit} is the limit.")
    for index, value in enumerate(values):
        if type(value) is not item:
            raise TokenizerError(
                f"{PREFIX}{key}[{index}] is {_short(value)}, not of type {item.__name__}.", REMEDY
            )
    return values


def _id(metadata: Mapping[str, object], key: str, size: int) -> int | None:
    token = _optional(metadata, key, int)
    if token is not None and not 0 <= token < size:
        raise TokenizerError(f"{PREFIX}{key} is {token}, but there are {size} tokens.", REMEDY)
    return token


def _tokens(metadata: Mapping[str, object]) -> tuple[str, ...]:
    tokens = _list(metadata, "tokens", str, MAX_TOKENS)
    if not tokens:
        raise TokenizerError(f"The file has no {PREFIX}tokens.", REMEDY)
    seen: dict[str, int] = {}
    for token, text in enumerate(tokens):
        if text and seen.setdefault(text, token) != token:
            raise TokenizerError(
                f"Tokens {seen[text]} and {token} are both {_short(text)}.", REMEDY
            )
    try:
        "".join(tokens).encode()
    except UnicodeEncodeError as error:
        raise TokenizerError(f"A token is not text: {error.reason}.", REMEDY) from None
    return tuple(tokens)


def _types(metadata: Mapping[str, object], size: int) -> list[TokenType]:
    numbers = _list(metadata, "token_type", int, MAX_TOKENS)
    if numbers is None:
        return [TokenType.NORMAL] * size
    if len(numbers) < size:
        raise TokenizerError(
            f"{PREFIX}token_type has {len(numbers)} items for {size} tokens.", REMEDY
        )
    known = {kind.value: kind for kind in TokenType}
    return [known.get(number, TokenType.UNUSED) for number in numbers[:size]]


def _scores(metadata: Mapping[str, object], size: int) -> tuple[float, ...]:
    scores = _list(metadata, "scores", float, MAX_TOKENS)
    if scores is None or len(scores) < size:
        raise TokenizerError(
            f"{PREFIX}scores has {len(scores or ())} items for {size} tokens.", REMEDY
        )
    if any(map(math.isnan, scores)):
        raise TokenizerError(f"{PREFIX}scores holds NaN.", REMEDY)
    return tuple(scores[:size])


def _merges(metadata: Mapping[str, object], ids: Mapping[str, int]) -> tuple[tuple[str, str], ...]:
    lines = _list(metadata, "merges", str, MAX_MERGES)
    if lines is None:
        raise TokenizerError(f"The file has no {PREFIX}merges.", REMEDY)
    merges: dict[tuple[str, str], None] = {}  # a merge named twice has its first rank
    for rank, line in enumerate(lines):
        cut = line.find(" ", 1)
        left, right = line[:cut], line[cut + 1 :]
        if cut < 0 or not right:
            raise TokenizerError(f"Merge {rank} is {_short(line)}, not two parts.", REMEDY)
        for text in (left, right, left + right):
            if text not in ids:
                raise TokenizerError(
                    f"Merge {rank}, {_short(line)}, needs {_short(text)}, which is no token.",
                    REMEDY,
                )
        merges[left, right] = None
    return tuple(merges)


def _control_groups(
    metadata: Mapping[str, object], ids: Mapping[str, int], size: int
) -> dict[str, int]:
    found = {}
    for key, texts in CONTROL_GROUPS.items():
        token = _id(metadata, key, size)
        if token is None:
            token = min((ids[text] for text in texts if text in ids), default=None)
        if token is not None:
            found[key] = token
    return found


def _short(value: object) -> str:
    """Return `value` as shown in a message: never more than a line of a hostile file."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"a {type(value).__name__} of {len(value)}"
    text = repr(value[:40] if isinstance(value, str) else value)
    return text if len(text) <= 60 else text[:57] + "..."
