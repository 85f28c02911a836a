"""What a drafter learns by: losses between the target's law p and the draft's q, and their slopes.

p is known at its likeliest tokens, and the weight of all others together. alpha is the share of
drafts that would be accepted, the sum of min(p, q); what p has outside of the draft's vocabulary or
of its likeliest tokens counts as lost.

- `ce`: soft cross-entropy; the tokens that p does not name are one bucket.
- `kl`: the forward KL divergence of those, KL(p, q): the same slopes, and 0 where q is p.
- `rkl`: the reverse, KL(q, p).
- `lk`: w · KL + (1 - w)(1 - alpha), w = exp(-3 alpha), held fixed: what is lost moves the loss once
  the laws are near (the LK losses of 2026).
- `log-alpha`: -log alpha.
- `tv`: 1 - alpha, the total variation distance where nothing is lost.

The slope on a row of logits is one number times q, and something at the few tokens that p names.
So one softmax and two products make loss and gradient, and autograd never holds the logits.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch

__all__ = ["DECAY", "LOSSES", "Laws", "Learned", "LossName", "learn"]

LossName = Literal["ce", "kl", "rkl", "lk", "log-alpha", "tv"]
LOSSES: tuple[str, ...] = get_args(LossName)

DECAY = 3.0
_TINY = 1e-12
_LEAST = 1e-6  # p that a reverse KL divergence reckons with: what was kept of it is rounded
_ROWS = 256  # at a time: their logits stay in a processor's cache


class Laws(NamedTuple):
    """The target's laws at N rows, as far as they are known, on the draft's vocabulary.

    Attributes:
        ids: int64 [N, K], ids of the draft's vocabulary; -1 where a token has none.
        p: float32 [N, K], 0 where there is no id.
        rest: float32 [N]: what p gives to tokens of the draft's vocabulary that are not named.
        entropy: float32 [N]: the sum of p log p over the named and the rest, for KL.
    """

    ids: torch.Tensor
    p: torch.Tensor
    rest: torch.Tensor
    entropy: torch.Tensor

    @classmethod
    def of(cls, ids: torch.Tensor, p: torch.Tensor, rest: torch.Tensor) -> Laws:
        """Return laws with what follows from them."""
        p = torch.where(ids >= 0, p, 0.0)
        entropy = torch.xlogy(p, p).sum(-1) + torch.xlogy(rest, rest)
        return cls(ids, p, rest, entropy)

    def rows(self, first: int, end: int) -> Laws:
        """Return the laws of some rows."""
        return Laws(*(part[first:end] for part in self))


class Learned(NamedTuple):
    """What a batch taught.

    Attributes:
        loss: float32 [N].
        alpha: float32 [N].
        slope: [N, width]: of the sum of all losses, by the rows' inputs.
    """

    loss: torch.Tensor
    alpha: torch.Tensor
    slope: torch.Tensor


@torch.no_grad()
def learn(x: torch.Tensor, head: torch.Tensor, laws: Laws, loss: LossName) -> Learned:
    """Return losses, acceptance and the slope at the head's inputs.

    Args:
        x: [N, width], what the head multiplies.
        head: [vocabulary of the draft, width], of the same type.
        laws: The target's at these rows.
        loss: Which one.
    """
    parts = [
        _learn(x[i : i + _ROWS], head, laws.rows(i, i + _ROWS), loss)
        for i in range(0, len(x), _ROWS)
    ]
    return Learned(*(torch.cat(same) for same in zip(*parts, strict=True)))


def _learn(x: torch.Tensor, head: torch.Tensor, laws: Laws, loss: LossName) -> Learned:
    logits = x @ head.T
    q = torch.softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), -1)
    there = laws.ids >= 0
    ids = laws.ids.clamp(min=0)
    q_named = torch.where(there, q.gather(1, ids), 0.0)
    value, dense, sparse, alpha = _slopes(q_named, laws, loss)
    slope = (q * dense[:, None]).scatter_add_(1, ids, torch.where(there, sparse, 0.0))
    return Learned(value, alpha, slope.to(head.dtype) @ head)


def _slopes(
    q: torch.Tensor, laws: Laws, loss: LossName
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the loss, the slope's factor of q, its part at the named tokens, and alpha."""
    alpha = torch.minimum(laws.p, q).sum(-1)
    # d alpha / d logit y = q_y [y is below p] - q_y (q of all that are below).
    below = torch.where(q < laws.p, q, 0.0)
    rise = below.sum(-1)
    if loss == "tv":
        return 1 - alpha, rise, -below, alpha
    if loss == "log-alpha":
        scale = 1 / alpha.clamp(min=_TINY)
        return -alpha.clamp(min=_TINY).log(), rise * scale, -below * scale[:, None], alpha
    named = q.sum(-1)
    left = (1 - named).clamp(min=_TINY)
    if loss == "rkl":
        return (*_reverse(q, left, laws), alpha)
    cross = -torch.xlogy(laws.p, q.clamp(min=_TINY)).sum(-1) - laws.rest * left.log()
    dense = laws.p.sum(-1) - laws.rest * named / left
    sparse = q * (laws.rest / left)[:, None] - laws.p
    if loss in ("ce", "kl"):
        return cross if loss == "ce" else cross + laws.entropy, dense, sparse, alpha
    w = torch.exp(-DECAY * alpha)
    value = w * (cross + laws.entropy) + (1 - w) * (1 - alpha)
    dense = w * dense + (1 - w) * rise
    sparse = w[:, None] * sparse - (1 - w)[:, None] * below
    return value, dense, sparse, alpha


def _reverse(
    q: torch.Tensor, left: torch.Tensor, laws: Laws
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return KL(q, p) and its slopes; what is not named is one bucket."""
    named = torch.where(q > 0, (q.clamp(min=_TINY) / laws.p.clamp(min=_LEAST)).log(), 0.0)
    others = (left / laws.rest.clamp(min=_LEAST)).log()
    value = (q * named).sum(-1) + left * others
    # d value / d logit y = q_y (log(q_y / p_y) - value): the same number for all of the bucket.
    return value, others - value, q * (named - others[:, None])
