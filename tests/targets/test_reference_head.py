"""The reference head: the formulas of its page, row for row the same bits whatever runs beside."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from forerun.errors import EngineError, OptionError, OtherTargetError
from forerun.models.head_file import HEAD, HeadFile
from forerun.models.model import Model, load_model
from forerun.targets.head import Head
from forerun.targets.protocol import Row
from forerun.targets.reference import ReferenceTarget
from forerun.targets.reference_head import ReferenceHead
from models.tiny_gguf import Tiny
from targets.head_cases import HEAD_CASES, HeadCase, check_rows_are_exact, random_step, read

Doubles = NDArray[np.float64]


@pytest.fixture(params=HEAD_CASES)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[HeadFile, Model]:
    return HEAD_CASES[request.param].make(tmp_path)


def judge(
    head: HeadFile, model: Model, tokens: list[int], features: Doubles
) -> tuple[Doubles, Doubles]:
    """Logits and outputs of a chain of rows, in 64 bits, all positions at once, no cache."""
    network = model.architecture
    w = {name: head.file.tensor(name).astype(np.float64) for name in head.file.tensor_names}
    layer = {name.removeprefix("layers.0."): each for name, each in w.items()}

    def rms(x: Doubles, weight: Doubles) -> Doubles:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + network.norm_epsilon) * weight

    embedding = model.file.tensor("token_embd.weight").astype(np.float64)
    g = features @ w["fc.weight"].T
    e = rms(embedding[tokens], layer["input_layernorm.weight"])
    both = np.concatenate([e, rms(g, layer["hidden_norm.weight"])], -1)
    q, k, v = (
        (both @ layer[f"self_attn.{x}_proj.weight"].T).reshape(len(tokens), -1, network.head_dim)
        for x in "qkv"
    )
    angles = np.outer(np.arange(1, len(tokens) + 1), network.rope.frequencies())
    pairs = network.rope.dimension // 2
    for x in (q, k):
        if network.rope.interleaved:
            one, two = x[..., 0 : 2 * pairs : 2], x[..., 1 : 2 * pairs : 2]
        else:
            one, two = x[..., :pairs], x[..., pairs : 2 * pairs]
        turned = (one + 1j * two) * np.exp(1j * angles)[:, None]
        one[...], two[...] = turned.real, turned.imag
    group = network.num_heads // network.num_kv_heads
    k, v = (np.repeat(x, group, axis=1) for x in (k, v))
    scores = np.einsum("ihd,jhd->hij", q, k) / network.head_dim**0.5
    scores[:, np.triu(np.ones(scores.shape[1:], bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    heads = np.einsum("hij,jhd->ihd", weights, v).reshape(len(tokens), -1)
    h = g + heads @ layer["self_attn.o_proj.weight"].T
    normed = rms(h, layer["post_attention_layernorm.weight"])
    gate = normed @ layer["mlp.gate_proj.weight"].T
    inner = gate / (1 + np.exp(-gate)) * (normed @ layer["mlp.up_proj.weight"].T)
    x = h + inner @ layer["mlp.down_proj.weight"].T
    name = "token_embd.weight" if network.is_tied else "output.weight"
    rows = w[HEAD] if HEAD in w else model.file.tensor(name)[head.facts.tokens]
    return rms(x, w["norm.weight"]) @ rows.T, x


def test_a_head_computes_its_formulas(case: tuple[HeadFile, Model]) -> None:
    """A chain's logits and outputs are those of the formulas in 64 bits, within 32 bits' error."""
    head, model = case
    twin = ReferenceHead(head, model)
    random = Random(1)
    sequence = twin.open()
    step = random_step(random, twin, sequence, 40)
    rows = [row._replace(position=i + 1, parent=i - 1) for i, row in enumerate(step.rows)]
    scores = twin.score(rows, features=step.features)
    tokens = [row.token for row in rows]
    expected = judge(head, model, tokens, step.features.astype(np.float64))
    for own, right in zip(scores, expected, strict=True):
        assert own.shape == right.shape
        np.testing.assert_allclose(own, right, atol=2e-4, rtol=2e-4)


def test_a_row_may_be_given_what_stands_for_its_features(case: tuple[HeadFile, Model]) -> None:
    """To be given a product of features is to have them, to the bit."""
    head, model = case
    twin = ReferenceHead(head, model)
    sequence = twin.open()
    step = random_step(Random(2), twin, sequence, 9)
    g = twin._fuse(step.features)
    scores = twin.score(step.rows, features=step.features)
    for count in (0, 4, 9):
        other = twin.score(step.rows, features=step.features[:count], given=g[count:])
        np.testing.assert_array_equal(other.logits, scores.logits)
        np.testing.assert_array_equal(other.outputs, scores.outputs)


def test_rows_depend_on_their_ancestors_alone(case: tuple[HeadFile, Model]) -> None:
    """Bit for bit, whatever is scored in the same pass."""
    check_rows_are_exact(ReferenceHead(*case), Random(3))


@pytest.fixture
def head(tmp_path: Path) -> ReferenceHead:
    return ReferenceHead(*HEAD_CASES["Q8_0"].make(tmp_path), context=60)


def test_what_was_asked_for_is_in_its_order(head: ReferenceHead) -> None:
    """Logits of some rows, in any order and twice; outputs are always of all rows."""
    step = random_step(Random(4), head, head.open(), 6)
    whole = head.score(step.rows, features=step.features)
    some = head.score(step.rows, features=step.features, logits=[5, 0, 0])
    np.testing.assert_array_equal(some.logits, whole.logits[[5, 0, 0]])
    np.testing.assert_array_equal(some.outputs, whole.outputs)
    none = head.score([], logits=[])
    assert (none.logits.shape, none.outputs.shape) == ((0, 64), (0, 64))


def test_only_committed_rows_are_seen(head: ReferenceHead) -> None:
    """Rows that were not kept, were rolled back, or are another fork's, leave no trace."""
    random = Random(5)
    first, second = head.open(), head.open()
    step = random_step(random, head, first, 7)
    chain = [row._replace(position=i + 1, parent=i - 1) for i, row in enumerate(step.rows)]
    head.score(chain, features=step.features)
    head.commit(first, range(7))
    moved = [row._replace(sequence=second) for row in chain]
    head.score(moved[:3], features=step.features[:3])
    head.commit(second, range(3))
    fork = head.fork(first)
    read(head, fork, random, 5)
    head.rollback(first, 3)
    assert [head.length(name) for name in (first, second, fork)] == [3, 3, 12]
    last = random_step(random, head, first, 4)
    scores = head.score(last.rows, features=last.features)
    again = [row._replace(sequence=second) for row in last.rows]
    np.testing.assert_array_equal(head.score(again, features=last.features).logits, scores.logits)
    head.free(fork)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (Row(9, 0, 1, -1), "sequence 9, which is not open"),
        (Row(0, -1, 1, -1), "token -1 of 300"),
        (Row(0, 300, 1, -1), "token 300 of 300"),
        (Row(0, 0, 0, -1), "stands at 0, its parent asks 1"),
        (Row(0, 0, 2, -1), "stands at 2, its parent asks 1"),
        (Row(0, 0, 1, 0), "parent 0, which is no earlier row"),
        (Row(0, 0, 60, -1), "stands at 60 of 60"),
    ],
)
def test_wrong_rows_are_refused(head: ReferenceHead, row: Row, why: str) -> None:
    """With what is wrong about them."""
    head.open()
    features = np.zeros((1, 3 * 64 if len(head.layers) == 3 else 2 * 64), np.float32)
    with pytest.raises(EngineError, match=why):
        head.score([row], features=features)


def test_wrong_inputs_are_refused(head: ReferenceHead) -> None:
    """Each row needs features of all layers, or one output; asked rows must be there."""
    sequence = head.open()
    columns = len(head.layers) * head.width
    rows = [Row(sequence, 1, 1, -1)]
    good = np.zeros((1, columns), np.float32)
    bad = [
        (None, None),
        (good, np.zeros((1, head.width), np.float32)),
        (good[:, :-1], None),
        (good[0], None),
        (None, np.zeros((1, head.width + 1), np.float32)),
        (np.zeros((2, columns), np.float32), None),
    ]
    for features, given in bad:
        with pytest.raises(EngineError, match=r"rows"):
            head.score(rows, features=features, given=given)
    for asked in ([1], [-1]):
        with pytest.raises(EngineError, match="Logits of row"):
            head.score(rows, features=good, logits=asked)
    head.score(rows, features=good)
    with pytest.raises(EngineError, match="no pending row"):
        head.commit(sequence, [1])
    with pytest.raises(EngineError, match="Rollback"):
        head.rollback(sequence, 1)
    for call in (head.fork, head.free, head.length):
        with pytest.raises(EngineError, match="not open"):
            call(99)


def test_a_head_is_for_its_target(tmp_path: Path) -> None:
    """Another target's needs force; a context is the model's or less."""
    case = HeadCase(Tiny())
    file, model = case.make(tmp_path)
    other = load_model(Tiny(seed=1).write(tmp_path / "other.gguf"))
    with pytest.raises(OtherTargetError):
        ReferenceHead(file, other)
    assert ReferenceHead(file, other, force=True).context_length == 128
    assert isinstance(ReferenceHead(file, model, context=7), Head)
    for context in (0, 129):
        with pytest.raises(OptionError, match="Choose 1 to 128"):
            ReferenceHead(file, model, context=context)


def test_the_target_s_embedding_is_shared(tmp_path: Path) -> None:
    """A head beside its target holds no second copy."""
    file, model = HeadCase(Tiny()).make(tmp_path)
    target = ReferenceTarget(model)
    assert ReferenceHead(file, model)._ends is target._ends
