"""What a model file's numbers say the network is: Llama-type decoders, and nothing else.

One family covers SmolLM2, Llama 2 and 3, Mistral (`llama`), Qwen2 (`qwen2`: biases on q, k and v),
Qwen3 (`qwen3`: norms on q and k) and SmolLM3 (`smollm3`: every fourth layer without positions):
pre-norm RMSNorm, grouped-query attention with rotary
positions (Su et al. 2021), SwiGLU feed-forward (Shazeer 2020). Whatever a file asks beyond that is
refused by name, never ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from forerun.errors import ModelFileError, OptionError, UnsupportedModelError
from forerun.models.facts import UNSUPPORTED, Facts
from forerun.models.gguf_file import GGUFFile
from forerun.models.plain_file import DAMAGED
from forerun.models.weight_file import WeightFile

__all__ = ["Architecture", "Rope"]

_SUPPORTED = ("llama", "qwen2", "qwen3", "smollm3")
_STILL = 4  # in a `smollm3` file, every fourth layer does not turn; no key says so

# Details that would change the pass, with the values at which they do not.
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "attention.causal": (True,),
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "attention.scale": (0.0,),
    "attn_logit_softcapping": (0.0,),
    "embedding_scale": (0.0, 1.0),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "final_logit_softcapping": (0.0,),
    "logit_scale": (0.0, 1.0),
    "residual_scale": (0.0, 1.0),
    "rope.scaling.attn_factor": (0.0, 1.0),
    "use_parallel_residual": (False,),
}


@dataclass(frozen=True, slots=True)
class Rope:
    """How positions turn queries and keys.

    Attributes:
        interleaved: Pairs are neighbours (0, 1), (2, 3), ...; else halves (0, d/2), (1, d/2 + 1).
        dimension: How many leading components of a head turn.
        base: Pair i turns by position × base^(-2i / dimension) / factors[i].
        factors: One a pair; all 1 unless the file stretches its context.
    """

    interleaved: bool
    dimension: int
    base: float
    factors: tuple[float, ...]

    def frequencies(self) -> NDArray[np.float64]:
        """Return radians per position, [dimension / 2]."""
        exponents = np.arange(0, self.dimension, 2, dtype=np.float64) / self.dimension
        return self.base**-exponents / np.asarray(self.factors, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Architecture:
    """The numbers of one network.

    Attributes:
        name: `llama`, `qwen2`, `qwen3` or `smollm3`.
        vocab_size: Tokens.
        width: Components of the residual stream.
        num_layers: Layers that run; fewer than the file's in a cut model.
        num_heads: Query heads.
        num_kv_heads: Key and value heads; each serves num_heads / num_kv_heads query heads.
        head_dim: Components of a head.
        inner_width: Components inside the feed-forward.
        context_length: Most tokens the model was trained to read.
        norm_epsilon: Added to the mean square in every RMSNorm.
        rope: How positions turn queries and keys.
        has_qkv_bias: q, k and v have biases.
        has_qk_norm: Each q and k head is normalised before it turns.
        is_tied: The LM head is the embedding.
        unturned_layers: Those whose queries and keys do not turn: they see no positions.
    """

    name: str
    vocab_size: int
    width: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    inner_width: int
    context_length: int
    norm_epsilon: float
    rope: Rope
    has_qkv_bias: bool
    has_qk_norm: bool
    is_tied: bool
    unturned_layers: frozenset[int] = frozenset()

    @classmethod
    def from_file(cls, file: GGUFFile) -> Architecture:
        """Read the architecture and check every number and every tensor's shape.

        Raises:
            ModelFileError: A number is missing or impossible, or a tensor is missing or misshapen.
            UnsupportedModelError: The file needs something that is not implemented; it is named.
        """
        facts = _Facts(file)
        name = facts.architecture
        facts.check_neutral()
        width, heads = facts.whole("embedding_length"), facts.whole("attention.head_count")
        kv_heads = facts.whole("attention.head_count_kv", heads)
        if heads % kv_heads:
            facts.damaged(f"{heads} heads over {kv_heads} key-value heads")
        if "attention.key_length" not in facts and width % heads:
            facts.damaged(f"{heads} heads in a width of {width}")
        head_dim = facts.head_dim("attention.key_length", max(width // heads, 1))
        if facts.whole("attention.value_length", head_dim) != head_dim:
            facts.unsupported("values of another length than keys")
        layers = facts.whole("block_count")
        if layers > len(file.tensor_names):
            facts.damaged(f"{layers} layers of {len(file.tensor_names)} tensors in all")
        first = "blk.0.attn_q.bias" in file, "blk.0.attn_q_norm.weight" in file
        architecture = cls(
            name=name,
            vocab_size=facts.vocab_size(),
            width=width,
            num_layers=layers,
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            inner_width=facts.whole("feed_forward_length"),
            context_length=facts.context_length(),
            norm_epsilon=facts.real("attention.layer_norm_rms_epsilon", upper=1.0),
            rope=facts.rope(head_dim),
            has_qkv_bias=name == "qwen2" or first[0],
            has_qk_norm=name == "qwen3" or first[1],
            is_tied="output.weight" not in file,
            unturned_layers=_still_layers(layers) if name == "smollm3" else frozenset(),
        )
        architecture.check_tensors(file, beside=frozenset({"rope_freqs.weight"}))
        return architecture

    def check_tensors(self, file: WeightFile, *, beside: frozenset[str] = frozenset()) -> None:
        """Check that a file has every tensor of the network in its shape, and no others.

        Args:
            file: The weights.
            beside: Names of further tensors that change nothing or are read elsewhere.

        Raises:
            ModelFileError: A tensor is missing or misshapen.
            UnsupportedModelError: There is one that the network lacks.
        """
        known = set(beside)
        for name, shape in self.tensor_shapes():
            called = file.own_name(name)
            if name not in file:
                raise ModelFileError(f"{file.path} lacks the tensor {called!r}.", DAMAGED)
            if file.tensor_shape(name) != shape:
                what = f"{file.path}: the tensor {called!r} is {file.tensor_shape(name)}"
                raise ModelFileError(f"{what}, not {shape}.", DAMAGED)
            known.add(name)
        extra = next((name for name in file.tensor_names if name not in known), None)
        if extra is not None:
            called = file.own_name(extra)
            what = f"{file.path} has the tensor {called!r}, which a plain {self.name} lacks."
            raise UnsupportedModelError(what, UNSUPPORTED)

    def cut(self, layers: int) -> Architecture:
        """Return the same network with only its first layers; the final norm and head stay.

        Raises:
            OptionError: There are not so many layers, or fewer than one is asked for.
        """
        if not 1 <= layers <= self.num_layers:
            what = f"layers = {layers}: the model has {self.num_layers}."
            raise OptionError(what, f"Choose 1 to {self.num_layers}.")
        return replace(self, num_layers=layers)

    def tensor_shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield name and row-major shape of every tensor the network needs."""
        yield "token_embd.weight", (self.vocab_size, self.width)
        yield "output_norm.weight", (self.width,)
        if not self.is_tied:
            yield "output.weight", (self.vocab_size, self.width)
        for layer in range(self.num_layers):
            for name, shape in self.layer_shapes():
                yield f"blk.{layer}.{name}", shape

    def layer_shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield name, without its `blk.N.`, and shape of every tensor of one layer."""
        queries, keys = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        yield "attn_norm.weight", (self.width,)
        for letter, outputs in (("q", queries), ("k", keys), ("v", keys)):
            yield f"attn_{letter}.weight", (outputs, self.width)
            if self.has_qkv_bias:
                yield f"attn_{letter}.bias", (outputs,)
        if self.has_qk_norm:
            yield "attn_q_norm.weight", (self.head_dim,)
            yield "attn_k_norm.weight", (self.head_dim,)
        yield "attn_output.weight", (self.width, queries)
        yield "ffn_norm.weight", (self.width,)
        yield "ffn_gate.weight", (self.inner_width, self.width)
        yield "ffn_up.weight", (self.inner_width, self.width)
        yield "ffn_down.weight", (self.width, self.inner_width)


def _still_layers(layers: int) -> frozenset[int]:
    return frozenset(range(_STILL - 1, layers, _STILL))


class _Facts(Facts):
    """The metadata under the architecture's own prefix, typed and checked."""

    def __init__(self, file: GGUFFile) -> None:
        super().__init__(file.path)
        self._file = file
        name = file.metadata.get("general.architecture")
        if not isinstance(name, str):
            raise ModelFileError(f"{file.path} does not name its architecture.", DAMAGED)
        if name not in _SUPPORTED:
            self.unsupported(f"the architecture {name!r}")
        if file.metadata.get("split.count", 0) not in (0, 1):
            self.unsupported("more than one file (a split model)")
        self.architecture = name

    def __contains__(self, key: str) -> bool:
        return f"{self.architecture}.{key}" in self._file.metadata

    def get(self, key: str, default: object = None) -> object:
        return self._file.metadata.get(f"{self.architecture}.{key}", default)

    def check_neutral(self) -> None:
        for key, neutral in _NEUTRAL.items():
            value = self.get(key, neutral[0])
            if value not in neutral:
                self.unsupported(f"{key} = {value!r}")

    def vocab_size(self) -> int:
        """The embedding decides; the metadata may repeat it."""
        if "token_embd.weight" not in self._file:
            raise ModelFileError(f"{self.path} lacks 'token_embd.weight'.", DAMAGED)
        size = self._file.tensor_shape("token_embd.weight")[0]
        if self.whole("vocab_size", size) != size:
            self.damaged(f"{self.get('vocab_size')} tokens and embeds {size}")
        return size

    def context_length(self) -> int:
        length = self.whole("context_length")
        window = self.get("attention.sliding_window", 0)
        if window != 0 and (type(window) is not int or window < length):
            self.unsupported(f"a sliding window of {window!r} in a context of {length}")
        return length

    def rope(self, head_dim: int) -> Rope:
        dimension = self.whole("rope.dimension_count", head_dim)
        if dimension % 2 or dimension > head_dim:
            self.damaged(f"{dimension} turning components in heads of {head_dim}")
        base = self.real("rope.freq_base", 10000.0)
        kind = self.get("rope.scaling.type", "none")
        if kind not in ("none", "linear"):
            self.unsupported(f"rope scaling {kind!r}")
        stretch = 1.0
        if kind == "linear":
            stretch = self.real("rope.scaling.factor")
        elif "rope.scale_linear" in self:
            stretch = self.real("rope.scale_linear")
        factors = [stretch * factor for factor in self._rope_factors(dimension // 2)]
        return Rope(self.architecture in ("llama", "smollm3"), dimension, base, tuple(factors))

    def _rope_factors(self, pairs: int) -> list[float]:
        """Llama 3 stretches each pair by a factor of its own, kept as a tensor."""
        name = "rope_freqs.weight"
        if name not in self._file:
            return [1.0] * pairs
        if self._file.tensor_shape(name) != (pairs,):
            self.damaged(f"{self._file.tensor_shape(name)} rope factors for {pairs} pairs")
        factors = [float(factor) for factor in self._file.tensor(name)]
        if min(factors) <= 0:
            self.damaged("a rope factor that is not positive")
        return factors
