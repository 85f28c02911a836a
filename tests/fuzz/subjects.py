"""What can be fuzzed: one line a kind of model, with sound examples and a way to damage them."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np

from forerun.api import LanguageModel
from forerun.config import Loading
from forerun.errors import ForerunError
from forerun.models.head_file import HeadFile
from forerun.models.model import load_model
from forerun.targets.head import Head
from forerun.targets.native_head import NativeHead
from forerun.targets.native_readout import NativeReadout
from forerun.targets.protocol import Row
from forerun.targets.reference_head import ReferenceHead
from forerun.targets.reference_readout import ReferenceReadout
from fuzz.folder_mutations import mutate_folder
from fuzz.gguf_mutations import mutate_gguf
from models.random_head import random_head
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


def _try_head(path: Path) -> None:
    """Open a head; with each twin, score a text's rows and guess on.

    Raises:
        ForerunError: The file, or one of the twins, refuses; the other has been tried too.
    """
    model, head = load_model(path.parent / "model.gguf"), HeadFile.open(path)
    refusals: list[ForerunError] = []
    if head.kind != "eagle3":
        for readout in (NativeReadout, ReferenceReadout):
            try:
                readout(head, model).read(np.ones((2, head.shape.width), dtype=np.float32))
            except ForerunError as error:
                refusals.append(error)
        if refusals:
            raise refusals[0]
        return
    for kind in (NativeHead, ReferenceHead):
        try:
            _draft(kind(head, model))
        except ForerunError as error:
            refusals.append(error)
    if refusals:
        raise refusals[0]


def _draft(head: Head) -> None:
    name = head.open()
    features = np.ones((3, len(head.layers) * head.width), dtype=np.float32)
    rows = [Row(name, int(head.tokens[-1]), 1 + i, i - 1) for i in range(3)]
    scores = head.score(rows, features=features, logits=[2])
    head.commit(name, range(3))
    head.score([Row(name, 7, 4, -1)], given=scores.outputs[2:])


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


def _head_examples() -> list[Files]:
    with tempfile.TemporaryDirectory() as name:
        folder, examples = Path(name), []
        for tiny, kind in ((_TINIES[1], "Q8_0"), (_TINIES[2], "Q4_0"), (_TINIES[0], "F32")):
            model = replace(load_model(tiny.write(folder / "model.gguf")), name="tiny")
            own = {"has_own_head": kind == "Q4_0", "layers": (0, 1)}
            random_head(folder / "head.gguf", model, kind=kind, **own)
            examples.append({file.name: file.read_bytes() for file in folder.iterdir()})
        for of in ("medusa", "exit"):
            random_head(folder / "head.gguf", model, kind="F16", of=of)
            examples.append({file.name: file.read_bytes() for file in folder.iterdir()})
        return examples


def _mutate_head(random: Random, files: Files) -> tuple[str, Files]:
    what, data = mutate_gguf(random, files["head.gguf"])
    return what, {**files, "head.gguf": data}


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
    "head": Subject("head.gguf", _head_examples, _mutate_head, _try_head),
}

try:
    from fuzz.training import mutate_training, training_examples, try_training
except ImportError:  # without torch nothing is trained
    pass
else:
    SUBJECTS["training"] = Subject("", training_examples, mutate_training, try_training)


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
