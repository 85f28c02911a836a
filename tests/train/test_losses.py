from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from forerun.train.losses import DECAY, LOSSES, Laws, LossName, learn

pytestmark = pytest.mark.judge


def case(seed: int, rows: int = 7, size: int = 40, named: int = 9) -> tuple[torch.Tensor, ...]:
    """Inputs, a head, and laws of which some tokens are not in the draft's vocabulary."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 12, generator=random, dtype=torch.float64)
    head = torch.randn(size, 12, generator=random, dtype=torch.float64) / 2
    ids = torch.stack([torch.randperm(size, generator=random)[:named] for _ in range(rows)])
    ids[torch.rand(ids.shape, generator=random) < 0.2] = -1
    p = torch.softmax(torch.randn(rows, named + 1, generator=random, dtype=torch.float64) * 2, -1)
    return x, head, ids, p[:, :named], p[:, named] * 0.5


def slow(
    x: torch.Tensor, head: torch.Tensor, laws: tuple[torch.Tensor, ...], loss: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and alpha of each row, token by token, from their definitions."""
    losses, alphas = [], []
    for i, row in enumerate(torch.log_softmax(x @ head.T, -1)):
        named = [(k, p) for k, p in zip(laws[0][i].tolist(), laws[1][i], strict=True) if k >= 0]
        log_q = {k: row[k] for k, _ in named}
        alpha = sum((torch.minimum(p, log_q[k].exp()) for k, p in named), torch.zeros(()))
        left = (1 - sum(log_q[k].exp() for k, _ in named)).log()  # type: ignore[union-attr]
        rest = laws[2][i]
        kl = rest * (rest.log() - left) + sum(p * (p.log() - log_q[k]) for k, p in named)
        cross = -rest * left - sum(p * log_q[k] for k, p in named)
        reverse = left.exp() * (left - rest.log())
        reverse = reverse + sum(log_q[k].exp() * (log_q[k] - p.log()) for k, p in named)
        w = torch.exp(-DECAY * alpha.detach())
        value = {
            "ce": cross,
            "kl": kl,
            "rkl": reverse,
            "lk": w * kl + (1 - w) * (1 - alpha),
            "log-alpha": -alpha.log(),
            "tv": 1 - alpha,
        }[loss]
        losses.append(value)
        alphas.append(alpha)
    return torch.stack(losses), torch.stack(alphas)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("seed", range(4))
def test_loss_and_slope_are_those_of_the_definition(loss: LossName, seed: int) -> None:
    """To rounding, autograd finds the same slope from the loss written out token by token."""
    x, head, *laws = case(seed)
    learned = learn(x, head, Laws.of(laws[0], laws[1], laws[2]), loss)
    x.requires_grad_()
    losses, alphas = slow(x, head, tuple(laws), loss)
    losses.sum().backward()
    assert x.grad is not None
    assert torch.allclose(learned.loss, losses)
    assert torch.allclose(learned.alpha, alphas)
    assert torch.allclose(learned.slope, x.grad)


def test_many_rows_are_the_same_as_few() -> None:
    """Rows are done some at a time; where they are parted changes no number."""
    x, head, *laws = case(5, rows=700)
    whole = learn(x, head, Laws.of(*laws), "lk")
    for at in (0, 255, 256, 699):
        one = learn(x[at : at + 1], head, Laws.of(*(each[at : at + 1] for each in laws)), "lk")
        for part, same in zip(one, whole, strict=True):
            assert torch.allclose(part[0], same[at], atol=1e-9)


def test_what_is_not_in_the_vocabulary_is_lost() -> None:
    """Where p names no token that q has, nothing is accepted; where it is q, all that it names."""
    x, head, ids, p, rest = case(6)
    none = Laws.of(torch.full_like(ids, -1), p, rest)
    assert learn(x, head, none, "tv").alpha.abs().max() == 0
    q = torch.softmax(x @ head.T, -1)
    every = torch.arange(len(head)).expand(len(x), -1)
    same = learn(x, head, Laws.of(every, q, torch.zeros(len(x), dtype=q.dtype)), "tv")
    assert torch.allclose(same.alpha, torch.ones(len(x), dtype=q.dtype), atol=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_step_down_the_slope_lowers_the_loss(loss: LossName) -> None:
    """For each of the losses."""
    x, head, *laws = case(8)
    laws_ = Laws.of(*laws)
    before = learn(x, head, laws_, loss)
    after = learn(x - 1e-2 * before.slope, head, laws_, loss)
    assert after.loss.sum() < before.loss.sum()


@pytest.mark.parametrize("loss", ["kl", "rkl", "tv"])
def test_a_divergence_is_nothing_where_the_laws_are_one(loss: LossName) -> None:
    """With all of p named; elsewhere it is above zero."""
    x, head, *_ = case(6)
    q = torch.softmax(x @ head.T, -1)
    every = torch.arange(len(head)).expand(len(x), -1)
    none = torch.zeros(len(x), dtype=q.dtype)
    assert learn(x, head, Laws.of(every, q, none), loss).loss.abs().max() < 1e-6
    assert learn(x, head, Laws.of(every, q.roll(1, 0), none), loss).loss.min() > 1e-3
