"""How text is cut into words before byte-level merging: one line per `tokenizer.ggml.pre` name.

A merge never crosses a word border, so a wrong pattern gives wrong ids on ordinary text: a
tokenizer that does not cut SmolLM's digits apart is wrong wherever two digits meet. The patterns
are the ones the models were trained with, in the dialect of llama.cpp where the two differ (case
of contractions is ASCII only; `tekken` and `gpt-4o` count letters outside ASCII as both cases), so
that the ids agree with it. A name is listed only if the tests compare it with llama.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex, pre_tokenizers

from forerun.errors import TokenizerError

__all__ = ["PRETOKENIZERS", "PreTokenizer", "pretokenizer"]


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """How one family of models cuts text into words.

    Attributes:
        patterns: Applied in turn, each to the pieces the one before left; a match and what lies
            between two matches are pieces of their own.
        ignore_merges: A word that is a token is that token, whatever the merges say.
        add_bos: The model expects the begin-of-text token unless its file says otherwise.
    """

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False

    def build(self, missing: str = "") -> pre_tokenizers.PreTokenizer:
        """Return the splitter, ending in the byte alphabet.

        Args:
            missing: Letters of the byte alphabet that are no tokens. They cut words as well, since
                a merge must not join what stands on their two sides.
        """
        steps: list[pre_tokenizers.PreTokenizer] = [
            pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in self.patterns
        ]
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
        if missing:
            steps.append(pre_tokenizers.Split(Regex(f"[{missing}]"), "removed"))
        return pre_tokenizers.Sequence(steps)


_SPACES = r"\s+(?!\S)|\s+"
_LINES = r"\s*[\r\n]+|" + _SPACES
_CONTRACTIONS = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|" + _SPACES
_LLAMA3 = rf"(?:{_CONTRACTIONS})|{_WORDS}|\p{{N}}{{1,3}}|{_SYMBOLS}|{_LINES}"
_QWEN2 = rf"(?:{_CONTRACTIONS})|{_WORDS}|\p{{N}}|{_SYMBOLS}|{_LINES}"

_UPPER = r"(?:(?=\p{L})[^a-z])"
_LOWER = r"(?:(?=\p{L})[^A-Z])"


def _cased_words(tail: str, digits: str) -> str:
    """Return a pattern that ends a word where a capital follows a small letter.

    Args:
        tail: What may cling to the end of a word.
        digits: The pattern of a number.
    """
    return (
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{tail}"
        rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{tail}"
        rf"|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_LINES}"
    )


_PLAIN = PreTokenizer((_GPT2,))
_DIGITS = PreTokenizer((r"\p{N}", _GPT2))
_THREES = PreTokenizer((_LLAMA3,))
_LLAMA = PreTokenizer((_LLAMA3,), ignore_merges=True, add_bos=True)
_QWEN = PreTokenizer((_QWEN2,))
_CASED = PreTokenizer((_cased_words(rf"(?:{_CONTRACTIONS})?", r"\p{N}{1,3}"),))
_DEEPSEEK3 = PreTokenizer(
    (
        r"\p{N}{1,3}",
        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
        + _LINES,
    )
)

PRETOKENIZERS: dict[str, PreTokenizer] = {
    "default": PreTokenizer((r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    "gpt-2": _PLAIN,
    "phi-2": _PLAIN,
    "olmo": _PLAIN,
    "mpt": _PLAIN,
    "mellum": _PLAIN,
    "exaone4": _PLAIN,
    "gigachat": _PLAIN,
    "a.x-4.0": _PLAIN,
    "trillion": _PLAIN,
    "smollm": _DIGITS,
    "starcoder": _DIGITS,
    "refact": _DIGITS,
    "command-r": _DIGITS,
    "codeshell": _DIGITS,
    "exaone": _DIGITS,
    "minerva-7b": _DIGITS,
    "llama-bpe": _LLAMA,
    "llama3": _LLAMA,
    "llama-v3": _LLAMA,
    "falcon3": _LLAMA,
    "pixtral": _LLAMA,
    "midm-2.0": _LLAMA,
    "dbrx": _THREES,
    "smaug-bpe": _THREES,
    "chatglm-bpe": _THREES,
    "glm4": PreTokenizer((_LLAMA3,), ignore_merges=True),
    "qwen2": _QWEN,
    "deepseek-r1-qwen": _QWEN,
    "stablelm2": _QWEN,
    "megrez": _QWEN,
    "kormo": _QWEN,
    "hunyuan": _QWEN,
    "qwen35": PreTokenizer(
        (
            rf"(?:{_CONTRACTIONS})|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
            rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_LINES}",
        )
    ),
    "seed-coder": PreTokenizer(
        (rf"(?:{_CONTRACTIONS})|{_WORDS}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_LINES}",)
    ),
    "deepseek-coder": PreTokenizer(
        (
            r"[\r\n]",
            r"\s?\p{L}+",
            r"\s?\p{P}+",
            "(?:(?!\\s)[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff])+",
            r"\p{N}",
        )
    ),
    "deepseek-v3": _DEEPSEEK3,
    "hunyuan-dense": _DEEPSEEK3,
    "falcon": PreTokenizer((r"[\p{P}$+<=>^~|`]+", _GPT2, "[0-9][0-9][0-9]")),
    "tekken": PreTokenizer((_cased_words("", r"\p{N}"),), ignore_merges=True, add_bos=True),
    "gpt-4o": _CASED,
    "llama4": _CASED,
    "kanana2": _CASED,
}
"""Every known value of `tokenizer.ggml.pre`."""


def pretokenizer(name: str) -> PreTokenizer:
    """Return how the models that name their pre-tokenizer `name` cut text.

    Raises:
        TokenizerError: The name is unknown; guessing would give wrong ids without a sign of it.
    """
    try:
        return PRETOKENIZERS[name]
    except KeyError:
        raise TokenizerError(
            f"The pre-tokenizer {name!r} is unknown.",
            f"Known ones: {', '.join(sorted(PRETOKENIZERS))}.",
        ) from None
