"""A model as the rest of Forerun sees it: numbers, tokenizer, chat template and weights."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from forerun.errors import (
    ModelFileError,
    ModelNotFoundError,
    OptionError,
    TemplateError,
    TokenizerError,
    UnsupportedModelError,
)
from forerun.events import LoadProgress
from forerun.models.architecture import Architecture
from forerun.models.chat_template import ChatTemplate
from forerun.models.folder_weights import Weights
from forerun.models.gguf_file import GGUFFile
from forerun.models.hub import hub_folder, is_hub_id
from forerun.models.model_folder import read_folder
from forerun.models.pull import pull
from forerun.models.registry import MODELS, find_registered
from forerun.models.tokenizer import Tokenizer
from forerun.models.weight_file import WeightFile

__all__ = ["Model", "load_model"]


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A loaded model; its weights stay in their files until a target asks for them.

    Attributes:
        name: As the user named it.
        path: The file or folder.
        architecture: The network's numbers.
        tokenizer: Text to tokens and back.
        chat_template: Messages to text, or None if there is no (sound) template.
        file: The weights.
        template_error: What is wrong with the template; raw prompts need none.
        foreign: Why only transformers runs it; empty if Forerun's own engines do.
    """

    name: str
    path: Path
    architecture: Architecture
    tokenizer: Tokenizer
    chat_template: ChatTemplate | None
    file: WeightFile
    template_error: TemplateError | None = None
    foreign: str = ""

    def cut(self, layers: int) -> Model:
        """Return this model with only its first layers: a real, weaker model of its vocabulary.

        Raises:
            OptionError: The model has not so many layers, or fewer than one is asked for.
        """
        architecture = self.architecture.cut(layers)
        return replace(self, name=f"{self.name}[:{layers}]", architecture=architecture)


def load_model(
    name_or_path: str | os.PathLike[str],
    *,
    layers: int | None = None,
    weights: Weights = "auto",
    foreign: bool = False,
    progress: Callable[[LoadProgress], None] | None = None,
) -> Model:
    """Load a model by name, pulling it if needed, from a GGUF file or a Hugging Face folder.

    What is no name and no path, and looks like `owner/name`, is a model of the Hugging Face hub:
    taken from its cache, or fetched.

    Args:
        name_or_path: A name from the registry, or a path.
        layers: Use only so many of the first layers; None is all.
        weights: How a folder's matrices are read: as they are stored (`auto`), or rounded to
            `bf16`, `int8` or `int4` blocks. A GGUF file has its own types.
        foreign: Take a folder whose network only transformers runs, too.
        progress: Called while a named model is being pulled.

    Raises:
        StartError: No such model, or it cannot be fetched, read or run; the subclass says which.
        OptionError: There are not so many layers, or `weights` does not go with the files.
    """
    name = os.fspath(name_or_path)
    if name not in MODELS:
        model = _read(name, _existing(name), weights, foreign)
    else:
        path = pull(name, progress=progress)
        try:
            model = _read(name, path, weights, foreign)
        except (ModelFileError, UnsupportedModelError, TokenizerError) as error:
            # It was sound when it was fetched.
            way_out = f"`forerun pull {name}` checks the file, and fetches it again if need be."
            raise ModelFileError(error.what, way_out) from error
    return model if layers is None else model.cut(layers)


def _read(name: str, path: Path, weights: Weights, foreign: bool) -> Model:
    """Read all of a model but its weights."""
    if path.is_dir():
        folder = read_folder(path, weights, foreign=foreign)
        return Model(
            name,
            folder.weights.path,
            folder.architecture,
            folder.tokenizer,
            folder.chat_template,
            folder.weights,
            folder.template_error,
            folder.foreign,
        )
    if weights != "auto":
        what = (
            f"weights = {weights}: {path} is a GGUF file, whose weights have their types already."
        )
        raise OptionError(what, "Leave weights out; nothing is quantised twice.")
    file = GGUFFile.open(path)
    architecture = Architecture.from_file(file)
    tokenizer = Tokenizer.from_metadata(file.metadata)
    if tokenizer.vocab_size != architecture.vocab_size:
        raise ModelFileError(
            f"{path} has {tokenizer.vocab_size} tokens and embeds {architecture.vocab_size}.",
            "Fetch or convert the file again.",
        )
    template, error = None, None
    try:
        template = _chat_template(file.metadata)
    except TemplateError as broken:
        error = broken  # for whoever wants to chat; the model itself is sound
    return Model(name, file.path, architecture, tokenizer, template, file, error)


def _existing(name: str) -> Path:
    """Return the path of a file the user named, or say what was probably meant."""
    path = Path(os.path.expanduser(name))  # unlike Path's own, it takes an unknown ~user as it is
    try:
        path.stat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:  # too long, a loop of links, a NUL, no permission
        reason = error.strerror if isinstance(error, OSError) else error
        what = f"There is no file or folder {name[:80]!r}: {reason}."
        raise ModelNotFoundError(what, "Check the path.") from None
    if not path.exists() and is_hub_id(name) and not path.parent.exists():
        return hub_folder(name)
    if not path.exists() and "/" not in name and os.sep not in name and path.suffix != ".gguf":
        find_registered(name)
    if not path.exists():
        known = ", ".join(MODELS)
        raise ModelNotFoundError(f"There is no file or folder {name!r}.", f"Known names: {known}.")
    return path


def _chat_template(metadata: Mapping[str, object]) -> ChatTemplate | None:
    source = metadata.get("tokenizer.chat_template")
    if not isinstance(source, str):
        return None
    tokens = metadata.get("tokenizer.ggml.tokens")

    def text(key: str) -> str:
        token = metadata.get(f"tokenizer.ggml.{key}_token_id")
        known = isinstance(tokens, list) and isinstance(token, int) and 0 <= token < len(tokens)
        return str(tokens[token]) if known else ""  # type: ignore[index]

    return ChatTemplate(source, bos_token=text("bos"), eos_token=text("eos"))
