"""The kinds of learned drafters that a head's file may hold, and the tensors of each.

- `eagle3`: a decoder layer over features of some layers (drafter `eagle`).
- `medusa`: parallel heads on one hidden state, each a product and what it is added to, which guess
  one token each, one further than the last (drafter `medusa`).
- `exit`: a feed-forward on what one of the first layers makes of a token (drafter `exit`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from forerun.models.architecture import Architecture

__all__ = ["EAGLE", "EXIT", "HEAD", "MEDUSA", "MOST_GUESSES", "SHAPES", "ExitShape", "HeadShape"]
__all__ += ["MedusaShape", "Shape"]

HEAD = "lm_head.weight"
"""The tensor that a file may have or lack: without it, the target's own head is used."""

EAGLE, MEDUSA, EXIT = "eagle3", "medusa", "exit"
MOST_GUESSES = 16

Tensors = dict[str, tuple[int, ...]]
Rows = Callable[[str], int]


class HeadShape(NamedTuple):
    """The sizes of a head of kind `eagle3`.

    Attributes:
        width: Of the residual stream, as the target's.
        query_width: All query heads' components.
        kv_width: All key heads' components, and all value heads'.
        inner_width: Of the feed-forward.
    """

    width: int
    query_width: int
    kv_width: int
    inner_width: int

    @classmethod
    def read(cls, rows: Rows, names: Collection[str]) -> HeadShape:
        """Return the sizes that some tensors' outputs say, of those that there are."""
        attention = "layers.0.self_attn"
        return cls(
            rows("norm.weight"),
            rows(f"{attention}.q_proj.weight"),
            rows(f"{attention}.k_proj.weight"),
            rows("layers.0.mlp.gate_proj.weight"),
        )

    def fitting(self, network: Architecture) -> HeadShape:
        """Return the sizes that a head of a network has."""
        size = network.head_dim
        heads, kv_heads = network.num_heads * size, network.num_kv_heads * size
        return HeadShape(network.width, heads, kv_heads, network.inner_width)

    def tensors(self, layers: int) -> Tensors:
        """Return name and shape of all tensors but `own_heads`, for features of so many layers."""
        width, layer = self.width, "layers.0"
        return {
            "fc.weight": (width, layers * width),
            f"{layer}.input_layernorm.weight": (width,),
            f"{layer}.hidden_norm.weight": (width,),
            f"{layer}.self_attn.q_proj.weight": (self.query_width, 2 * width),
            f"{layer}.self_attn.k_proj.weight": (self.kv_width, 2 * width),
            f"{layer}.self_attn.v_proj.weight": (self.kv_width, 2 * width),
            f"{layer}.self_attn.o_proj.weight": (width, self.query_width),
            f"{layer}.post_attention_layernorm.weight": (width,),
            f"{layer}.mlp.gate_proj.weight": (self.inner_width, width),
            f"{layer}.mlp.up_proj.weight": (self.inner_width, width),
            f"{layer}.mlp.down_proj.weight": (width, self.inner_width),
            "norm.weight": (width,),
        }

    def own_heads(self, names: Collection[str]) -> tuple[str, ...]:
        """Return the tensors of rows over the draft vocabulary, if there are any."""
        return (HEAD,) if HEAD in names else ()


class MedusaShape(NamedTuple):
    """The sizes of one of kind `medusa`.

    Attributes:
        width: Of the hidden state, as the target's.
        guesses: Heads, each of which guesses one token.
    """

    width: int
    guesses: int

    @classmethod
    def read(cls, rows: Rows, names: Collection[str]) -> MedusaShape:
        """Return the sizes that some tensors' outputs say, of those that there are."""
        guesses = 1
        while guesses < MOST_GUESSES and f"{guesses}.0.linear.weight" in names:
            guesses += 1
        return cls(rows("0.0.linear.bias"), guesses)

    def fitting(self, network: Architecture) -> MedusaShape:
        """Return the sizes that one of a network has, with so many heads."""
        return MedusaShape(network.width, self.guesses)

    def tensors(self, layers: int) -> Tensors:
        """Return name and shape of every tensor but `own_heads`."""
        width = self.width
        return {
            f"{guess}.0.linear.{part}": size
            for guess in range(self.guesses)
            for part, size in (("weight", (width, width)), ("bias", (width,)))
        }

    def own_heads(self, names: Collection[str]) -> tuple[str, ...]:
        """Return the tensors of rows over the draft vocabulary: one for all, or one a guess."""
        if HEAD in names:
            return (HEAD,)
        each = tuple(f"{guess}.1.weight" for guess in range(self.guesses))
        return each if each[0] in names else ()


class ExitShape(NamedTuple):
    """The sizes of one of kind `exit`.

    Attributes:
        width: Of the hidden state, as the target's.
        inner_width: Of the feed-forward; any.
    """

    width: int
    inner_width: int

    @classmethod
    def read(cls, rows: Rows, names: Collection[str]) -> ExitShape:
        """Return the sizes that some tensors' outputs say, of those that there are."""
        return cls(rows("norm.weight"), rows("mlp.gate_proj.weight"))

    def fitting(self, network: Architecture) -> ExitShape:
        """Return the sizes that one of a network has, as wide inside."""
        return ExitShape(network.width, self.inner_width)

    def tensors(self, layers: int) -> Tensors:
        """Return name and shape of every tensor but `own_heads`."""
        width, inner = self.width, self.inner_width
        return {
            "input_layernorm.weight": (width,),
            "mlp.gate_proj.weight": (inner, width),
            "mlp.up_proj.weight": (inner, width),
            "mlp.down_proj.weight": (width, inner),
            "norm.weight": (width,),
        }

    def own_heads(self, names: Collection[str]) -> tuple[str, ...]:
        """Return the tensors of rows over the draft vocabulary, if there are any."""
        return (HEAD,) if HEAD in names else ()


Shape = HeadShape | MedusaShape | ExitShape

SHAPES: dict[str, type[HeadShape] | type[MedusaShape] | type[ExitShape]] = {
    EAGLE: HeadShape,
    MEDUSA: MedusaShape,
    EXIT: ExitShape,
}
"""What a file of each kind holds."""
