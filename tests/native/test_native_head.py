"""The native head: its twin's results, and row for row the same bits whatever runs beside them."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from forerun import native
from forerun.errors import (
    EngineError,
    ModelFileError,
    OptionError,
    OtherTargetError,
    UnsupportedModelError,
)
from forerun.models.head_file import HeadFile
from forerun.models.model import load_model
from forerun.targets.head import Head, HeadScores
from forerun.targets.native import NativeTarget
from forerun.targets.native_head import NativeHead
from forerun.targets.protocol import Row
from forerun.targets.reference_head import ReferenceHead
from models.random_head import random_head
from models.tiny_gguf import Tiny
from targets.head_cases import (
    HEAD_CASES,
    HeadCase,
    Step,
    alone,
    check_rows_are_exact,
    random_step,
    read,
    together,
)

# Texts may be longer than the spans in which 16-bit values are summed.
CASES = {
    name: case._replace(tiny=replace(case.tiny, context=400)) for name, case in HEAD_CASES.items()
}
CASES |= {
    kind: HeadCase(
        Tiny(width=64, heads=4, head_dim=16, inner=96, quantisation=kind, context=400), kind=kind
    )
    for kind in ("Q4_1", "Q5_0", "Q5_1", "BF16")
}


def make(case: str, folder: Path, threads: int = 2, kv_bits: int = 16) -> NativeHead:
    """A native head of one of the cases."""
    return NativeHead(*CASES[case].make(folder), threads=threads, kv_bits=kv_bits)


def a_mixed_pass(head: Head, seed: int) -> HeadScores:
    """Trees of three sequences in one pass; equal seeds ask the same of any head."""
    random = Random(seed)
    names = [head.open() for _ in range(3)]
    for name, count in zip(names, (0, 31, 141), strict=True):
        if count:
            read(head, name, random, count)
    counts = (3, 17, 9)
    steps = [
        random_step(random, head, n, c, 2 * c // 3) for n, c in zip(names, counts, strict=True)
    ]
    step, _ = together(steps)
    scores = head.score(step.rows, features=step.features, given=step.given)
    for name in names:
        head.free(name)
    return scores


# The same as its twin.


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kv_bits", [16, 32])
def test_scores_are_the_references(tmp_path: Path, case: str, kv_bits: int) -> None:
    """Within rounding on float weights, within that of 8-bit activations on quantised ones."""
    file, model = CASES[case].make(tmp_path)
    head, twin = NativeHead(file, model, threads=2, kv_bits=kv_bits), ReferenceHead(file, model)
    for seed in range(2):
        found, expected = a_mixed_pass(head, seed), a_mixed_pass(twin, seed)
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.shape == theirs.shape
            if "Q" in CASES[case].kind or "Q" in CASES[case].tiny.quantisation:
                assert np.sqrt(np.mean((ours - theirs) ** 2)) < 0.04 * np.sqrt(np.mean(theirs**2))
            else:
                np.testing.assert_allclose(ours, theirs, atol=2e-4 if kv_bits == 32 else 4e-3)


@pytest.mark.model
def test_a_head_of_the_default_model_is_its_twin(tmp_path: Path) -> None:
    """In its real shape, behind the target's real features, of which the laws are near."""
    model = load_model("smollm2")
    file = random_head(tmp_path / "head.gguf", model, size=1000)
    target = NativeTarget(model)
    tokens = list(range(500, 540))
    text = target.open()
    rows = [Row(text, token, i, i - 1) for i, token in enumerate(tokens)]
    hidden = target.score(rows, logits=(), layers=file.facts.layers).hidden
    features = np.concatenate([hidden[layer] for layer in file.facts.layers], axis=1)
    results = []
    for head in (NativeHead(file, model), ReferenceHead(file, model)):
        name = head.open()
        chain = [Row(name, token, i + 1, i - 1) for i, token in enumerate(tokens[1:])]
        results.append(head.score(chain, features=features[:-1]))
    for ours, theirs in zip(*results, strict=True):
        assert np.sqrt(np.mean((ours - theirs) ** 2)) < 0.03 * np.sqrt(np.mean(theirs**2))


# Row-exactness.


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("threads", "kv_bits"), [(1, 16), (2, 16), (2, 32)])
def test_rows_depend_on_their_ancestors_alone(
    tmp_path: Path, case: str, threads: int, kv_bits: int
) -> None:
    """Bit for bit, alone and in any mix of trees, with features and without."""
    head, random = make(case, tmp_path, threads, kv_bits), Random(len(case))
    for _ in range(2):
        check_rows_are_exact(head, random)


@pytest.mark.parametrize("case", CASES)
def test_threads_and_instructions_change_no_bit(tmp_path: Path, case: str, sets: list[str]) -> None:
    """Scores are bit-equal on 1, 2, 3 and 7 threads and every instruction set."""
    file, model = CASES[case].make(tmp_path)
    expected = a_mixed_pass(NativeHead(file, model, threads=1), 3)
    for name in sets:
        native.load().use_instruction_set(name)
        for threads in (1, 2, 3, 7):
            scores = a_mixed_pass(NativeHead(file, model, threads=threads), 3)
            np.testing.assert_array_equal(scores.logits, expected.logits)
            np.testing.assert_array_equal(scores.outputs, expected.outputs)


@pytest.mark.parametrize("length", [2, 31, 33, 64, 150])
@pytest.mark.parametrize("case", ["Q8_0", "one kv head"])
def test_rows_do_not_depend_on_their_history(tmp_path: Path, case: str, length: int) -> None:
    """Splits, dropped guesses, rollbacks and forks leave no trace, over any border of pages."""
    head, random = make(case, tmp_path), Random(length)
    whole = random_step(random, head, head.open(), length)
    chain = [row._replace(position=i + 1, parent=i - 1) for i, row in enumerate(whole.rows)]
    step = Step(chain, whole.features, whole.given)
    expected, output = alone(head, step, length - 1)
    name = head.open()
    while (held := head.length(name)) < length - 1:
        count = random.randrange(1, min(length - held, 40))
        rows = [
            row._replace(sequence=name, parent=i - 1) for i, row in enumerate(chain[held:][:count])
        ]
        head.score(rows, features=whole.features[held : held + count], logits=())
        head.commit(name, range(count))
        guesses = random_step(random, head, name, 5, 0)
        head.score(guesses.rows, given=guesses.given)
        move = random.random()
        if move < 0.3:
            head.rollback(name, random.randrange(held, held + count + 1))
        elif move < 0.6:
            other = head.fork(name)
            read(head, name, random, 3)
            head.free(name)
            name = other
    last = [chain[-1]._replace(sequence=name, parent=-1)]
    scores = head.score(last, features=whole.features[-1:])
    np.testing.assert_array_equal(scores.logits[0], expected)
    np.testing.assert_array_equal(scores.outputs[0], output)


def test_the_sweep_sees_another_row(tmp_path: Path) -> None:
    """Another token, knowledge, position or ancestor makes other scores: the sweeps can fail."""
    head = make("Q8_0", tmp_path)
    name = head.open()
    step = random_step(Random(0), head, name, 3)
    rows = [Row(name, 4 + i, i + 1, i - 1) for i in range(3)]
    base = head.score(rows, features=step.features)
    token = head.score([rows[0]._replace(token=9), *rows[1:]], features=step.features)
    known = head.score(rows, features=step.features[::-1])
    given = head.score(rows, features=step.features[:2], given=base.outputs[1:2])
    shorter = head.score(
        [rows[1]._replace(position=1, parent=-1), rows[2]._replace(position=2, parent=0)],
        features=step.features[1:],
    )
    for other in (token, known, given, shorter):
        assert not np.array_equal(other.logits[-1], base.logits[2])
        assert not np.array_equal(other.outputs[-1], base.outputs[2])
    np.testing.assert_array_equal(given.outputs[:2], base.outputs[:2])


# Wrong use.


@pytest.fixture
def head(tmp_path: Path) -> NativeHead:
    return NativeHead(*HEAD_CASES["Q8_0"].make(tmp_path), context=60)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (Row(9, 0, 1, -1), "sequence 9, which is not open"),
        (Row(0, -1, 1, -1), "token -1 of 300"),
        (Row(0, 300, 1, -1), "token 300 of 300"),
        (Row(0, 1 << 80, 1, -1), f"token {1 << 80} of 300"),
        (Row(0, 0, 0, -1), "stands at 0, its parent asks 1"),
        (Row(0, 0, 2, -1), "stands at 2, its parent asks 1"),
        (Row(0, 0, 1, 0), "parent 0, which is no earlier row"),
        (Row(0, 0, 1, -2), "parent -2, which is no earlier row"),
        (Row(0, 0, 60, -1), "stands at 60 of 60"),
    ],
)
def test_wrong_rows_are_refused(head: NativeHead, row: Row, why: str) -> None:
    """With what is wrong about them; what is right is scored after it."""
    name = head.open()
    features = np.zeros((1, len(head.layers) * 64), np.float32)
    with pytest.raises(EngineError, match=why):
        head.score([row], features=features)
    head.score([Row(name, 0, 1, -1)], features=features)


def test_wrong_inputs_are_refused(head: NativeHead) -> None:
    """Each row needs features of all layers, or one output; asked rows must be there."""
    name = head.open()
    columns = len(head.layers) * head.width
    rows = [Row(name, 1, 1, -1)]
    good = np.zeros((1, columns), np.float32)
    for features, given in (
        (None, None),
        (good, np.zeros((1, head.width), np.float32)),
        (good[:, :-1], None),
        (good[0], None),
        (None, np.zeros((1, head.width + 1), np.float32)),
        (np.zeros((2, columns), np.float32), None),
    ):
        with pytest.raises(EngineError, match="rows"):
            head.score(rows, features=features, given=given)
    for asked in ([1], [-1]):
        with pytest.raises(EngineError, match="Logits of row"):
            head.score(rows, features=good, logits=asked)
    with pytest.raises(EngineError, match="no pending row"):
        head.commit(name, [0])
    head.score(rows, features=good)
    with pytest.raises(EngineError, match="no pending row"):
        head.commit(name, [1])
    with pytest.raises(EngineError, match="Rollback"):
        head.rollback(name, 1)
    for call in (head.fork, head.free, head.length):
        with pytest.raises(EngineError, match="not open"):
            call(99)


def test_inputs_are_taken_as_they_come(head: NativeHead) -> None:
    """Doubles, other strides and read-only arrays: the numbers count."""
    step = random_step(Random(1), head, head.open(), 4, 2)
    base = head.score(step.rows, features=step.features, given=step.given)
    frozen = step.features.copy()
    frozen.flags.writeable = False
    wide = np.repeat(step.given, 2, axis=1)[:, ::2]
    for features, given in ((step.features.astype(np.float64), wide), (frozen, step.given)):
        scores = head.score(step.rows, features=features, given=given)
        np.testing.assert_array_equal(scores.logits, base.logits)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
def test_what_is_not_finite_stays_in_its_row(head: NativeHead, value: float) -> None:
    """A row of such features, or given such an output, spoils no other row, and crashes nothing."""
    step = random_step(Random(2), head, head.open(), 6, 3)
    siblings = [row._replace(position=1, parent=-1) for row in step.rows]
    base = head.score(siblings, features=step.features, given=step.given)
    step.features[1, 7] = value
    step.given[1, 5] = value
    spoilt = head.score(siblings, features=step.features, given=step.given)
    others = [0, 2, 3, 5]
    np.testing.assert_array_equal(spoilt.logits[others], base.logits[others])
    np.testing.assert_array_equal(spoilt.outputs[others], base.outputs[others])
    assert not np.array_equal(spoilt.outputs[[1, 4]], base.outputs[[1, 4]])


def test_what_was_asked_for_is_in_its_order(head: NativeHead) -> None:
    """Logits of some rows, in any order and twice; outputs are always of all rows."""
    step = random_step(Random(4), head, head.open(), 6)
    whole = head.score(step.rows, features=step.features)
    some = head.score(step.rows, features=step.features, logits=[5, 0, 0])
    np.testing.assert_array_equal(some.logits, whole.logits[[5, 0, 0]])
    np.testing.assert_array_equal(some.outputs, whole.outputs)
    none = head.score([])
    assert (none.logits.shape, none.outputs.shape) == ((0, 64), (0, 64))


def test_options_and_targets(tmp_path: Path) -> None:
    """What is out of range, or another target's, is refused."""
    file, model = HeadCase(Tiny()).make(tmp_path)
    for wrong in ({"context": 0}, {"context": 129}, {"threads": 0}, {"kv_bits": 8}):
        with pytest.raises(OptionError, match=next(iter(wrong))):
            NativeHead(file, model, **wrong)
    other = load_model(Tiny(seed=1).write(tmp_path / "other.gguf"))
    with pytest.raises(OtherTargetError):
        NativeHead(file, other)
    forced = NativeHead(file, other, force=True, threads=3)
    assert isinstance(forced, Head)
    assert (forced.threads, forced.context_length, forced.width) == (3, 128, 32)


def test_damaged_weights_are_refused(tmp_path: Path) -> None:
    """Values that are not finite, and types without kernels, before anything is scored."""
    file, model = HeadCase(Tiny(), kind="F32").make(tmp_path)
    sound = file.file.path.read_bytes()
    names = ("layers.0.mlp.up_proj.weight", "layers.0.hidden_norm.weight", "fc.weight")
    for name, stored in [(name, file.file.raw(name).tobytes()) for name in names]:
        data = bytearray(sound)
        start = data.index(stored)
        data[start : start + 4] = np.float32(np.inf).tobytes()
        file.file.path.write_bytes(data)
        with pytest.raises(ModelFileError, match=f"{name}' holds values that are not finite"):
            NativeHead(HeadFile.open(file.file.path), model)
        file.file.path.write_bytes(sound)
    model = load_model(Tiny(width=256, inner=256).write(tmp_path / "tiny.gguf"))
    odd = random_head(tmp_path / "head.gguf", model, kind="TQ1_0")
    with pytest.raises(UnsupportedModelError, match="type TQ1_0"):
        NativeHead(odd, model)
    assert ReferenceHead(odd, model).width == 256


# Beside its target.


def test_the_target_s_embedding_is_shared(tmp_path: Path) -> None:
    """A head beside its target takes no memory for it; without the target it holds it alone."""
    file, model = HeadCase(Tiny(width=64, inner=64, quantisation="Q8_0")).make(tmp_path)
    target = NativeTarget(model)
    head = NativeHead(file, model)
    step = random_step(Random(3), head, head.open(), 5)
    scores = head.score(step.rows, features=step.features)
    del target
    again = head.score(step.rows, features=step.features)
    np.testing.assert_array_equal(again.logits, scores.logits)
    tensors = [name for name in file.file.tensor_names if name not in ("fc.weight",)]
    stored = sum(file.file.nbytes(name) for name in tensors) + 48 * 64 * 34 // 32
    assert head.weight_bytes < 1.5 * stored


def test_texts_and_heads_at_once(tmp_path: Path) -> None:
    """Several Python threads score with a head and its target; each gets its own bits."""
    file, model = HEAD_CASES["Q8_0"].make(tmp_path)
    head, target = NativeHead(file, model, threads=2), NativeTarget(model, threads=2)
    step = random_step(Random(5), head, head.open(), 12)
    expected = head.score(step.rows, features=step.features).logits
    name = target.open([1, 2, 3])
    logits = target.score([Row(name, 4, 3, -1)]).logits

    def drafts(_: int) -> bool:
        own = head.open()
        rows = [row._replace(sequence=own) for row in step.rows]
        found = [head.score(rows, features=step.features).logits for _ in range(20)]
        return all(np.array_equal(each, expected) for each in found)

    def passes(_: int) -> bool:
        own = target.fork(name)
        found = [target.score([Row(own, 4, 3, -1)]).logits for _ in range(20)]
        return all(np.array_equal(each, logits) for each in found)

    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(work, i) for i in range(4) for work in (drafts, passes)]
        assert all(each.result() for each in done)


def test_a_forked_process_goes_on(head: NativeHead) -> None:
    """The child has threads of its own, and gets the same bits."""
    step = random_step(Random(6), head, head.open(), 5)
    expected = head.score(step.rows, features=step.features).logits
    child = os.fork()
    if child == 0:
        is_same = False
        try:
            found = head.score(step.rows, features=step.features).logits
            is_same = bool(np.array_equal(found, expected))
        finally:
            os._exit(0 if is_same else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_given_is_what_a_row_came_to(tmp_path: Path) -> None:
    """A chain of guesses, level by level, is the same whether its rows are kept or scored anew."""
    head = make("Q8_0", tmp_path)
    random = Random(7)
    name = head.open()
    read(head, name, random, 10)
    first = random_step(random, head, name, 1)
    scores = head.score(first.rows, features=first.features)
    outputs: list[NDArray[np.float32]] = [scores.outputs]
    head.commit(name, [0])
    for level in range(3):
        row = Row(name, 20 + level, head.length(name) + 1, -1)
        scores = head.score([row], given=outputs[-1])
        outputs.append(scores.outputs)
        head.commit(name, [0])
    head.rollback(name, 10)
    rows = [first.rows[0], *(Row(name, 20 + i, 12 + i, i) for i in range(3))]
    known = np.concatenate(outputs[:-1])
    again = head.score(rows, features=first.features, given=known)
    np.testing.assert_array_equal(again.outputs, np.concatenate(outputs))
