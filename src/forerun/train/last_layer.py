"""The target's last layer, run over captured text: what was captured enters it, heads read its end.

So text captured for one kind of drafter teaches those that read what leaves the last layer, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from forerun.models.model import Model
from forerun.train.network import Decoder, Frozen, Line, Weights

__all__ = ["LastLayer"]

_LAYER = "layers.0."


class LastLayer(Decoder):
    """Computes it in float32, without slopes.

    Args:
        model: The target.
        frozen: The same's.
    """

    def __init__(self, model: Model, frozen: Frozen) -> None:
        network = model.architecture
        self._place = network.num_layers - 1
        parts = {
            "attention": "attn_norm",
            "qkv": "attn_q",
            "self_attn.o_proj": "attn_output",
            "post_attention_layernorm": "ffn_norm",
            "mlp.gate_proj": "ffn_gate",
            "mlp.up_proj": "ffn_up",
            "mlp.down_proj": "ffn_down",
        }

        def tensor(name: str) -> torch.Tensor:
            return torch.from_numpy(model.file.tensor(f"blk.{self._place}.{name}"))

        weights: Weights = {
            f"{_LAYER}{ours}.weight": tensor(f"{theirs}.weight") for ours, theirs in parts.items()
        }
        products = [tensor(f"attn_{letter}.weight") for letter in "qkv"]
        weights[f"{_LAYER}qkv.weight"] = torch.cat(products)
        if network.has_qkv_bias:
            biases = [tensor(f"attn_{letter}.bias") for letter in "qkv"]
            weights[f"{_LAYER}qkv.bias"] = torch.cat(biases)
        if network.has_qk_norm:
            weights |= {f"{_LAYER}{x}_norm": tensor(f"attn_{x}_norm.weight") for x in "qk"}
        super().__init__(weights, frozen)

    @torch.no_grad()
    def __call__(
        self, entered: torch.Tensor, positions: torch.Tensor, lines: Sequence[Line]
    ) -> torch.Tensor:
        """Return what leaves the layer, float32 [rows, width].

        Args:
            entered: What enters it, float32 [rows, width].
            positions: int64 [rows].
            lines: The conversations, each from its first token on.
        """
        with torch.autocast("cpu", enabled=False):
            normed = self.rms(entered, f"{_LAYER}attention.weight")
            made = self.linear(normed, f"{_LAYER}qkv.weight")
            heads = made.view(len(entered), -1, self.head_dim).transpose(0, 1)
            q, k, v = torch.split(heads, [self.num_heads, self.num_kv_heads, self.num_kv_heads])
            q, k = self._turned(q, "q", positions), self._turned(k, "k", positions)
            parts = [self._attended(q, k, v, line.rows) for line in lines]
            mixed = torch.cat(parts, 1).transpose(0, 1).reshape(len(entered), -1)
            h = entered + self.linear(mixed, f"{_LAYER}self_attn.o_proj.weight")
            return h + self.mlp(h, _LAYER)

    def _turned(self, x: torch.Tensor, letter: str, positions: torch.Tensor) -> torch.Tensor:
        if f"{_LAYER}{letter}_norm" in self.weights:
            x = self.rms(x, f"{_LAYER}{letter}_norm")
        if self._place in self.frozen.architecture.unturned_layers:
            return x
        return self.turned(x, self.turns(positions))

    def _attended(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rows: slice
    ) -> torch.Tensor:
        """Attend within one conversation; returns [heads, rows, head_dim]."""
        group = self.num_heads // self.num_kv_heads
        keys, values = (x[:, rows].repeat_interleave(group, 0) for x in (k, v))
        return functional.scaled_dot_product_attention(q[:, rows], keys, values, is_causal=True)
