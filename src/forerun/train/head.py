"""The head that learns: EAGLE-3's network (Li et al. 2025), unrolled over its own outputs.

A row stands for token y at position t + 1 and asks what follows it. Level 0 reads the target's
features of position t; level s reads what level s - 1 made of the position before, and attends as
it will when it drafts: to level-0 rows up to s positions back, then to its own line of guesses, one
of each level. So it learns from the mistakes it makes itself (EAGLE-3's training-time test).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from forerun.models.model import Model
from forerun.train.network import Batch, Decoder, Line, Weights

__all__ = ["Network", "initial_weights"]

_LAYER = "layers.0."
_ATTENTION = "layers.0.self_attn."


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


class Network(Decoder):
    """Computes a head's levels."""

    def levels(self, batch: Batch, count: int) -> list[torch.Tensor]:
        """Return what the head's matrix is multiplied with, for levels 0 to `count` - 1.

        Level s has, of each conversation, a row for each token of the answer but the first s: the
        rows that guess it, [rows, width].
        """
        width = self.weights["norm.weight"].shape[0]
        embedded = functional.embedding(batch.tokens, self.frozen.embedding)
        e = self.rms(embedded, f"{_LAYER}input_layernorm.weight")
        turns = self.turns(batch.positions)
        g = self.linear(batch.features.float(), "fc.weight").float()
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
            q = self.turned(self._heads_of(inputs, "q", self.num_heads), turns[:, rows])
            attended = self._attend(q, true, own, batch.lines, [n - level for n in lengths])
            h = g_here + self.linear(attended, f"{_ATTENTION}o_proj.weight").float()
            x = h + self.mlp(h, _LAYER)
            outputs.append(self.rms(x, "norm.weight"))
        return outputs

    def _a(self, g: torch.Tensor) -> torch.Tensor:
        return self.rms(g, f"{_LAYER}hidden_norm.weight")

    def _heads_of(self, inputs: torch.Tensor, letter: str, heads: int) -> torch.Tensor:
        """Return [heads, rows, head_dim]."""
        made = self.linear(inputs, f"{_ATTENTION}{letter}_proj.weight")
        return made.view(len(inputs), heads, self.head_dim).transpose(0, 1)

    def _keys(self, inputs: torch.Tensor, turns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        keys = self.turned(self._heads_of(inputs, "k", self.num_kv_heads), turns)
        return keys, self._heads_of(inputs, "v", self.num_kv_heads)

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
        group, rows = self.num_heads // self.num_kv_heads, q.shape[1]
        q = q.reshape(self.num_kv_heads, group, rows, self.head_dim) * self.head_dim**-0.5
        scores = q @ keys[:, None].transpose(-1, -2)
        seen = torch.ones(rows, keys.shape[1], dtype=torch.bool).tril(first)
        scores = scores.masked_fill(~seen, -torch.inf)
        along = [(q * k[:, None]).sum(-1, keepdim=True) for k, _ in guessed]
        weights = torch.softmax(torch.cat([scores, *along], -1).float(), -1).to(values.dtype)
        mixed = weights[..., : keys.shape[1]] @ values[:, None]
        for place, (_, v) in enumerate(guessed):
            column = keys.shape[1] + place
            mixed = mixed + weights[..., column : column + 1] * v[:, None]
        return mixed.flatten(0, 1).transpose(0, 1).reshape(rows, self.num_heads * self.head_dim)


def _without_last(x: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
    """Return the rows of each conversation but its last."""
    return torch.cat([part[:-1] for part in torch.split(x, list(lengths))])
