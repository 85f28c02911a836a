"""A Hugging Face folder: config.json, safetensors, tokenizer.json and what goes with them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from forerun.errors import (
    ModelFileError,
    TemplateError,
    TokenizerError,
    UnsupportedModelError,
)
from forerun.models.architecture import Architecture
from forerun.models.chat_template import ChatTemplate
from forerun.models.folder_config import read_architecture
from forerun.models.folder_tokenizer import FolderTokenizer
from forerun.models.folder_weights import FolderWeights, Weights
from forerun.models.foreign import ForeignWeights, foreign_architecture, has_safetensors
from forerun.models.marian_tokenizer import MarianTokenizer
from forerun.models.plain_file import DAMAGED, read_json, read_text
from forerun.models.tokenizer import Tokenizer
from forerun.models.weight_file import WeightFile

__all__ = ["ModelFolder", "read_folder"]

_MAX_CONFIG = 4 << 20
_MAX_TOKENIZER = 64 << 20


@dataclass(frozen=True, slots=True, eq=False)
class ModelFolder:
    """All of a folder but its weights, which are opened.

    Attributes:
        architecture: The network's numbers.
        tokenizer: Text to tokens and back.
        chat_template: Messages to text, or None if the folder has no (sound) template.
        template_error: What is wrong with the template, if anything.
        weights: The weights.
        foreign: Why Forerun's own engines do not run it; empty if they do.
    """

    architecture: Architecture
    tokenizer: Tokenizer
    chat_template: ChatTemplate | None
    template_error: TemplateError | None
    weights: WeightFile
    foreign: str = ""


def read_folder(path: Path, weights: Weights = "auto", *, foreign: bool = False) -> ModelFolder:
    """Read and check a folder.

    Args:
        path: The folder.
        weights: How matrices are read; `FolderWeights.open` says more.
        foreign: Take a network that only transformers runs, too.

    Raises:
        StartError: Something is missing, damaged or not supported; the subclass says which.
        OptionError: `weights` does not go with these files.
    """
    path = Path(os.path.abspath(path))
    if not os.path.exists(path / "config.json"):
        what = f"{path} is a folder without config.json."
        raise ModelFileError(what, "Name a GGUF file, or a folder that transformers wrote.")
    config = read_json(path / "config.json", _MAX_CONFIG)
    architecture, opened, reason = _network(path, config, weights, foreign)
    texts = _TokenTexts(path, config)
    has_encoder = config.get("is_encoder_decoder") is True
    tokenizer = _tokenizer(path, texts, architecture.vocab_size, has_encoder)
    template, error = None, None
    try:
        template = _chat_template(path, texts)
    except TemplateError as broken:
        error = broken  # for whoever wants to chat; the model itself is sound
    return ModelFolder(architecture, tokenizer, template, error, opened, reason)


def _tokenizer(path: Path, texts: _TokenTexts, vocab_size: int, has_encoder: bool) -> Tokenizer:
    """Return the tokenizer: of tokenizer.json, or of Marian's files, which has no such form."""
    ends = frozenset(texts.eos_ids)
    if os.path.exists(path / "tokenizer.json"):
        return FolderTokenizer(
            read_text(path / "tokenizer.json", _MAX_TOKENIZER),
            vocab_size=vocab_size,
            bos_token=texts.text("bos"),
            eos_ids=ends,
            eos_token=texts.text("eos"),
            has_encoder=has_encoder,
        )
    if has_encoder and os.path.exists(path / "source.spm"):
        return MarianTokenizer(path, vocab_size=vocab_size, eos_ids=ends)
    what = f"{path} has no tokenizer.json."
    raise TokenizerError(what, "save_pretrained of transformers' tokenizers writes one.")


def _network(
    path: Path, config: Mapping[str, object], weights: Weights, foreign: bool
) -> tuple[Architecture, WeightFile, str]:
    """Return a network's numbers and weights, and why our own engines do not run it, if so."""
    try:
        opened = FolderWeights.open(path, weights)
        return read_architecture(path, config, opened), opened, ""
    except UnsupportedModelError as error:
        if not foreign or not has_safetensors(path):
            raise
        kept = ForeignWeights(path, error.what, error.way_out)
        return foreign_architecture(path, config), kept, error.what


class _TokenTexts:
    """What a folder says about its special tokens, in the order in which transformers asks."""

    def __init__(self, path: Path, config: Mapping[str, object]) -> None:
        self.settings = _if_there(path / "tokenizer_config.json")
        self._older = _if_there(path / "special_tokens_map.json")
        generation = _if_there(path / "generation_config.json")
        self.eos_ids = _ids(path, generation.get("eos_token_id"))
        self.eos_ids = self.eos_ids or _ids(path, config.get("eos_token_id"))

    def text(self, name: str) -> str | None:
        """Return the text of the begin (`bos`) or end (`eos`) token."""
        for source in (self.settings, self._older):
            token = source.get(f"{name}_token")
            if isinstance(token, dict):
                token = token.get("content")
            if isinstance(token, str):
                return token
        return None


def _if_there(path: Path) -> dict[str, object]:
    return read_json(path, _MAX_CONFIG) if os.path.exists(path) else {}


def _ids(path: Path, value: object) -> list[int]:
    ids: list[object] = value if isinstance(value, list) else [] if value is None else [value]
    whole = [token for token in ids if type(token) is int and token >= 0]
    if len(whole) != len(ids):
        raise ModelFileError(f"{path} claims eos_token_id = {value!r:.60}.", DAMAGED)
    return whole


def _chat_template(path: Path, texts: _TokenTexts) -> ChatTemplate | None:
    source = texts.settings.get("chat_template")
    if os.path.exists(path / "chat_template.jinja"):
        try:
            source = read_text(path / "chat_template.jinja", _MAX_CONFIG)
        except ModelFileError as error:
            raise TemplateError(error.what, error.way_out) from error
    if isinstance(source, list):
        named = [each for each in source if isinstance(each, dict)]
        source = next((e.get("template") for e in named if e.get("name") == "default"), None)
    if not isinstance(source, str):
        return None
    bos, eos = texts.text("bos") or "", texts.text("eos") or ""
    return ChatTemplate(source, bos_token=bos, eos_token=eos)
