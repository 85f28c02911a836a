"""The tokenizer of Marian's folders: source.spm, target.spm and vocab.json, no tokenizer.json.

transformers and sentencepiece cut text into pieces; what pieces spell is in vocab.json, so text
streams token by token as with other folders.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forerun.errors import CapabilityError, PromptError, TokenizerError
from forerun.extras import pip_command
from forerun.models.detokenizer import Detokenizer
from forerun.models.score_merging import SPACE
from forerun.models.tokenizer import Tokenizer

__all__ = ["MarianTokenizer"]

_REMEDY = "Fetch the model again, or make a tokenizer.json for it."


class MarianTokenizer(Tokenizer):
    """Encodes and decodes for one model.

    Args:
        path: The folder.
        vocab_size: Tokens that the model embeds; those beyond vocab.json's leave no text.
        eos_ids: The tokens that end a text; none: the tokenizer's own.

    Raises:
        CapabilityError: transformers or sentencepiece is not installed.
        TokenizerError: The files are damaged, or source and target have vocabularies of their own.
    """

    def __init__(self, path: Path, *, vocab_size: int, eos_ids: frozenset[int]) -> None:
        self._library = _opened(path)
        if self._library.separate_vocabs:
            raise TokenizerError(f"{path} has a vocabulary for each language.", _REMEDY)
        tokens = [""] * vocab_size
        for text, token in self._library.encoder.items():
            if not 0 <= token < vocab_size:
                what = f"{path}/vocab.json has token {token}, and the model embeds {vocab_size}."
                raise TokenizerError(what, _REMEDY)
            tokens[token] = text
        self.vocab_size = vocab_size
        self.bos_id, self.add_bos = None, False
        self.eos_ids = eos_ids or frozenset({self._library.eos_token_id})
        self.special_ids = frozenset(self._library.all_special_ids)
        self.control_texts = tuple(
            sorted(map(str, self._library.all_special_tokens), key=lambda text: -len(text.encode()))
        )
        self.missing_bytes = frozenset()
        self._pieces = [text.replace(SPACE, " ").encode() for text in tokens]
        content = json.dumps(["marian", tokens])
        self.fingerprint = hashlib.sha256(content.encode()).hexdigest()

    def _ids(self, text: str, special: bool, guard: str) -> list[int]:
        text = text.replace(guard, "") if guard else text
        try:
            found: list[int] = self._library(
                text, add_special_tokens=False, split_special_tokens=not special
            ).input_ids
        except Exception as error:  # the library raises whatever its parts do
            what = f"The text cannot be cut into tokens: {str(error)[:200]}."
            raise PromptError(what, "Give other text.") from error
        if special:
            return found
        # The pieces have the names of control tokens, which may be found in any text.
        unknown = self._library.unk_token_id
        return [unknown if token in self.special_ids else token for token in found]

    def source(self, text: str, *, special: bool = False) -> list[int]:
        """Return the ids of a text that the encoder is to read, with the end behind.

        Raises:
            PromptError: `text` is not text.
        """
        ids = self.encode(text, special=special)
        return list(self._library.build_inputs_with_special_tokens(ids))

    def detokenizer(self, *, special: bool = False, after: Sequence[int] = ()) -> Detokenizer:
        """Return a stream from tokens to text.

        Args:
            special: Write control tokens out as well.
            after: The tokens before the first one.
        """
        hidden = frozenset() if special else self.special_ids
        return Detokenizer(
            self._pieces, hidden=hidden, opens=frozenset(), after=after, opens_late=True
        )


def _opened(path: Path) -> Any:
    """Return transformers' own tokenizer."""
    for name in ("transformers", "sentencepiece"):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            what = f"{path} has no tokenizer.json, and its source.spm needs {name}."
            raise CapabilityError(what, pip_command("forerun[hf]")) from None
    kind: Any = importlib.import_module("transformers").MarianTokenizer
    try:
        return kind.from_pretrained(str(path), local_files_only=True)
    except Exception as error:  # the library raises whatever its parts do
        what = f"The tokenizer of {path} cannot be used: {str(error)[:200]}."
        raise TokenizerError(what, _REMEDY) from error
