"""The small causal model that learns: some layers of the target's shape, its embedding and head.

It reads text alone. Weights have the names that transformers gives them, behind `model.`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch.nn import functional

from forerun.errors import OptionError
from forerun.models.architecture import Architecture
from forerun.models.model import Model
from forerun.train.network import Batch, Decoder, Frozen, Weights

__all__ = ["GGUF_NAMES", "Kept", "Student", "architecture_of", "chosen_layers"]
__all__ += ["frozen_for", "initial_student"]

GGUF_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""What a layer's tensors are called in a GGUF file."""

Kept = list[list[tuple[torch.Tensor, torch.Tensor]]]
"""Keys and values of the rows so far, of each layer and each line: [heads, rows, head_dim]."""


def chosen_layers(model: Model, layers: Sequence[int]) -> tuple[int, ...]:
    """Return the target's layers that a model begins with, in order.

    Raises:
        OptionError: The target has not all of them.
    """
    count = model.architecture.num_layers
    chosen = tuple(sorted(set(layers))) or tuple(sorted({0, count - 1}))
    if chosen[-1] >= count:
        what = f"layers = {chosen}: {model.name} has {count}."
        raise OptionError(what, f"Choose from 0 to {count - 1}.")
    return chosen


def architecture_of(target: Architecture, layers: int) -> Architecture:
    """Return the target's numbers with so many layers, each of which turns as its place says."""
    return replace(
        target,
        num_layers=layers,
        unturned_layers=frozenset(range(3, layers, 4)) if target.unturned_layers else frozenset(),
    )


def initial_student(model: Model, layers: Sequence[int]) -> Weights:
    """Return where training begins: the target's layers, one after the other, and its last norm."""
    weights: Weights = {}
    for place, layer in enumerate(layers):
        for ours, theirs in GGUF_NAMES.items():
            for kind in ("weight", "bias"):
                name = f"blk.{layer}.{theirs}.{kind}"
                if name in model.file:
                    tensor = torch.from_numpy(model.file.tensor(name))
                    weights[f"layers.{place}.{ours}.{kind}"] = tensor
    weights["norm.weight"] = torch.from_numpy(model.file.tensor("output_norm.weight"))
    return {name: values.clone() for name, values in sorted(weights.items())}


class Student(Decoder):
    """Computes what the head's matrix is multiplied with.

    Args:
        weights: Its tensors; whoever changes them changes what is computed next.
        frozen: What it takes from the target, with the architecture of the student.
    """

    def levels(self, batch: Batch, count: int) -> list[torch.Tensor]:
        """Return what the head's matrix is multiplied with, for guesses 1 to `count` of a draft.

        Whatever was accepted it has read like any other text: guess s is guess 1, further on.
        """
        rows = [line.rows for line in batch.lines]
        seen = batch.seen or [
            torch.ones(each.stop - each.start, each.stop - each.start, dtype=torch.bool).tril()
            for each in rows
        ]
        x = self.read(batch.tokens, batch.positions, rows, seen)
        return [
            torch.cat([x[line.rows][line.first + level :] for line in batch.lines])
            for level in range(count)
        ]

    def read(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        lines: Sequence[slice],
        seen: Sequence[torch.Tensor],
        kept: Kept | None = None,
    ) -> torch.Tensor:
        """Return what the head's matrix is multiplied with at each row, [rows, width].

        Args:
            tokens: int64 [rows].
            positions: int64 [rows].
            lines: Each line's rows.
            seen: Of each line, what each of its rows attends to: bool [rows, kept and own rows].
            kept: Keys and values of rows before; those of the new ones are added. None: there are
                none.
        """
        x = functional.embedding(tokens, self.frozen.embedding)
        turns = self.turns(positions)
        for layer in range(self.frozen.architecture.num_layers):
            name = f"layers.{layer}."
            q, k, v = self._qkv(self.rms(x, f"{name}input_layernorm.weight"), name)
            if layer not in self.frozen.architecture.unturned_layers:
                q, k = self.turned(q, turns), self.turned(k, turns)
            pairs = [(k[:, rows], v[:, rows]) for rows in lines]
            if kept is not None:
                pairs = kept[layer] = _longer(kept[layer], pairs)
            parts = [
                self._attend(q[:, rows], *pair, mask)
                for rows, pair, mask in zip(lines, pairs, seen, strict=True)
            ]
            x = x + self.linear(torch.cat(parts), f"{name}self_attn.o_proj.weight").float()
            x = x + self.mlp(x, name)
        return self.rms(x, "norm.weight")

    def _qkv(self, x: torch.Tensor, layer: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return queries, keys and values, [heads, rows, head_dim]."""

        def heads(letter: str, count: int) -> torch.Tensor:
            made = self.linear(x, f"{layer}self_attn.{letter}_proj.weight")
            made = made.view(len(x), count, self.head_dim)
            norm = f"{layer}self_attn.{letter}_norm.weight"
            return (self.rms(made, norm) if norm in self.weights else made).transpose(0, 1)

        kv_heads = self.num_kv_heads
        return heads("q", self.num_heads), heads("k", kv_heads), heads("v", kv_heads)

    def _attend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: torch.Tensor
    ) -> torch.Tensor:
        group, rows = self.num_heads // self.num_kv_heads, q.shape[1]
        q = q.reshape(self.num_kv_heads, group, rows, self.head_dim) * self.head_dim**-0.5
        scores = (q @ k[:, None].transpose(-1, -2)).masked_fill(~seen, -torch.inf)
        mixed = torch.softmax(scores.float(), -1).to(v.dtype) @ v[:, None]
        return mixed.flatten(0, 1).transpose(0, 1).reshape(rows, self.num_heads * self.head_dim)


def _longer(
    before: Sequence[tuple[torch.Tensor, torch.Tensor]],
    new: Sequence[tuple[torch.Tensor, torch.Tensor]],
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return each line's keys and values with the new ones behind."""
    if not before:
        return list(new)
    return [
        (torch.cat([k, k_new], 1), torch.cat([v, v_new], 1))
        for (k, v), (k_new, v_new) in zip(before, new, strict=True)
    ]


def frozen_for(frozen: Frozen, layers: int) -> Frozen:
    """Return what a student of so many layers takes from the target."""
    return replace(frozen, architecture=architecture_of(frozen.architecture, layers))
