"""Rows of several texts laid flat: the logits of texts alone, no row filled up, nothing mixed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from forerun.targets.protocol import Row
from targets.tiny_networks import tiny_network

pytestmark = pytest.mark.judge

FAMILIES = ("llama", "gemma2", "gemma3", "mistral", "gpt2", "opt")
PROMPTS = (tuple(range(3, 23)), (7,), (9, 8, 9, 8, 9), tuple(range(40, 51)))


@cache
def target_of(family: str) -> Any:
    from forerun.targets.transformers import TransformersTarget

    return TransformersTarget(tiny_network(family))


def rows_of(target: Any, texts: Sequence[tuple[int, Sequence[int]]]) -> list[Row]:
    """Return a chain of each sequence's tokens, behind what it holds."""
    rows: list[Row] = []
    for sequence, tokens in texts:
        at = target.length(sequence)
        for i, token in enumerate(tokens):
            rows.append(Row(sequence, token, at + i, len(rows) - 1 if i else -1))
    return rows


def read_at_once(target: Any) -> Any:
    """Return what is said after each prompt, all read in one pass, and after two tokens more."""
    names = [target.open() for _ in PROMPTS]
    rows = rows_of(target, list(zip(names, PROMPTS, strict=True)))
    ends = np.cumsum([len(prompt) for prompt in PROMPTS]) - 1
    found = [target.score(rows, logits=ends.tolist()).logits]
    for name in names:
        target.commit(name, [i for i, row in enumerate(rows) if row.sequence == name])
    # A tree below the first text beside single rows: 11 and 12 are siblings, 13 follows 12.
    at = len(PROMPTS[0])
    tree = [Row(names[0], 11, at, -1), Row(names[0], 12, at, -1), Row(names[0], 13, at + 1, 1)]
    more = rows_of(target, [(name, [5]) for name in names[1:]])
    found.append(target.score([*tree, *more]).logits)
    for name in names:
        target.free(name)
    return np.concatenate(found)


def read_one_by_one(target: Any) -> Any:
    """Return the same of plain forwards."""
    plain = target._network.plain
    texts = [*PROMPTS, *(PROMPTS[0] + end for end in ((11,), (12,), (12, 13)))]
    texts += [(*prompt, 5) for prompt in PROMPTS[1:]]
    return np.stack([plain(text) for text in texts])


@pytest.mark.parametrize("family", FAMILIES)
def test_prompts_read_at_once_say_what_each_says_alone(family: str) -> None:
    """Of four lengths, with one pass for all; then a tree beside single rows."""
    target = target_of(family)
    assert target._network.is_flat
    assert target.capabilities.reads_beside
    assert not target.capabilities.pads
    np.testing.assert_allclose(read_at_once(target), read_one_by_one(target), atol=2e-4)


def test_no_row_is_filled_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A draft of one text costs the others nothing: a pass has the rows that were asked for."""
    target = target_of("llama")
    sizes: list[tuple[int, ...]] = []
    network = target._network

    def watched(batch: Any, *given: Any, **how: Any) -> Any:
        sizes.append(batch.tokens.shape)
        return network(batch, *given, **how)

    spy = SimpleNamespace(**{name: getattr(network, name) for name in ("is_flat", "width", "path")})
    spy.layers, spy.reader = network.layers, None
    with monkeypatch.context() as patched:
        patched.setattr(target, "_network", _Called(spy, watched))
        names = [target.open([1, 2]) for _ in range(3)]
        target.score(rows_of(target, list(zip(names, [[4] * 8, [5], [6]], strict=True))))
        target.score(rows_of(target, [(name, [4, 5]) for name in names]))
        for name in names:
            target.free(name)
    assert sizes[-2:] == [(1, 10), (3, 2)]


class _Called:
    """A network that is watched."""

    def __init__(self, network: Any, call: Callable[..., Any]) -> None:
        self._network, self._call = network, call

    def __call__(self, *given: Any, **how: Any) -> Any:
        return self._call(*given, **how)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)


def seeing_all(mask: Any) -> Any:
    """Forget the mask."""
    return mask | True


def seeing_the_last(mask: Any) -> Any:
    """Let rows see what the pass's last row sees."""
    return mask[:, :, -1:].expand_as(mask)


@pytest.mark.parametrize("wrong", [seeing_all, seeing_the_last])
def test_a_forgotten_mask_is_noticed(
    wrong: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison above fails where rows see what is not theirs."""
    from forerun.targets.transformers_pass import Batch

    target, right = target_of("llama"), Batch.mask
    monkeypatch.setattr(Batch, "mask", lambda *given, **how: wrong(right(*given, **how)))
    gap = np.abs(read_at_once(target) - read_one_by_one(target)).max()
    assert gap > 0.01


def shifted(spans: Sequence[Any]) -> Sequence[Any]:
    """Take the keys of the next text."""
    return [*spans[1:], spans[0]]


def without_the_last_key(spans: Sequence[Any]) -> Sequence[Any]:
    """Forget a text's newest key."""
    return [span._replace(keys=max(span.keys - 1, 1)) for span in spans]


@pytest.mark.parametrize("wrong", [shifted, without_the_last_key])
def test_a_network_that_mixes_texts_up_is_not_laid_flat(
    wrong: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found out at load, and rows are laid out as a batch, as before."""
    from forerun.targets import transformers_flat
    from forerun.targets.transformers import TransformersTarget

    with monkeypatch.context() as patched:
        texts = property(lambda spans: spans.given, lambda spans, new: spans.take(new))
        patched.setattr(transformers_flat.Spans, "texts", texts, raising=False)
        patched.setattr(
            transformers_flat.Spans,
            "take",
            lambda spans, new: setattr(spans, "given", wrong(new) if new else new),
            raising=False,
        )
        target = TransformersTarget(tiny_network("llama"))
    assert not target._network.is_flat
    assert not target.capabilities.reads_beside
    assert target.capabilities.trees
    assert target.capabilities.pads
    np.testing.assert_allclose(read_at_once(target), read_one_by_one(target), atol=2e-4)


def test_a_mask_of_heads_is_left_to_the_networks_own_attention() -> None:
    """Heads laid one behind another see what they see side by side; or they stay there."""
    import torch

    from forerun.targets.transformers_flat import PACKED_ROWS, _of_one

    torch.manual_seed(0)
    module = SimpleNamespace(num_key_value_groups=2, is_causal=True)
    module.config = SimpleNamespace(forerun_own="sdpa")
    for rows, heads in ((3, 1), (PACKED_ROWS + 1, 1), (3, 4), (1, 1)):
        query, mask = torch.randn(2, 4, rows, 8), torch.rand(2, heads, rows, 9) > 0.3
        mask[..., 0] = True
        key, value = torch.randn(2, 2, 9, 8), torch.randn(2, 2, 9, 8)
        found = _of_one(module, query, key, value, mask, scaling=0.5)
        expected = torch.nn.functional.scaled_dot_product_attention(
            query, key.repeat_interleave(2, 1), value.repeat_interleave(2, 1), mask, scale=0.5
        )
        torch.testing.assert_close(found, expected.transpose(1, 2), atol=1e-5, rtol=1e-5)


def test_what_changes_later_counts_where_rows_lie_flat() -> None:
    """Weights that the user changes, and an attention module that is put in another's place."""
    import torch

    from forerun.targets.transformers import TransformersTarget

    network = tiny_network("qwen2")
    target = TransformersTarget(network)
    other = tiny_network("qwen2", seed=1)
    with torch.no_grad():
        network.model.layers[0].self_attn.q_proj.weight.mul_(-1.5)
    network.model.layers[1].self_attn = other.model.layers[1].self_attn
    np.testing.assert_allclose(read_at_once(target), read_one_by_one(target), atol=2e-4)
    assert network.config._attn_implementation == "sdpa"
    assert type(network.model.layers[0].self_attn.config) is type(network.config)
