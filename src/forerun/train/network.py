"""What networks that learn are made of: batches, the target's frozen parts, a decoder's steps.

Weights are a plain table of tensors, under the names that the kind's file gives them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from forerun.models.architecture import Architecture
from forerun.models.model import Model

__all__ = ["Batch", "Decoder", "Frozen", "LevelNetwork", "Line", "Weights"]

Weights = dict[str, torch.Tensor]


class Line(NamedTuple):
    """One conversation of a batch.

    Attributes:
        rows: Which of the batch's rows are its own.
        first: The first of them, counted from its own first, that guesses a token of the answer.
    """

    rows: slice
    first: int


class Batch(NamedTuple):
    """Rows of whole conversations, one behind the other.

    Attributes:
        tokens: int64 [M].
        positions: int64 [M].
        features: float16 [M, layers · width]: of the position before, if the network reads them.
        lines: The conversations.
        seen: Of each line, what each row attends to, bool [rows, rows]; none: all before it.
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    features: torch.Tensor
    lines: Sequence[Line]
    seen: Sequence[torch.Tensor] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Frozen:
    """What the head takes from the target and never changes.

    Attributes:
        architecture: The target's.
        embedding: [vocabulary, width].
        head: [draft vocabulary, width]: those rows of the target's head.
    """

    architecture: Architecture
    embedding: torch.Tensor
    head: torch.Tensor

    @classmethod
    def of(cls, model: Model, tokens: NDArray[np.int64]) -> Frozen:
        """Read it from a model, for a draft vocabulary of `tokens`."""
        embedding = model.file.tensor("token_embd.weight")
        tied = model.architecture.is_tied
        head = embedding if tied else model.file.tensor("output.weight")
        kept = torch.from_numpy(np.ascontiguousarray(head[tokens]))
        return cls(model.architecture, torch.from_numpy(embedding), kept)


class LevelNetwork(Protocol):
    """A network that guesses several tokens of a draft, over some rows of the target's head."""

    @property
    def frozen(self) -> Frozen:
        """What it takes from the target."""

    def levels(self, batch: Batch, count: int) -> list[torch.Tensor]:
        """Return what the head's matrix is multiplied with, for guesses 1 to `count` of a draft.

        Level s has, of each conversation, a row for each token of the answer but the first s: the
        rows that guess it, [rows, width].
        """


class Decoder:
    """The steps of a decoder layer of the target's shape.

    Args:
        weights: Its tensors; whoever changes them changes what is computed next.
        frozen: What it takes from the target.
    """

    def __init__(self, weights: Weights, frozen: Frozen) -> None:
        self.weights = weights
        self.frozen = frozen
        network = frozen.architecture
        self.num_heads, self.num_kv_heads = network.num_heads, network.num_kv_heads
        self.head_dim = network.head_dim
        self._frequencies = torch.from_numpy(network.rope.frequencies())

    def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        """Multiply with a matrix, and add its bias if there is one."""
        return functional.linear(x, self.weights[name], self.weights.get(_bias_of(name)))

    def rms(self, x: torch.Tensor, name: str) -> torch.Tensor:
        """Normalise by the root mean square, with a weight."""
        weight = self.weights[name]
        size = (weight.shape[0],)
        return functional.rms_norm(x, size, weight, self.frozen.architecture.norm_epsilon)

    def mlp(self, h: torch.Tensor, layer: str) -> torch.Tensor:
        """The feed-forward of a layer, such as `layers.0.`, its norm included."""
        n = self.rms(h, f"{layer}post_attention_layernorm.weight")
        gate = functional.silu(self.linear(n, f"{layer}mlp.gate_proj.weight"))
        up = self.linear(n, f"{layer}mlp.up_proj.weight")
        return self.linear(gate * up, f"{layer}mlp.down_proj.weight").float()

    def turns(self, positions: torch.Tensor) -> torch.Tensor:
        """Return cosines and sines, [2, rows, pairs]."""
        angles = positions.double()[:, None] * self._frequencies
        return torch.stack([angles.cos(), angles.sin()]).float()

    def turned(self, x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        """Turn the pairs of [heads, rows, head_dim] by their positions."""
        rope = self.frozen.architecture.rope
        pairs = rope.dimension // 2
        cos, sin = turns
        turned, still = x[..., : rope.dimension], x[..., rope.dimension :]
        if rope.interleaved:
            left, right = turned[..., 0::2], turned[..., 1::2]
        else:
            left, right = turned[..., :pairs], turned[..., pairs:]
        left, right = left * cos - right * sin, left * sin + right * cos
        if rope.interleaved:
            both = torch.stack([left, right], -1).flatten(-2)
        else:
            both = torch.cat([left, right], -1)
        return torch.cat([both, still], -1)


def _bias_of(name: str) -> str:
    return f"{name.removesuffix('weight')}bias"
