"""Damaged Hugging Face folders: what their JSON says, what headers claim, and plain bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from fuzz.numbers_and_bytes import bad_bytes, bad_number, bad_text

__all__ = ["change_json", "mutate_folder"]

# What no value of Python becomes: written in the place of a mark.
_MARK = "<raw>"
_RAW = (
    "NaN", "-Infinity", "1e999", "9" * 5000, "-0", "[" * 100_000, '{"a":' * 20_000, "nul", "",
    "[" * 500 + "]" * 500, '"\\ud800"', '"\\u0000"', '{"a": 1, "a": 2}', "0x10", "'x'",
)  # fmt: skip
_ODD: tuple[Any, ...] = (
    _MARK, _MARK, None, True, False, 0, -1, 1, 0.5, 1e308, -0.0, 2**63, "", "x", "../x", "\0", [],
    {}, [[]],
    [0], [1, 2], {"a": {}}, ["x"] * 1000, [[[[[[[[1]]]]]]]], "F32", "BF16", "I64", "llama", "yarn",
)  # fmt: skip
_KEYS = (
    "attention_bias", "auto_map", "chat_template", "dropout", "eos_token", "eos_token_id",
    "head_dim", "layer_types", "mlp_bias", "no_rope_layers", "normalizer", "partial_rotary_factor",
    "quantization_config", "rope_parameters", "rope_scaling", "sliding_window", "weight_map",
    "__metadata__",
)  # fmt: skip


def mutate_folder(random: Random, files: Mapping[str, bytes]) -> tuple[str, dict[str, bytes]]:
    """Return a damaged copy of a sound folder, and what was done to it."""
    changed, told = dict(files), []
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        name = random.choice(sorted(changed))
        what, data = _damaged(random, name, changed[name])
        if data is None:
            if len(changed) > 1:
                del changed[name]
        else:
            changed[name] = data
        told.append(f"{name}: {what}")
    return "; ".join(told), changed


def _damaged(random: Random, name: str, data: bytes) -> tuple[str, bytes | None]:
    way = random.random()
    if way < 0.03:
        return "removed", None
    if way < 0.3 or not data:
        size = len(data) or 1
        return bad_bytes(random, data or b" ", min(random.choice((16, 300, 5000, size)), size))
    if way < 0.4:
        size = random.randrange(len(data))
        return f"cut to {size}", data[:size]
    try:
        return _said(random, name, data)
    except (ValueError, RecursionError):  # what an earlier damage left can be no JSON any more
        return bad_bytes(random, data, len(data))


def _said(random: Random, name: str, data: bytes) -> tuple[str, bytes]:
    """Change what the JSON of a file says: all of it, or a safetensors file's header."""
    if not name.endswith(".safetensors"):
        return change_json(random, json.loads(data))
    size = int.from_bytes(data[:8], "little")
    what, text = change_json(random, json.loads(data[8 : 8 + size]))
    claimed = len(text)
    if random.random() < 0.15:
        claimed = bad_number(random, claimed) % 2**64
        what += f", {claimed} claimed"
    return what, claimed.to_bytes(8, "little") + text + data[8 + size :]


def change_json(random: Random, value: Any) -> tuple[str, bytes]:
    """Change one place of a JSON value; return what was done, and the text, which may be none."""
    what = _changed(random, value)
    text = json.dumps(value).replace(json.dumps(_MARK), random.choice(_RAW))
    return what, text.encode()


def _changed(random: Random, root: Any) -> str:
    """Change one place of a JSON value, and return what was done."""
    container, key = random.choice(list(_places(root)) or [(root, None)])
    if key is None or random.random() < 0.15:
        if not isinstance(root, dict):
            return "nothing"
        added = random.choice(_KEYS)
        root[added] = random.choice(_ODD)
        return f"{added} = {root[added]!r:.60}"
    value = container[key]
    way = random.random()
    if way < 0.15:
        del container[key]
        return f"without {key!r:.60}"
    if way < 0.25 and isinstance(container, dict):
        container[bad_text(random, str(key).encode()).decode(errors="replace")] = value
        return f"{key!r:.60} under another name"
    if type(value) is int and way < 0.8:
        container[key] = bad_number(random, value)
    elif isinstance(value, str) and way < 0.8:
        container[key] = bad_text(random, value.encode()).decode(errors="surrogateescape")
    else:
        container[key] = random.choice(_ODD)
    return f"{key!r:.60} = {container[key]!r:.60}"


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a JSON value, but few of each long list or table."""
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    for key, inner in items[:40]:
        yield value, key
        yield from _places(inner)
