"""The reference target: what a row sees, and that nothing else ever touches it."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from forerun.errors import CapabilityError, EngineError, OptionError, PromptError
from forerun.models.model import Model, load_model
from forerun.targets import reference_weights
from forerun.targets.protocol import Row, Target
from forerun.targets.reference import ReferenceTarget
from models.tiny_gguf import Tiny
from targets.row_cases import (
    CASES,
    alone,
    as_rows,
    check_mix,
    check_splits,
    make_target,
    path_to,
    random_tokens,
    random_tree,
)


@pytest.fixture
def target(tmp_path: Path) -> ReferenceTarget:
    return make_target("llama", tmp_path)


@pytest.fixture(scope="module")
def default_target() -> ReferenceTarget:
    return ReferenceTarget(load_model("smollm2"))


def test_is_a_target(target: ReferenceTarget) -> None:
    """It keeps the protocol and says what it promises."""
    assert isinstance(target, Target)
    assert target.capabilities.trees
    assert target.capabilities.exactness == "bitwise"
    assert (target.vocab_size, target.context_length) == (300, 300)
    parameters = sum(values.size for values in CASES["llama"].all_tensors().values())
    assert target.weight_bytes == 4 * parameters


# What a row sees.


def dense_logits(
    tiny: Tiny, tokens: Sequence[int], positions: Sequence[int], sees: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """The network once more, in float64, all rows at once under an explicit mask."""
    weights = {name: value.astype(np.float64) for name, value in tiny.all_tensors().items()}
    neighbours = tiny.architecture in ("llama", "smollm3")
    turning = int(str(tiny.metadata.get("llama.rope.dimension_count", tiny.head_dim)))
    factors = np.array(tiny.rope_factors or [1.0] * (turning // 2))
    angles = np.outer(
        positions, tiny.rope_base ** (-2 * np.arange(turning // 2) / turning) / factors
    )

    def norm(x: NDArray[np.float64], name: str) -> NDArray[np.float64]:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * weights[name]

    def turned(x: NDArray[np.float64]) -> NDArray[np.float64]:
        even, odd = np.arange(0, turning, 2), np.arange(1, turning, 2)
        if not neighbours:
            even, odd = np.arange(turning // 2), np.arange(turning // 2, turning)
        spun = (x[..., even] + 1j * x[..., odd]) * np.exp(1j * angles)[:, None, :]
        result = x.copy()
        result[..., even], result[..., odd] = spun.real, spun.imag
        return result

    x = weights["token_embd.weight"][list(tokens)]
    for layer in range(tiny.layers):
        name = f"blk.{layer}."
        normed = norm(x, name + "attn_norm.weight")
        q, k, v = (
            (normed @ weights[f"{name}attn_{letter}.weight"].T
             + weights.get(f"{name}attn_{letter}.bias", 0.0)).reshape(len(x), -1, tiny.head_dim)
            for letter in "qkv"
        )  # fmt: skip
        if tiny.architecture == "qwen3":
            q, k = norm(q, name + "attn_q_norm.weight"), norm(k, name + "attn_k_norm.weight")
        if tiny.architecture != "smollm3" or layer % 4 != 3:
            q, k = turned(q), turned(k)
        group = tiny.heads // tiny.kv_heads
        k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
        scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(tiny.head_dim)
        scores = np.where(sees, scores, -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        attended = np.einsum("hij,jhd->ihd", scores / scores.sum(-1, keepdims=True), v)
        x = x + attended.reshape(len(x), -1) @ weights[name + "attn_output.weight"].T
        normed = norm(x, name + "ffn_norm.weight")
        gate, up = (normed @ weights[f"{name}ffn_{which}.weight"].T for which in ("gate", "up"))
        x = x + (gate / (1 + np.exp(-gate)) * up) @ weights[name + "ffn_down.weight"].T
    head = weights.get("output.weight", weights["token_embd.weight"])
    return norm(x, "output_norm.weight") @ head.T


@pytest.mark.parametrize("case", [name for name in CASES if name != "quantised"])
@pytest.mark.parametrize("seed", range(3))
def test_rows_see_their_ancestors_only(tmp_path: Path, case: str, seed: int) -> None:
    """A tree's logits are those of a plain network under the mask: prompt, ancestors, self."""
    target, random = make_target(case, tmp_path), Random(seed)
    prompt = random_tokens(random, target.vocab_size, random.choice((0, 1, 2, 30)))
    nodes = random_tree(random, target.vocab_size, 12)
    sequence = target.open(prompt)
    rows = as_rows(sequence, len(prompt), nodes)
    count = len(prompt) + len(nodes)
    sees = np.tri(count, dtype=bool)
    sees[len(prompt) :, len(prompt) :] = False
    for node in range(len(nodes)):
        for ancestor in path_to(nodes, node):
            sees[len(prompt) + node, len(prompt) + ancestor] = True
    tokens = [*prompt, *(token for token, _ in nodes)]
    positions = [*range(len(prompt)), *(row.position for row in rows)]
    expected = dense_logits(CASES[case], tokens, positions, sees)
    np.testing.assert_allclose(target.score(rows).logits, expected[len(prompt) :], atol=2e-4)


def test_hidden_states_are_the_residual_stream(tmp_path: Path) -> None:
    """Layer 0's is the embedding; a model cut to n layers ends where the whole enters layer n."""
    path = CASES["stretched"].write(tmp_path / "tiny.gguf")
    whole, cut = ReferenceTarget(load_model(path)), ReferenceTarget(load_model(path, layers=2))
    first, second = whole.open(), cut.open()
    scores = whole.score(as_rows(first, 0, [(5, -1), (6, 0), (7, 0)]), layers=[0, 2, 3])
    short = cut.score(as_rows(second, 0, [(5, -1), (6, 0), (7, 0)]), layers=[2])
    embedding = CASES["stretched"].all_tensors()["token_embd.weight"]
    np.testing.assert_array_equal(scores.hidden[0], embedding[[5, 6, 7]])
    np.testing.assert_array_equal(scores.hidden[2], short.hidden[2])
    assert not np.array_equal(scores.hidden[2], scores.hidden[3])
    assert list(scores.hidden) == [0, 2, 3]


def test_logits_only_where_asked(target: ReferenceTarget) -> None:
    """Logits come in the order they are asked for; none may be asked for."""
    sequence = target.open([1, 2, 3])
    rows = as_rows(sequence, 3, [(4, -1), (5, 0), (6, 1)])
    every = target.score(rows).logits
    assert every.shape == (3, 300)
    assert every.dtype == np.float32
    np.testing.assert_array_equal(target.score(rows, logits=[2, 0, 2]).logits, every[[2, 0, 2]])
    assert target.score(rows, logits=[]).logits.shape == (0, 300)
    assert target.score([], layers=[1]).logits.shape == (0, 300)


# Row-exactness.


@pytest.mark.parametrize("case", CASES)
def test_rows_do_not_depend_on_their_pass(tmp_path: Path, case: str) -> None:
    """Logits are bit-equal alone and in any mix of trees of any size and order."""
    target, random = make_target(case, tmp_path), Random(len(case))
    for _ in range(8):
        check_mix(target, random, longest=80, largest=40)


@pytest.mark.model
def test_default_models_rows_do_not_depend_on_their_pass(default_target: ReferenceTarget) -> None:
    """The same on the default model."""
    random = Random(2)
    for _ in range(2):
        check_mix(default_target, random, longest=40, largest=8)


@pytest.mark.model
@pytest.mark.slow
def test_default_models_rows_over_many_mixes(default_target: ReferenceTarget) -> None:
    """The same over larger mixes and longer contexts."""
    random = Random(3)
    for _ in range(6):
        check_mix(default_target, random, longest=400, largest=40)


@pytest.mark.parametrize("case", CASES)
def test_rows_do_not_depend_on_their_history(tmp_path: Path, case: str) -> None:
    """Prefill splits, dropped branches, rollbacks and forks leave no trace, bit for bit."""
    target, random = make_target(case, tmp_path), Random(len(case))
    for length in (2, 20, 120):
        check_splits(target, random, length)


@pytest.mark.model
def test_default_models_rows_do_not_depend_on_history(default_target: ReferenceTarget) -> None:
    """The same on the default model."""
    check_splits(default_target, Random(1), 16)


@pytest.mark.model
@pytest.mark.slow
def test_default_models_rows_over_long_histories(default_target: ReferenceTarget) -> None:
    """The same over texts longer than one prefill pass."""
    check_splits(default_target, Random(0), 270)


def test_long_prompts_are_read_in_parts(target: ReferenceTarget) -> None:
    """A prompt longer than one prefill pass gives what its tokens give one by one."""
    tokens = random_tokens(Random(0), 300, 290)
    whole = target.open(tokens[:-1])
    row = as_rows(whole, 289, [(tokens[-1], -1)])
    np.testing.assert_array_equal(target.score(row).logits[0], alone(target, [], tokens))


# Sequences.


def test_only_what_is_committed_stays(target: ReferenceTarget) -> None:
    """Length grows by what is committed, and what is not is dropped by the next pass."""
    sequence = target.open([1, 2, 3])
    rows = as_rows(sequence, 3, [(4, -1), (5, 0), (6, 0)])
    target.score(rows)
    assert target.length(sequence) == 3
    target.commit(sequence, [0, 2])
    assert target.length(sequence) == 5
    with pytest.raises(EngineError, match="no pending row"):
        target.commit(sequence, [0])
    target.commit(sequence, [])
    assert target.length(sequence) == 5


def test_another_sequences_pass_drops_nothing(target: ReferenceTarget) -> None:
    """Rows stay pending while other sequences are scored, opened and forked."""
    first, second = target.open([1, 2]), target.open([3])
    target.score(as_rows(first, 2, [(7, -1), (8, 0)]))
    target.score(as_rows(second, 1, [(9, -1)]))
    fork = target.fork(first)
    target.commit(first, [0, 1])
    assert (target.length(first), target.length(fork), target.length(second)) == (4, 2, 1)
    row = as_rows(first, 4, [(5, -1)])
    np.testing.assert_array_equal(target.score(row).logits[0], alone(target, [1, 2, 7, 8], [5]))


@pytest.mark.parametrize("path", [[1], [0, 0], [0, 3], [2, 1], [9], [-1], [0, 1, 2]])
def test_only_a_path_can_be_kept(target: ReferenceTarget, path: list[int]) -> None:
    """Rows that are no path from the committed end cannot be committed, and nothing changes."""
    sequence = target.open([1])
    target.score(as_rows(sequence, 1, [(4, -1), (5, 0), (6, 0), (7, 2)]))
    with pytest.raises(EngineError):
        target.commit(sequence, path)
    assert target.length(sequence) == 1
    target.commit(sequence, [0, 2, 3])
    assert target.length(sequence) == 4


def test_rolled_back_rows_are_gone(target: ReferenceTarget) -> None:
    """Rollback drops pending rows and committed ones, and cannot go forwards."""
    sequence = target.open([1, 2, 3])
    target.score(as_rows(sequence, 3, [(4, -1)]))
    target.rollback(sequence, 3)
    with pytest.raises(EngineError):
        target.commit(sequence, [0])
    target.rollback(sequence, 1)
    assert target.length(sequence) == 1
    for length in (2, -1):
        with pytest.raises(EngineError, match=f"Rollback to {length} of 1"):
            target.rollback(sequence, length)


def test_freed_names_are_unknown(target: ReferenceTarget) -> None:
    """A freed sequence's name is never used again."""
    sequence = target.open([1])
    target.free(sequence)
    for use in (target.length, target.free, target.fork):
        with pytest.raises(EngineError, match="is not open"):
            use(sequence)
    assert target.open() != sequence


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([Row(9, 1, 2, -1)], "sequence 9"),
        ([Row(0, 300, 2, -1)], "token 300"),
        ([Row(0, -1, 2, -1)], "token -1"),
        ([Row(0, 1, 3, -1)], "stands at 3"),
        ([Row(0, 1, 2, 0)], "parent 0"),
        ([Row(0, 1, 2, -1), Row(0, 1, 2, 0)], "stands at 2"),
    ],
)
def test_impossible_rows(target: ReferenceTarget, rows: list[Row], reason: str) -> None:
    """A wrong row is refused before anything is touched."""
    sequence = target.open([1, 2])
    target.score(as_rows(sequence, 2, [(5, -1)]))
    with pytest.raises(EngineError, match=reason):
        target.score(rows)
    target.commit(sequence, [0])


def test_impossible_questions(target: ReferenceTarget) -> None:
    """Logits of rows, and hidden states of layers, that are not there are refused."""
    row = [Row(target.open(), 1, 0, -1)]
    for logits in ([1], [-1]):
        with pytest.raises(EngineError, match="Logits of row"):
            target.score(row, logits=logits)
    for layers in ([3], [-1]):
        with pytest.raises(EngineError, match="Hidden states of layer"):
            target.score(row, layers=layers)


def test_the_context_has_an_end(tmp_path: Path) -> None:
    """Prompts and rows beyond the context are refused; up to its end they are not."""
    model = load_model(CASES["llama"].write(tmp_path / "tiny.gguf"))
    target = ReferenceTarget(model, context=5)
    assert target.context_length == 5
    with pytest.raises(PromptError, match="6 tokens, the context 5"):
        target.open([1] * 6)
    sequence = target.open([1, 2, 3, 4])
    target.score(as_rows(sequence, 4, [(1, -1)]))
    with pytest.raises(EngineError, match="Row 1 stands at 5 of 5"):
        target.score(as_rows(sequence, 4, [(1, -1), (1, 0)]))
    for context in (0, 301, -1):
        with pytest.raises(OptionError, match="was trained for 300"):
            ReferenceTarget(model, context=context)


def test_wrong_prompts(target: ReferenceTarget) -> None:
    """Unknown tokens and encoder inputs are refused, and leave no sequence behind."""
    for token in (300, -1):
        with pytest.raises(PromptError, match=f"token {token} of 300"):
            target.open([1, token])
    with pytest.raises(CapabilityError, match="no encoder"):
        target.open([1], source=[1])
    assert not target._sequences


def test_an_interrupted_open_leaves_nothing(
    target: ReferenceTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C during a prefill frees the sequence that nobody could name."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(target, "score", interrupt)
    with pytest.raises(KeyboardInterrupt):
        target.open([1, 2])
    assert not target._sequences


# Weights.


def test_targets_of_one_file_share_weights(tmp_path: Path) -> None:
    """A model and its first layers hold the same arrays; with the last target they are freed."""
    path = CASES["stretched"].write(tmp_path / "tiny.gguf")
    cut = ReferenceTarget(load_model(path, layers=1))
    whole = ReferenceTarget(load_model(path))
    assert whole._layers[0] is cut._layers[0]
    assert whole._ends is cut._ends
    assert cut.weight_bytes < whole.weight_bytes
    identity = whole.model.file.identity
    del cut, whole
    gc.collect()
    assert not any(key[0] == identity for key in reference_weights._live_layers)
    assert identity not in reference_weights._live_ends


def test_another_file_shares_nothing(tmp_path: Path) -> None:
    """A file that replaces another under its name brings its own weights."""
    path = Tiny(seed=1).write(tmp_path / "tiny.gguf")
    old = ReferenceTarget(load_model(path))
    path.unlink()
    new = ReferenceTarget(load_model(Tiny(seed=2).write(path)))
    assert new._layers[0] is not old._layers[0]


@pytest.mark.model
def test_first_layers_are_another_model(default_target: ReferenceTarget) -> None:
    """The default model's first layers have its vocabulary and a law of their own."""
    model: Model = default_target.model
    cut = ReferenceTarget(model.cut(4))
    first, second = default_target.open([1, 2]), cut.open([1, 2])
    one = default_target.score(as_rows(first, 2, [(3, -1)]), layers=[4])
    other = cut.score(as_rows(second, 2, [(3, -1)]), layers=[4])
    assert one.logits.shape == other.logits.shape == (1, 49152)
    assert not np.array_equal(one.logits, other.logits)
    np.testing.assert_array_equal(one.hidden[4], other.hidden[4])
    default_target.free(first)
