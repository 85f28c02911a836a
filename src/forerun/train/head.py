"""The head that learns: EAGLE-3's network (Li et al. 2025), unrolled over its own outputs.

A row stands for token y at position t + 1 and asks what follows it. Level 0 reads the target's
features of position t; level s reads what level s - 1 made of the position before, and attends as
it will when it drafts: to level-0 rows up to s positions back, then to its own line of guesses, one
of each level. So it learns from the mistakes it makes itself (EAGLE-3's training-time test).

Weights are a plain table of tensors, under the names that the head's file gives them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from forerun.models.architecture import Architecture
from forerun.models.model import Model

__all__ = ["Batch", "Frozen", "Line", "Network", "Weights", "initial_weights"]

Weights = dict[str, torch.Tensor]
_LAYER = "layers.0."
_ATTENTION = "layers.0.self_attn."


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
        features: float16 [M, layers · width]: of the position before.
        lines: The conversations.
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    features: torch.Tensor
    lines: Sequence[Line]


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


def initial_weights(model: Model, layers: int, seed: int) -> Weights:
    """Return where training begins: the target's last layer, reading the last feature.

    Args:
        model: The target.
        layers: How many layers' features there are.
        seed: Of what the embedding's half of the attention begins with.
    """
    network = model.architecture
    last, d = network.num_layers - 1, network.width

    def tensor(name: str) -> torch.Tensor:
        return torch.from_numpy(model.file.tensor(name))

    random = torch.Generator().manual_seed(seed)

    def widened(letter: str) -> torch.Tensor:
        own = tensor(f"blk.{last}.attn_{letter}.weight")
        noise = torch.randn(own.shape, generator=random) * own.std() * 0.1
        return torch.cat([noise, own], 1)

    weights = {f"{_ATTENTION}{letter}_proj.weight": widened(letter) for letter in "qkv"}
    weights |= {
        f"{_LAYER}{ours}.weight": tensor(f"blk.{last}.{theirs}.weight")
        for ours, theirs in (
            ("self_attn.o_proj", "attn_output"),
            ("hidden_norm", "attn_norm"),
            ("post_attention_layernorm", "ffn_norm"),
            ("mlp.gate_proj", "ffn_gate"),
            ("mlp.up_proj", "ffn_up"),
            ("mlp.down_proj", "ffn_down"),
        )
    }
    weights[f"{_LAYER}input_layernorm.weight"] = tensor("blk.0.attn_norm.weight")
    weights["norm.weight"] = tensor("output_norm.weight")
    weights["fc.weight"] = torch.cat([torch.zeros(d, (layers - 1) * d), torch.eye(d)], 1)
    return {name: values.clone() for name, values in sorted(weights.items())}


class Network:
    """Computes a head's levels.

    Args:
        weights: Its tensors; whoever changes them changes what is computed next.
        frozen: What it takes from the target.
    """

    def __init__(self, weights: Weights, frozen: Frozen) -> None:
        self.weights = weights
        self.frozen = frozen
        network = frozen.architecture
        self._heads, self._kv_heads = network.num_heads, network.num_kv_heads
        self._dim = network.head_dim
        self._frequencies = torch.from_numpy(network.rope.frequencies())

    def levels(self, batch: Batch, count: int) -> list[torch.Tensor]:
        """Return what the head's matrix is multiplied with, for levels 0 to `count` - 1.

        Level s has, of each conversation, a row for each token of the answer but the first s: the
        rows that guess it, [rows, width].
        """
        width = self.weights["norm.weight"].shape[0]
        embedded = functional.embedding(batch.tokens, self.frozen.embedding)
        e = self._rms(embedded, f"{_LAYER}input_layernorm.weight")
        turns = self._turns(batch.positions)
        g = self._linear(batch.features.float(), "fc.weight").float()
        true = self._keys(torch.cat([e, self._a(g)], 1), turns)
        starts = [line.rows.start + line.first for line in batch.lines]
        lengths = [line.rows.stop - start for line, start in zip(batch.lines, starts, strict=True)]
        own: list[tuple[torch.Tensor, torch.Tensor]] = []
        outputs: list[torch.Tensor] = []
        x = torch.empty(0, width)
        for level in range(count):
            spans = zip(starts, lengths, strict=True)
            rows = torch.cat([torch.arange(at + level, at + length) for at, length in spans])
            if level:
                g_here = _without_last(x, [length - level + 1 for length in lengths])
                inputs = torch.cat([e[rows], self._a(g_here)], 1)
                own.append(self._keys(inputs, turns[:, rows]))
            else:
                g_here = g[rows]
                inputs = torch.cat([e[rows], self._a(g_here)], 1)
            q = self._turned(self._heads_of(inputs, "q", self._heads), turns[:, rows])
            attended = self._attend(q, true, own, batch.lines, [n - level for n in lengths])
            h = g_here + self._linear(attended, f"{_ATTENTION}o_proj.weight").float()
            x = h + self._mlp(h)
            outputs.append(self._rms(x, "norm.weight"))
        return outputs

    def _a(self, g: torch.Tensor) -> torch.Tensor:
        return self._rms(g, f"{_LAYER}hidden_norm.weight")

    def _mlp(self, h: torch.Tensor) -> torch.Tensor:
        n = self._rms(h, f"{_LAYER}post_attention_layernorm.weight")
        gate = functional.silu(self._linear(n, f"{_LAYER}mlp.gate_proj.weight"))
        up = self._linear(n, f"{_LAYER}mlp.up_proj.weight")
        return self._linear(gate * up, f"{_LAYER}mlp.down_proj.weight").float()

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return functional.linear(x, self.weights[name])

    def _rms(self, x: torch.Tensor, name: str) -> torch.Tensor:
        weight = self.weights[name]
        size = (weight.shape[0],)
        return functional.rms_norm(x, size, weight, self.frozen.architecture.norm_epsilon)

    def _heads_of(self, inputs: torch.Tensor, letter: str, heads: int) -> torch.Tensor:
        """Return [heads, rows, head_dim]."""
        made = self._linear(inputs, f"{_ATTENTION}{letter}_proj.weight")
        return made.view(len(inputs), heads, self._dim).transpose(0, 1)

    def _keys(self, inputs: torch.Tensor, turns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        keys = self._turned(self._heads_of(inputs, "k", self._kv_heads), turns)
        return keys, self._heads_of(inputs, "v", self._kv_heads)

    def _turns(self, positions: torch.Tensor) -> torch.Tensor:
        """Return cosines and sines, [2, rows, pairs]."""
        angles = positions.double()[:, None] * self._frequencies
        return torch.stack([angles.cos(), angles.sin()]).float()

    def _turned(self, x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
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

    def _attend(
        self,
        q: torch.Tensor,
        true: tuple[torch.Tensor, torch.Tensor],
        own: Sequence[tuple[torch.Tensor, torch.Tensor]],
        lines: Sequence[Line],
        lengths: Sequence[int],
    ) -> torch.Tensor:
        """Attend within each conversation; returns [rows, heads · head_dim]."""
        parts, begin = [], 0
        level = len(own)
        before = [0] * level  # where the conversation's rows of each earlier level begin
        for line, length in zip(lines, lengths, strict=True):
            here = slice(begin, begin + length)
            keys, values = (part[:, line.rows] for part in true)
            guessed = [
                (k[:, at : at + length], v[:, at : at + length])
                for (k, v), at in zip(own, before, strict=True)
            ]
            parts.append(self._attend_line(q[:, here], keys, values, guessed, line.first))
            begin += length
            before = [at + length + level - 1 - j for j, at in enumerate(before)]
        return torch.cat(parts)

    def _attend_line(
        self,
        q: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        guessed: Sequence[tuple[torch.Tensor, torch.Tensor]],
        first: int,
    ) -> torch.Tensor:
        group, rows = self._heads // self._kv_heads, q.shape[1]
        q = q.reshape(self._kv_heads, group, rows, self._dim) * self._dim**-0.5
        scores = q @ keys[:, None].transpose(-1, -2)
        seen = torch.ones(rows, keys.shape[1], dtype=torch.bool).tril(first)
        scores = scores.masked_fill(~seen, -torch.inf)
        along = [(q * k[:, None]).sum(-1, keepdim=True) for k, _ in guessed]
        weights = torch.softmax(torch.cat([scores, *along], -1).float(), -1).to(values.dtype)
        mixed = weights[..., : keys.shape[1]] @ values[:, None]
        for place, (_, v) in enumerate(guessed):
            column = keys.shape[1] + place
            mixed = mixed + weights[..., column : column + 1] * v[:, None]
        return mixed.flatten(0, 1).transpose(0, 1).reshape(rows, self._heads * self._dim)


def _without_last(x: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
    """Return the rows of each conversation but its last."""
    return torch.cat([part[:-1] for part in torch.split(x, list(lengths))])
