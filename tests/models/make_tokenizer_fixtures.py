"""Makes the tokenizer fixtures with llama.cpp as the judge.

Run once, in an environment with Forerun and llama-cpp-python:

    python tests/models/make_tokenizer_fixtures.py MODEL.gguf

Every fixture is an xz-compressed file of JSON lines: a header, then the cases.

    default_model   [text, ids, ids with special tokens parsed, or null where they are the same]
    pretokenizers   {"names": [...], "ids": [[...] per text]}   over one small vocabulary
    sentencepiece   {"add_space_prefix": bool, "ids": ..., "special_ids": ...}   over another
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import lzma
import random
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import gguf
import llama_cpp

from forerun.models.pretokenizer import PRETOKENIZERS

SEED = 20240817
NUM_TEXTS = 12_000
FIXTURES = Path(__file__).parent / "fixtures"
PREFIX = "tokenizer.ggml."

MANY_WORDS = (
    "the quick brown fox can't won't I'LL we've THEY'RE don'T it's sea haiku token speculative "
    "draft international naïve café Straße façade Ærø İstanbul ſ'ſ KB ﬁn résumé HTTPServer "
    "camelCase snake_case kebab-case e.g. U.S.A. foo@bar.org https://a.b/c?d=e&f=%20#g ½ ² Ⅳ ①② "
    "٣٤٥ 三千 1st 22nd 1,234,567.89 0x1F 1e-9 3.14159 007 +49-30-1234567 2024-08-17T10:20:30Z "
    "10000000000"
)
WORDS = MANY_WORDS.split()
PHRASES = (
    "Привет, мир! Как дела?",
    "こんにちは世界。東京は2024年に…",
    "你好，世界！今天是星期三，气温25.5度。",
    "안녕하세요 세계! 한국어 텍스트 123",
    "مرحبا بالعالم ١٢٣ هذا نص",
    "שלום עולם, זה טקסט",
    "नमस्ते दुनिया, यह हिन्दी है १२३",
    "สวัสดีชาวโลก ภาษาไทย",
    "Γειά σου Κόσμε ΑΒΓ",
    "Xin chào thế giới, tiếng Việt có dấu",
    "ગુજરાતી தமிழ் తెలుగు ಕನ್ನಡ മലയാളം",
    "ქართული հայերեն አማርኛ ខ្មែរ မြန်မာ བོད་",
    "Ünïcödé ňǒřmál combi\u0301ni\u0308ng ma\u0300\u0301\u0302rks Z\u0351\u036b\u0343algo",
    "👩‍👩‍👧‍👦 family 🏳️‍🌈 flag 🇧🇷🇩🇪 👍🏽 ❤️‍🔥 ☺️ 🤷🏿‍♀️ 1️⃣",
    "∑∏∫√∞≠≤ α²+β²=γ² ℝ→ℂ ⟨ψ|φ⟩ €£¥₹ «quotes» “curly” ‘x’ — – … †",
    "𝒜𝓁𝓅𝒽𝒶 𐍈𐌰 𓀀𓁐 🂡 𠜎𠜱",
)
CODE = (
    'def f(x: int = {n}) -> str:\n    return f"{{x!r:>{n}}}"\n\n\nclass A(B):\n\tpass\n',
    "for (int i = 0; i < {n}; ++i) {{ a[i] += b[i]*{n}u; }}  // sum\n",
    "fn main() {{\n    let v: Vec<_> = (0..{n}).map(|x| x * 2).collect();\n}}\n",
    "SELECT a, COUNT(*) FROM t WHERE x >= {n} AND y LIKE '%z%' GROUP BY 1;",
    "<div class=\"c-{n}\" id='x'>&nbsp;<br/></div>\r\n",
    '{{"key": [1, {n}, null], "é": "\\u00e9"}}',
    "const g = async (a, b) => {{ await `t${{a}}-{n}`; return a ?? b?.c; }};",
    '#!/bin/sh\nset -eu\nfor f in *.txt; do echo "$f {n}" | tr a-z A-Z >> out; done\n',
    "| a | b |\n|---|:-:|\n| {n} | `x` |\n\n- [ ] todo\n> quote\n\n```py\nx\n```\n",
    'package main\n\nimport "fmt"\n\nfunc main() {{\n\tfmt.Printf("%0{n}d\\n", {n})\n}}\n',
    "\\begin{{align}}\n  x_{{{n}}} &= \\frac{{1}}{{2}} \\\\\n\\end{{align}}",
)
SPACES = (" ", "  ", "   ", " " * 7, "\n", "\n\n", "\r\n", "\t", "\t\t", " \n ", "\u00a0", "\u3000")
SPACES += ("\u2003", "\u2028", "\x0b", "\x0c", "\x85", " \t\n", "\n\n\n   ", "\u200b", "")
SPECIALS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>", "<file_sep>", "</s>")
SPECIALS += ("<|im_start", "im_end|>", "<|im_<|im_end|>end|>", "<s>", "<unk>", "<tool>", "<0x0A>")
RANGES = (
    (0x20, 0x7E), (0x00, 0x1F), (0x7F, 0xFF), (0x100, 0x24F), (0x250, 0x36F), (0x370, 0x52F),
    (0x530, 0x6FF), (0x900, 0xDFF), (0xE00, 0x10FF), (0x1E00, 0x206F), (0x2070, 0x2BFF),
    (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xE100), (0xF900, 0xFFFD),
    (0x10000, 0x103FF), (0x1D400, 0x1D7FF), (0x1F300, 0x1FAFF), (0x20000, 0x2A6DF),
)  # fmt: skip


def number(rng: random.Random) -> str:
    """Return digits, some with a sign, points or commas."""
    digits = "".join(rng.choices("0123456789", k=rng.choice((1, 1, 2, 3, 4, 5, 7, 12, 20))))
    return rng.choice(("", "", "-", "$", " ")) + rng.choice(
        (digits, f"{int(digits):,}", digits + ".5")
    )


def piece(rng: random.Random) -> str:
    """Return one ingredient of a text."""
    match rng.randrange(12):
        case 0 | 1 | 2:
            return rng.choice(WORDS)
        case 3:
            return rng.choice(PHRASES)
        case 4:
            return rng.choice(CODE).format(n=rng.randrange(5000))
        case 5 | 6:
            return number(rng)
        case 7:
            return rng.choice(SPACES) * rng.choice((1, 1, 2, 5))
        case 8:
            return rng.choice(SPECIALS)
        case 9:
            low, high = rng.choice(RANGES)
            return "".join(chr(rng.randint(low, high)) for _ in range(rng.randrange(1, 8)))
        case 10:
            return rng.choice("!?.,;:'\"()[]{}<>/\\|@#$%^&*-_=+~`") * rng.choice((1, 1, 2, 3, 9))
        case _:
            word = rng.choice(WORDS)
            return rng.choice((word.upper(), word.title(), "'" + word, word[: len(word) // 2]))


def texts(seed: int, count: int) -> Iterator[str]:
    """Yield `count` different texts, from empty to some thousand characters."""
    rng = random.Random(seed)
    seen: set[str] = set()
    edges = ["", " ", "\n", "a", "'", "\x00", *SPACES, *WORDS, *PHRASES, *SPECIALS, "a" * 3000]
    edges += [" " * 500, "ab " * 400, "\n" * 300, "1" * 400, "!" * 300, "é" * 500, "🤣" * 200]
    while len(seen) < count:
        if edges:
            text = edges.pop()
        else:
            size = rng.choice((1, 2, 2, 3, 3, 4, 5, 6, 8)) if rng.random() < 0.995 else 60
            joint = rng.choice(("", " ", " ", "\n"))
            text = joint.join(piece(rng) for _ in range(size))
        if text not in seen:
            seen.add(text)
            yield text


class Judge:
    """llama.cpp's tokenizer of one GGUF file."""

    def __init__(self, path: Path) -> None:
        self._llama = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
        self._vocab = llama_cpp.llama_model_get_vocab(self._llama.model)

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Return llama.cpp's ids, without a begin token."""
        raw = text.encode()
        out = (ctypes.c_int32 * (len(raw) + 16))()
        size = llama_cpp.llama_tokenize(self._vocab, raw, len(raw), out, len(out), False, special)
        assert size >= 0
        return list(out[:size])

    def ends(self) -> list[int]:
        """Return the tokens that llama.cpp takes for the end of generation."""
        size = llama_cpp.llama_vocab_n_tokens(self._vocab)
        return [i for i in range(size) if llama_cpp.llama_vocab_is_eog(self._vocab, i)]

    def pieces(self) -> str:
        """Return a digest of the bytes of every token, special ones included."""
        digest, buffer = hashlib.sha256(), ctypes.create_string_buffer(1 << 16)
        for token in range(llama_cpp.llama_vocab_n_tokens(self._vocab)):
            size = llama_cpp.llama_token_to_piece(self._vocab, token, buffer, 1 << 16, 0, True)
            assert size >= 0
            digest.update(size.to_bytes(4, "little") + buffer.raw[:size])
        return digest.hexdigest()

    def add_bos(self) -> bool:
        """Return whether llama.cpp begins a text with the begin token."""
        return bool(llama_cpp.llama_vocab_get_add_bos(self._vocab))


def write(name: str, header: dict[str, Any], lines: Iterable[object]) -> None:
    """Write one fixture."""
    header |= {"judge": f"llama-cpp-python {llama_cpp.__version__}", "seed": SEED}
    rows = [json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in (header, *lines)]
    FIXTURES.mkdir(exist_ok=True)
    path = FIXTURES / f"{name}.jsonl.xz"
    path.write_bytes(lzma.compress("\n".join(rows).encode(), preset=9))
    print(path.name, len(rows) - 1, "cases", path.stat().st_size, "bytes")  # noqa: T201


def metadata_of(path: Path) -> dict[str, Any]:
    """Return the tokenizer keys of a GGUF file."""
    fields = gguf.GGUFReader(path).fields
    return {k: field.contents() for k, field in fields.items() if k.startswith(PREFIX)}


def vocabulary_file(metadata: dict[str, Any], folder: Path) -> Path:
    """Write a GGUF file with a vocabulary and no tensors."""
    path = folder / "vocabulary.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in metadata.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def small_byte_level(model: dict[str, Any]) -> dict[str, Any]:
    """Return the first merges of the model as a vocabulary of its own, all bytes included.

    Some whole words have no merges (they come out only where merges are ignored), and two
    user-defined tokens overlap with each other and with a control token. Merges of digits and of
    combining marks are added, without which some pre-tokenizers look alike.
    """
    merges = model[PREFIX + "merges"][:2500]
    merges += [f"{ten} {one}" for ten in "0123456789" for one in "0123456789"]
    merges += [f"{two} {one}" for two in ("00", "12", "20") for one in "0123456789"]
    merges += ["Ì ģ", "Ì Ī", "Ì Ģ", "i Ìģ", "i ÌĪ", "a ÌĢ", "ÌĢ Ìģ"]
    letters = [chr(c) for c in (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x144))]
    tokens = [*letters, *("".join(merge.split(" ")) for merge in merges)]
    whole = ["Ġinternational", "Ġspeculative", "HTTPServer", "123", "ĠÐŁ", "ä½łå¥½", "ĠĠĠĠĠĠĠ"]
    tokens = list(dict.fromkeys(tokens + whole))
    extra = {"<|im_start|>": 3, "<|im_end|>": 3, "<tool>": 4, "tool>": 4, "<|im_": 4, "<unk>": 2}
    return {
        PREFIX + "model": "gpt2",
        PREFIX + "pre": "",
        PREFIX + "tokens": [*tokens, *extra],
        PREFIX + "token_type": [1] * len(tokens) + list(extra.values()),
        PREFIX + "merges": merges,
        PREFIX + "bos_token_id": len(tokens),
        PREFIX + "eos_token_id": len(tokens) + 1,
    }


def small_sentencepiece(model: dict[str, Any]) -> dict[str, Any]:
    """Return a SentencePiece-type vocabulary from the model's commonest tokens, scores tied."""
    letters = [chr(c) for c in (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))]
    letters += [chr(0x100 + rank) for rank in range(256 - len(letters))]
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    order = shown + [byte for byte in range(256) if byte not in shown]
    byte_of = dict(zip(letters, order, strict=True))
    pieces = []
    for token in model[PREFIX + "tokens"][17:5000]:
        try:
            pieces.append(bytes(byte_of[c] for c in token).decode().replace(" ", "\u2581"))
        except UnicodeDecodeError:
            continue
    pieces = list(dict.fromkeys([*pieces, "\u2581", "é", "世", "界"]))
    special = {"<unk>": 2, "<s>": 3, "</s>": 3}
    special |= {f"<0x{byte:02X}>": 6 for byte in range(256)} | {"<tool>": 4, "▁<PRE>": 3}
    # llama.cpp ends a token's text at a NUL.
    pieces = [text for text in pieces if text not in special and "\0" not in text]
    return {
        PREFIX + "model": "llama",
        PREFIX + "tokens": [*special, *pieces],
        PREFIX + "token_type": [*special.values(), *([1] * len(pieces))],
        PREFIX + "scores": [0.0] * len(special) + [-float(i // 3) for i in range(len(pieces))],
        PREFIX + "bos_token_id": 1,
        PREFIX + "eos_token_id": 2,
    }


def make_default(path: Path) -> None:
    """Write the ids of the default model's tokenizer."""
    judge = Judge(path)
    cases = []
    for text in texts(SEED, NUM_TEXTS):
        plain = judge.encode(text, special=False)
        special = judge.encode(text, special=True)
        cases.append([text, plain, special if special != plain else None])
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    header = {"ends": judge.ends(), "pieces": judge.pieces(), "sha256": digest}
    write("default_model", header, cases)


def make_pretokenizers(model: dict[str, Any], folder: Path) -> None:
    """Write what each pre-tokenizer makes of the same texts."""
    metadata = small_byte_level(model)
    cases = list(texts(SEED + 1, 700))
    found: dict[str, dict[str, Any]] = {}
    for name in PRETOKENIZERS:
        metadata[PREFIX + "pre"] = name
        judge = Judge(vocabulary_file(metadata, folder))
        ids = [judge.encode(text, special=len(text) % 2 == 1) for text in cases]
        row = {"names": [], "add_bos": judge.add_bos(), "ids": ids}
        found.setdefault(json.dumps([judge.add_bos(), ids]), row)["names"].append(name)
    header = {"metadata": metadata, "pieces": judge.pieces(), "texts": cases}
    write("pretokenizers", header, found.values())


def make_sentencepiece(model: dict[str, Any], folder: Path) -> None:
    """Write the ids of a SentencePiece-type vocabulary, with and without the space prefix."""
    metadata = small_sentencepiece(model)
    cases = list(texts(SEED + 2, 2000))
    rows = []
    for is_on in (True, False):
        judge = Judge(vocabulary_file(metadata | {PREFIX + "add_space_prefix": is_on}, folder))
        rows.append(
            {
                "add_space_prefix": is_on,
                "ends": judge.ends(),
                "add_bos": judge.add_bos(),
                "pieces": judge.pieces(),
                "ids": [judge.encode(text, special=False) for text in cases],
                "special_ids": [judge.encode(text, special=True) for text in cases],
            }
        )
    write("sentencepiece", {"metadata": metadata, "texts": cases}, rows)


def main(path: Path) -> None:
    """Make all fixtures."""
    model = metadata_of(path)
    make_default(path)
    with tempfile.TemporaryDirectory() as folder:
        make_pretokenizers(model, Path(folder))
        make_sentencepiece(model, Path(folder))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
