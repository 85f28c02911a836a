"""What can be fuzzed: one line a kind of model, with sound examples and a way to damage them."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import NamedTuple

from forerun.api import LanguageModel
from forerun.config import Loading
from forerun.errors import ForerunError
from forerun.models.model import load_model
from fuzz.folder_mutations import mutate_folder
from fuzz.gguf_mutations import mutate_gguf
from models.tiny_folder import TinyFolder
from models.tiny_gguf import Tiny

__all__ = ["DISASTERS", "SUBJECTS", "Files", "Subject"]

Files = Mapping[str, bytes]
"""The files of one model, by name."""


def _try_model(path: Path) -> None:
    """Load a model; with each target, read a prompt and write two tokens.

    Raises:
        ForerunError: It, or one of the targets, refuses; the other has been tried too.
    """
    model = load_model(path)
    refusals: list[ForerunError] = []
    for target, threads in (("native", 2), ("reference", None)):
        try:
            lm = LanguageModel(model, Loading.make(target=target, threads=threads))
            lm.generate("the sea", max_tokens=2, draft_length=1, drafter="suffix")
        except ForerunError as error:
            refusals.append(error)
    if refusals:
        raise refusals[0]


class Subject(NamedTuple):
    """A kind of model.

    Attributes:
        entry: The file that is named to load it; "" is the folder itself.
        examples: Makes sound models.
        mutate: Returns a damaged copy of one, and what was done to it.
        attempt: What is done with it.
    """

    entry: str
    examples: Callable[[], list[Files]]
    mutate: Callable[[Random, Files], tuple[str, Files]]
    attempt: Callable[[Path], None] = _try_model


_TEMPLATE = "{% for m in messages %}<|im_end|>{{ m.role }}: {{ m.content }}{% endfor %}"
_TINIES = (
    Tiny(metadata={"tokenizer.chat_template": _TEMPLATE}),
    Tiny(width=64, inner=96, quantisation="Q4_1", layers=1),
    Tiny(width=64, inner=96, quantisation="Q8_0", layers=1, is_tied=False),
    Tiny(width=64, inner=96, quantisation="Q4_0", layers=1, rope_factors=(1.0, 1.0, 2.0, 4.0)),
    Tiny("qwen2", quantisation="F16", layers=1),
    Tiny("qwen3", quantisation="BF16", layers=1),
)


def _gguf_examples() -> list[Files]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        return [{path.name: tiny.write(path).read_bytes()} for tiny in _TINIES]


def _mutate_gguf(random: Random, files: Files) -> tuple[str, Files]:
    what, data = mutate_gguf(random, files["model.gguf"])
    return what, {"model.gguf": data}


_FOLDERS = (
    TinyFolder(template=_TEMPLATE),
    TinyFolder(Tiny("qwen2", layers=1, is_tied=False), dtype="F16"),
    TinyFolder(Tiny("qwen3", layers=1), dtype="BF16", shards=3),
    TinyFolder(Tiny("smollm3", layers=2), config={"no_rope_layers": [1, 0]}),
)


def _folder_examples() -> list[Files]:
    with tempfile.TemporaryDirectory() as name:
        folders = [each.write(Path(name) / str(i)) for i, each in enumerate(_FOLDERS)]
        return [{file.name: file.read_bytes() for file in each.iterdir()} for each in folders]


SUBJECTS: dict[str, Subject] = {
    "gguf": Subject("model.gguf", _gguf_examples, _mutate_gguf),
    "folder": Subject("", _folder_examples, mutate_folder),
}


# What the harness is there to see, for a test of the harness.

_WAYS = ("sound", "dies", "hangs", "raises", "swallows")


def _one_of(random: Random, files: Files) -> tuple[str, Files]:
    way = random.choice(_WAYS)
    return way, {"model": way.encode()}


def _meet(path: Path) -> None:
    way = path.read_text()
    if way == "dies":
        os.abort()
    if way == "hangs":
        time.sleep(1000)
    if way == "raises":
        raise KeyError(way)
    if way == "swallows":
        bytearray(1 << 40)


DISASTERS = Subject("model", lambda: [{"model": b"sound"}], _one_of, _meet)
