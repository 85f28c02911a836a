"""Damaged GGUF files: what their parts claim, what their metadata say, and plain bytes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from random import Random

from fuzz.gguf_image import ARRAY, STRING, Image, TensorInfo, Text, Value, scalar
from fuzz.numbers_and_bytes import bad_bytes, bad_number, bad_text

__all__ = ["mutate_gguf"]

Change = Callable[[Random, Image], str]


def mutate_gguf(random: Random, data: bytes) -> tuple[str, bytes]:
    """Return a damaged copy of a sound file, and what was done to it."""
    if random.random() < 0.25:
        end = random.choice((64, 1000, 20_000, len(data)))
        return bad_bytes(random, data, min(end, len(data)))
    image = copy.deepcopy(Image.read(data))
    told = [random.choice(_CHANGES)(random, image) for _ in range(random.choice((1, 1, 1, 2, 3)))]
    damaged = image.write()
    if random.random() < 0.2:
        # At a border of parts or beside it; most of the parts are metadata.
        size = random.choice((*image.borders, len(damaged))) + random.choice((-1, 0, 1))
        damaged = damaged[: max(size, 0)]
        told.append(f"cut to {size}")
    elif random.random() < 0.05:
        damaged += random.randbytes(random.choice((1, 32, 5000)))
        told.append("more behind")
    return "; ".join(told), damaged


# Counts, lengths and types.


def _preamble(random: Random, image: Image) -> str:
    what = random.choice(("claimed_tensors", "claimed_entries", "version", "alignment"))
    if what == "alignment":
        image.alignment = random.choice((1, 8, 64))
        if random.random() < 0.7:
            size = bad_number(random, 32) % 2**63
            image.entries.append((Text(b"general.alignment"), scalar(size)))
        return "alignment"
    known = {"claimed_tensors": len(image.tensors), "claimed_entries": len(image.entries)}
    setattr(image, what, bad_number(random, known.get(what, 3)))
    return what


def _length(random: Random, image: Image) -> str:
    texts = [key for key, _ in image.entries] + [info.name for info in image.tensors]
    texts += [value.content for _, value in image.entries if isinstance(value.content, Text)]
    text = random.choice(texts)
    text.claimed = bad_number(random, len(text.data))
    return f"length of {text.data[:40]!r}"


def _array(random: Random, image: Image) -> str:
    arrays = [(k, v) for k, v in image.entries if isinstance(v.content, list)]
    if not arrays:
        return "no array is left"
    key, value = random.choice(arrays)
    assert isinstance(value.content, list)
    way = random.choice(("count", "kind", "shorter", "longer", "element", "nested"))
    if way == "count":
        value.claimed = bad_number(random, len(value.content))
    elif way == "kind":
        value.element_kind = random.choice((*range(14), 77, 2**32 - 1))
    elif way == "shorter":
        del value.content[random.randrange(len(value.content) + 1) :]
    elif way == "longer":
        value.content += value.content[: random.choice((1, 5, 10_000))]
    elif way == "element" and value.content:
        element = random.choice(value.content)
        if isinstance(element.content, Text):
            element.content.data = bad_text(random, element.content.data)
        elif isinstance(element.content, bytes):
            element.content = random.randbytes(len(element.content))
    else:
        inner = Value(value.kind, value.content, value.element_kind, value.claimed)
        value.content, value.element_kind = [inner], ARRAY
        if random.random() < 0.3:
            value.content = [inner] * random.choice((2, 50))
    return f"{way} of {key.data.decode(errors='replace')}"


def _nesting(random: Random, image: Image) -> str:
    value = Value(ARRAY, [], 4)
    depth = random.choice((2, 3, 4, 5, 300))
    for _ in range(depth):
        value = Value(ARRAY, [value], ARRAY, random.choice((None, None, 2**40)))
    key = random.choice((b"x", b"tokenizer.ggml.tokens", b"llama.block_count"))
    image.entries = [entry for entry in image.entries if entry[0].data != key]
    image.entries.append((Text(key), value))
    return f"nested {depth} deep"


def _type(random: Random, image: Image) -> str:
    key, value = random.choice(image.entries)
    value.kind = random.choice((*range(14), 77, 2**32 - 1))
    return f"type of {key.data.decode(errors='replace')}"


# What the metadata say.


def _number(random: Random, image: Image) -> str:
    numbers = [(k, v) for k, v in image.entries if isinstance(v.content, bytes)]
    if not numbers:
        return "no number is left"
    key, value = random.choice(numbers)
    assert isinstance(value.content, bytes)
    size = len(value.content)
    number = bad_number(random, int.from_bytes(value.content, "little"))
    value.content = (number % 2 ** (8 * size)).to_bytes(size, "little")
    return f"{key.data.decode(errors='replace')} = {number}"


_ODD_VALUES = (
    lambda: Value(STRING, Text(b"x")),
    lambda: Value(STRING, Text(b"")),
    lambda: scalar(-1),
    lambda: scalar(0),
    lambda: scalar(2**63 - 1),
    lambda: Value(7, b"\1"),
    lambda: Value(12, b"\0\0\0\0\0\0\xf8\x7f"),  # NaN
    lambda: Value(12, b"\0\0\0\0\0\0\xf0\x7f"),  # infinity
    lambda: Value(6, b"\0\0\0\0"),
    lambda: Value(ARRAY, [], 4),
    lambda: Value(ARRAY, [scalar(2), scalar(2)], 11),
    lambda: Value(ARRAY, [scalar(2), scalar(3)], 11),
    lambda: Value(ARRAY, [Value(STRING, Text(b"a")), Value(STRING, Text(b"a"))], STRING),
)


def _wrong_kind(random: Random, image: Image) -> str:
    index = random.randrange(len(image.entries))
    key, _ = image.entries[index]
    image.entries[index] = key, random.choice(_ODD_VALUES)()
    return f"another kind of {key.data.decode(errors='replace')}"


_SWITCHES = (
    b"llama.expert_count",
    b"llama.attention.sliding_window",
    b"llama.rope.scaling.type",
    b"llama.rope.scaling.factor",
    b"llama.rope.dimension_count",
    b"llama.rope.scale_linear",
    b"llama.vocab_size",
    b"llama.attention.scale",
    b"split.count",
    b"tokenizer.chat_template",
    b"tokenizer.ggml.add_bos_token",
    b"tokenizer.ggml.add_space_prefix",
    b"tokenizer.ggml.bos_token_id",
    b"tokenizer.ggml.eos_token_ids",
    b"tokenizer.ggml.scores",
    b"tokenizer.ggml.pre",
    b"tokenizer.ggml.model",
)


def _entries(random: Random, image: Image) -> str:
    way = random.choice(("remove", "double", "exchange", "rename", "add"))
    index = random.randrange(len(image.entries))
    key, value = image.entries[index]
    if way == "remove":
        del image.entries[index]
    elif way == "double":
        image.entries.append((key, value))
    elif way == "exchange":
        other = random.randrange(len(image.entries))
        image.entries[index] = key, image.entries[other][1]
    elif way == "rename":
        key.data = bad_text(random, key.data)
    else:
        added = random.choice(_SWITCHES)
        image.entries = [entry for entry in image.entries if entry[0].data != added]
        image.entries.append((Text(added), random.choice(_ODD_VALUES)()))
        key = Text(added)
    return f"{way} {key.data[:40]!r}"


_WORDS = (b"llama", b"qwen2", b"qwen3", b"smollm3", b"gpt2", b"mamba", b"", b"spm", b"smollm")
_TEMPLATES = (
    b"{% for m in messages %}{{ m.content }}{% endfor %}",
    b"{% for i in range(10**9) %}{{ i }}{% endfor %}",
    b"{{ 'x' * 10**9 }}",
    b"{% if %}",
    b"{{ messages.__class__.__mro__ }}",
)


def _text(random: Random, image: Image) -> str:
    texts = [(k, v.content) for k, v in image.entries if isinstance(v.content, Text)]
    if not texts:
        return "no text is left"
    key, text = random.choice(texts)
    if key.data == b"tokenizer.chat_template":
        text.data = random.choice((*_TEMPLATES, bad_text(random, text.data)))
    else:
        text.data = random.choice((random.choice(_WORDS), bad_text(random, text.data)))
    return f"{key.data.decode(errors='replace')} = {text.data[:40]!r}"


# What is said about the tensors.


def _dimension(random: Random, image: Image) -> str:
    info = random.choice(image.tensors)
    way = random.choice(("one", "one", "more", "less", "turn", "count", "overflow"))
    if way == "one" and info.dimensions:
        index = random.randrange(len(info.dimensions))
        info.dimensions[index] = bad_number(random, info.dimensions[index])
    elif way == "more":
        info.dimensions.append(random.choice((1, 1, 2, 2**32)))
    elif way == "less":
        info.dimensions = info.dimensions[1:]
    elif way == "turn":
        info.dimensions.reverse()
    elif way == "count":
        info.claimed = bad_number(random, len(info.dimensions))
    else:  # their product is 0 or small, modulo 2^64
        info.dimensions = random.choice(([2**32, 2**32], [2**63, 2], [2**33, 2**31], [2**16] * 4))
    return f"{way} dimension of {info.name.data.decode(errors='replace')}"


def _place(random: Random, image: Image) -> str:
    info = random.choice(image.tensors)
    way = random.choice(("offset", "offset", "same", "kind", "kind"))
    if way == "offset":
        info.offset = bad_number(random, info.offset)
        if random.random() < 0.5:
            info.offset -= info.offset % 32
    elif way == "same":
        info.offset = random.choice(image.tensors).offset
    else:
        info.kind = random.choice((*range(42), 2**32 - 1, bad_number(random, info.kind)))
    return f"{way} of {info.name.data.decode(errors='replace')}"


def _tensors(random: Random, image: Image) -> str:
    way = random.choice(("remove", "double", "exchange", "rename", "add"))
    index = random.randrange(len(image.tensors))
    info = image.tensors[index]
    if way == "remove" and len(image.tensors) > 1:
        del image.tensors[index]
    elif way == "double":
        image.tensors.append(info)
    elif way == "exchange":
        other = random.choice(image.tensors)
        info.name, other.name = other.name, info.name
    elif way == "rename":
        info.name = Text(bad_text(random, info.name.data))
    else:
        names = (b"rope_freqs.weight", b"output.weight", b"blk.0.attn_q.bias", b"x")
        added = TensorInfo(Text(random.choice(names)), [random.choice((1, 4, 32))], 0, 0)
        image.tensors.append(added)
    return f"{way} tensor {info.name.data.decode(errors='replace')[:40]}"


_CHANGES: tuple[Change, ...] = (
    _preamble,
    _length,
    _array,
    _array,
    _nesting,
    _type,
    _number,
    _number,
    _wrong_kind,
    _entries,
    _text,
    _dimension,
    _dimension,
    _place,
    _tensors,
)
