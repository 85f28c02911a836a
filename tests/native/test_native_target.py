"""The native target: its twin's logits, and row for row the same bits whatever runs beside them."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from forerun import native
from forerun.api import load
from forerun.errors import (
    CapabilityError,
    EngineError,
    ModelFileError,
    OptionError,
    PromptError,
    UnsupportedModelError,
)
from forerun.models.gguf_file import GGUFFile
from forerun.models.model import load_model
from forerun.targets.checks import check_rows
from forerun.targets.native import NativeTarget
from forerun.targets.protocol import Row, Scores, Target
from forerun.targets.reference import ReferenceTarget
from forerun.targets.stored_blocks import BLOCKS
from models.stored_weights import K_TYPES
from models.tiny_gguf import Tiny
from targets.row_cases import (
    CASES,
    alone,
    as_rows,
    check_mix,
    check_splits,
    mixed,
    random_tokens,
    random_tree,
)

Array = NDArray[np.float32]

# Every type with kernels, and a head of 128 components; inputs of whole groups of 32 or not.
_ALL = {
    **CASES,
    **{
        kind: Tiny(vocab_size=317, width=64, heads=4, head_dim=16, inner=96, quantisation=kind)
        for kind in ("Q4_0", "Q5_0", "Q5_1", "Q8_0", "F16", "BF16")
    },
    **{
        kind: Tiny(vocab_size=317, width=256, heads=4, head_dim=64, inner=256, quantisation=kind)
        for kind in K_TYPES
    },
    "mixed": Tiny(
        width=256,
        heads=4,
        head_dim=64,
        inner=96,
        quantisation="Q4_K",
        types={
            "token_embd": "Q6_K",
            "attn_v": "Q6_K",
            "attn_k": "Q5_1",
            "ffn_up": "Q5_K",
            "ffn_down": "Q5_0",
        },
    ),
    "wide heads": Tiny(width=96, heads=3, kv_heads=1, head_dim=128, inner=64, quantisation="Q4_1"),
    "many heads": Tiny(width=40, heads=14, kv_heads=2, head_dim=20, inner=40),
}
# Texts may be longer than the spans in which 16-bit values are summed.
ALL = {name: replace(tiny, context=400) for name, tiny in _ALL.items()}


def make(case: str, folder: Path, threads: int = 2, kv_bits: int = 16) -> NativeTarget:
    """A native target of one of the cases."""
    model = load_model(ALL[case].write(folder / "tiny.gguf"))
    return NativeTarget(model, threads=threads, kv_bits=kv_bits)


# The same as its twin.


def both(
    targets: Sequence[Target], prompt: list[int], nodes: list[tuple[int, int]]
) -> list[Scores]:
    """The same tree after the same prompt, scored by each target."""
    results = []
    for target in targets:
        sequence = target.open(prompt)
        results.append(target.score(as_rows(sequence, len(prompt), nodes), layers=[0, 1]))
        target.free(sequence)
    return results


@pytest.mark.parametrize("case", ALL)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kv_bits", [16, 32])
def test_logits_are_the_references(tmp_path: Path, case: str, seed: int, kv_bits: int) -> None:
    """Within rounding on float weights, within that of 8-bit activations on quantised ones."""
    target, random = make(case, tmp_path, kv_bits=kv_bits), Random(seed)
    twin = ReferenceTarget(target.model)
    prompt = random_tokens(random, target.vocab_size, random.choice((0, 1, 31, 33, 127, 140)))
    nodes = random_tree(random, target.vocab_size, random.choice((1, 12, 40)))
    found, expected = both([target, twin], prompt, nodes)
    pairs = [(found.logits, expected.logits), (found.hidden[1], expected.hidden[1])]
    for ours, theirs in pairs:
        if "Q" in ALL[case].quantisation:
            assert np.sqrt(np.mean((ours - theirs) ** 2)) < 0.04 * np.sqrt(np.mean(theirs**2))
        else:
            np.testing.assert_allclose(ours, theirs, atol=1e-4 if kv_bits == 32 else 2e-3)
    np.testing.assert_array_equal(found.hidden[0], expected.hidden[0])


_MATRICES = ("token_embd", "attn_q", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


@pytest.mark.parametrize("name", _MATRICES)
@pytest.mark.parametrize("kinds", [("Q8_0", "F16"), ("F16", "Q8_0")])
def test_one_matrix_of_another_kind_is_no_trouble(
    tmp_path: Path, name: str, kinds: tuple[str, str]
) -> None:
    """Floats among quantised weights find the rows' floats, and the other way round."""
    rest, one = kinds
    tiny = Tiny(
        width=128, heads=4, kv_heads=2, head_dim=32, inner=96, quantisation=rest, types={name: one}
    )
    model = load_model(tiny.write(tmp_path / "tiny.gguf"))
    nodes = [(5, -1), (6, 0), (7, 0)]
    found, expected = both([NativeTarget(model, threads=2), ReferenceTarget(model)], [1, 2], nodes)
    difference = np.sqrt(np.mean((found.logits - expected.logits) ** 2))
    assert difference < 0.04 * np.sqrt(np.mean(expected.logits**2))


def test_hidden_states_are_the_residual_stream(tmp_path: Path) -> None:
    """A model cut to n layers ends, to the bit, where the whole enters layer n."""
    path = CASES["stretched"].write(tmp_path / "tiny.gguf")
    whole, cut = NativeTarget(load_model(path)), NativeTarget(load_model(path, layers=2))
    first, second = whole.open(), cut.open()
    nodes = [(5, -1), (6, 0), (7, 0)]
    scores = whole.score(as_rows(first, 0, nodes), layers=[0, 3, 2, 3])
    short = cut.score(as_rows(second, 0, nodes), layers=[2])
    np.testing.assert_array_equal(scores.hidden[2], short.hidden[2])
    assert not np.array_equal(scores.hidden[2], scores.hidden[3])
    assert list(scores.hidden) == [0, 3, 2]


# Row-exactness.


@pytest.mark.parametrize("case", ALL)
@pytest.mark.parametrize(("threads", "kv_bits"), [(1, 16), (2, 16), (2, 32)])
def test_rows_do_not_depend_on_their_pass(
    tmp_path: Path, case: str, threads: int, kv_bits: int
) -> None:
    """Logits are bit-equal alone and in any mix of trees of any size and order."""
    target, random = make(case, tmp_path, threads, kv_bits), Random(len(case))
    for _ in range(8):
        check_mix(target, random, longest=80, largest=40)


@pytest.mark.parametrize("case", ALL)
@pytest.mark.parametrize(("threads", "kv_bits"), [(1, 16), (2, 16), (2, 32)])
def test_rows_do_not_depend_on_their_history(
    tmp_path: Path, case: str, threads: int, kv_bits: int
) -> None:
    """Prefill splits, dropped branches, rollbacks and forks leave no trace, bit for bit."""
    target, random = make(case, tmp_path, threads, kv_bits), Random(len(case))
    for length in (2, 33, 64, 150):
        check_splits(target, random, length)


def a_mixed_pass(target: NativeTarget, seed: int) -> Scores:
    """Trees of three sequences in one pass; equal seeds ask the same of any target."""
    random = Random(seed)
    prompts = [random_tokens(random, target.vocab_size, size) for size in (0, 31, 141)]
    trees = [random_tree(random, target.vocab_size, size) for size in (3, 17, 9)]
    names = [target.open(prompt) for prompt in prompts]
    parts = zip(names, prompts, trees, strict=True)
    rows, _ = mixed(random, [as_rows(n, len(p), t) for n, p, t in parts])
    scores = target.score(rows, layers=[1])
    for name in names:
        target.free(name)
    return scores


@pytest.mark.parametrize("case", ALL)
def test_threads_and_instructions_change_no_bit(tmp_path: Path, case: str, sets: list[str]) -> None:
    """Logits and hidden states are bit-equal on 1, 2, 3 and 7 threads and every instruction set."""
    expected = a_mixed_pass(make(case, tmp_path, threads=1), len(case))
    for name in sets:
        native.load().use_instruction_set(name)
        for threads in (1, 2, 3, 7):
            target = NativeTarget(load_model(tmp_path / "tiny.gguf"), threads=threads)
            scores = a_mixed_pass(target, len(case))
            np.testing.assert_array_equal(scores.logits, expected.logits)
            np.testing.assert_array_equal(scores.hidden[1], expected.hidden[1])


def test_the_sweep_sees_another_row(tmp_path: Path) -> None:
    """A row with another ancestor, position or token has other logits: the sweeps can fail."""
    target = make("llama", tmp_path)
    logits = alone(target, [1, 2, 3], [4])
    for prompt, tokens in (([9, 2, 3], [4]), ([1, 2], [4]), ([1, 2, 3], [5]), ([2, 1, 3], [4])):
        assert not np.array_equal(alone(target, prompt, tokens), logits)


def test_long_prompts_are_read_in_parts(tmp_path: Path) -> None:
    """A prompt longer than one prefill pass gives what its tokens give one by one."""
    target = make("llama", tmp_path)
    tokens = random_tokens(Random(0), 300, 290)
    whole = target.open(tokens[:-1])
    row = as_rows(whole, 289, [(tokens[-1], -1)])
    np.testing.assert_array_equal(target.score(row).logits[0], alone(target, [], tokens))


def test_forks_share_pages_and_no_future(tmp_path: Path) -> None:
    """A fork goes on inside a page that others hold, is rolled back in it, and disturbs none."""
    target = make("llama", tmp_path)
    tokens = random_tokens(Random(0), 300, 24)
    first = target.open(tokens[:20])
    second = target.fork(first)
    for name, token in ((first, 5), (second, 6)):
        target.score(as_rows(name, 20, [(token, -1)]))
        target.commit(name, [0])
    third = target.fork(second)
    target.rollback(third, 18)
    target.score(as_rows(third, 18, [(7, -1), (8, 0), (9, 1)]))
    target.commit(third, [0, 1, 2])
    ends = {first: [*tokens[:20], 5], second: [*tokens[:20], 6], third: [*tokens[:18], 7, 8, 9]}
    for name, text in ends.items():
        row = as_rows(name, 21, [(1, -1)])
        np.testing.assert_array_equal(target.score(row).logits[0], alone(target, text, [1]))


def test_a_cache_stands_in_a_pass_once(tmp_path: Path) -> None:
    """Two names for the same keys would write over each other: the compiled pass refuses them."""
    target = make("llama", tmp_path)
    first, second = target.open([1, 2]), target.open([1, 2])
    target._sequences[second] = target._sequences[first]
    with pytest.raises(ValueError, match="a sequence twice"):
        target.score([*as_rows(first, 2, [(3, -1)]), *as_rows(second, 2, [(4, -1)])])


# Processes and threads.


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_has_threads_of_its_own(tmp_path: Path) -> None:
    """Loaded and used before fork(), the target works on both sides."""
    target = make("llama", tmp_path, threads=2)
    expected = alone(target, [1, 2], [3])
    child = os.fork()
    if child == 0:
        is_same = np.array_equal(alone(target, [1, 2], [3]), expected)
        os._exit(0 if is_same else 1)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(alone(target, [1, 2], [3]), expected)


def test_python_threads_may_share_targets(tmp_path: Path) -> None:
    """Four threads on two targets of one file: everyone gets the bits of a lonely one."""
    first = make("llama", tmp_path, threads=2)
    second = NativeTarget(first.model, threads=2)
    expected = alone(first, [1, 2], [3, 4, 5])
    with ThreadPoolExecutor(4) as pool:
        results = pool.map(lambda i: alone((first, second)[i % 2], [1, 2], [3, 4, 5]), range(80))
        for result in results:
            np.testing.assert_array_equal(result, expected)


# Refusals.


def test_types_without_kernels_are_refused(tmp_path: Path) -> None:
    """The error names the type, the target that runs it, and the types that there are."""
    model = load_model(Tiny(width=256, quantisation="TQ2_0").write(tmp_path / "t.gguf"))
    with pytest.raises(UnsupportedModelError, match=r"(?s)TQ2_0.*reference.*Q4_0, .*Q6_K.*F32"):
        NativeTarget(model)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(tmp_path: Path, kind: str, value: float) -> None:
    """One bad number in a matrix is found at load, by the tensor's name."""
    bad = np.zeros((300, 64), dtype=np.float32)
    bad[7, 9] = value
    tiny = Tiny(width=64, quantisation=kind, tensors={"token_embd.weight": bad})
    with np.errstate(all="ignore"):
        path = tiny.write(tmp_path / "t.gguf")
    with pytest.raises(ModelFileError, match=r"token_embd\.weight"):
        NativeTarget(load_model(path))


@pytest.mark.parametrize("kind", K_TYPES)
@pytest.mark.parametrize("half", [0, -1])
def test_blocks_whose_scales_are_not_finite_are_refused(
    tmp_path: Path, kind: str, half: int
) -> None:
    """The scale and the minimum of 256 inputs alike."""
    path = Tiny(width=256, quantisation=kind).write(tmp_path / "t.gguf")
    data, block = bytearray(path.read_bytes()), BLOCKS[kind]
    places = range(block.halves.start, block.halves.stop, 2)
    at = GGUFFile.open(path)._infos["token_embd.weight"].start + 7 * block.size + places[half]
    data[at : at + 2] = np.float16(np.inf).tobytes()
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match=r"token_embd\.weight"):
        NativeTarget(load_model(path))


@pytest.mark.parametrize("threads", [0, -1, 257, 10_000])
def test_impossible_threads(tmp_path: Path, threads: int) -> None:
    """Thread counts out of range are refused with the range."""
    with pytest.raises(OptionError, match=f"threads = {threads}"):
        make("llama", tmp_path, threads)


def test_impossible_questions(tmp_path: Path) -> None:
    """What is not there, and what does not fit the context, is refused and leaves no trace."""
    model = load_model(CASES["llama"].write(tmp_path / "tiny.gguf"))
    target = NativeTarget(model, context=5)
    row = [Row(target.open(), 1, 0, -1)]
    for logits in ([1], [-1]):
        with pytest.raises(EngineError, match="Logits of row"):
            target.score(row, logits=logits)
    for layers in ([3], [-1]):
        with pytest.raises(EngineError, match="Hidden states of layer"):
            target.score(row, layers=layers)
    with pytest.raises(PromptError, match="6 tokens, the context 5"):
        target.open([1] * 6)
    with pytest.raises(CapabilityError, match="no encoder"):
        target.open([1], source=[1])
    for context in (0, 301, -1):
        with pytest.raises(OptionError, match="was trained for 300"):
            NativeTarget(model, context=context)
    assert target.score([], layers=[1]).logits.shape == (0, 300)
    assert list(target._sequences) == [row[0].sequence]


def complaint(ask: Callable[[], object]) -> str | None:
    """What is wrong, if anything is."""
    try:
        ask()
    except EngineError as error:
        return str(error)
    return None


def test_wrong_rows_are_told_as_by_every_target(tmp_path: Path) -> None:
    """The compiled pass refuses just those that the checks refuse, in their words."""
    target = NativeTarget(load_model(CASES["llama"].write(tmp_path / "tiny.gguf")), context=9)
    lengths = {target.open([1, 2]): 2, target.open([3]): 1}
    random, told = Random(0), set()
    numbers = [-(2**70), -(2**31), -2, -1, 0, 1, 2, 3, 8, 9, 299, 300, 2**31, 2**63, 2**70]
    for _ in range(2000):
        rows: list[Row] = []
        for i in range(random.randint(1, 4)):
            name, parent = random.choice(list(lengths)), random.randint(-1, i - 1)
            if parent >= 0:
                name = rows[parent].sequence
            at = lengths.get(name, 0) if parent < 0 else rows[parent].position + 1
            row = Row(name, random.randrange(300), at, parent)
            if random.random() < 0.2:
                field = random.choice(Row._fields)
                row = row._replace(**{field: random.choice(numbers)})
            rows.append(row)
        expected = complaint(partial(check_rows, rows, lengths, 300, 9))
        assert complaint(partial(target.score, rows)) == expected
        told.add(expected and re.sub(r"-?\d+", "", expected))
    assert len(told) == 6, told  # five complaints, and none
    numpys = [Row(*map(np.int32, (0, 5, 2, -1))), Row(*map(np.int64, (0, 6, 3, 0)))]
    plain = target.score([Row(*map(int, row)) for row in numpys]).logits
    np.testing.assert_array_equal(target.score(tuple(numpys)).logits, plain)
    for wrong in ([Row(0, 1.5, 2, -1)], [(0, 1, 2)], [None], None):
        with pytest.raises(TypeError):
            target.score(wrong)  # type: ignore[arg-type]


def test_an_interrupted_open_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C during a prefill frees the sequence that nobody could name."""
    target = make("llama", tmp_path)

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(target, "score", interrupt)
    with pytest.raises(KeyboardInterrupt):
        target.open([1, 2])
    assert not target._sequences


# The default model.

PROMPTS = (
    "Write a haiku about the sea.",
    "The capital of France is",
    "def fibonacci(n):\n    if n < 2:\n",
)


@pytest.fixture(scope="module")
def default_target() -> NativeTarget:
    return NativeTarget(load_model("smollm2"), threads=2)


def log_law(logits: Array) -> NDArray[np.float64]:
    """Log-probabilities of each row."""
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return result


@pytest.mark.model
def test_default_models_law_is_nearly_the_references(default_target: NativeTarget) -> None:
    """Mean KL from the float32 reference below 0.01 over the text of a few prompts."""
    model = default_target.model
    twin, divergences = ReferenceTarget(model), []
    lm = load("smollm2", target="native")
    for prompt in PROMPTS:
        text = [
            *lm.tokens_of(prompt, raw=True),
            *lm.generate(prompt, raw=True, max_tokens=24, ignore_eos=True).token_ids,
        ]
        nodes = [(token, i - 1) for i, token in enumerate(text)]
        ours, theirs = both([default_target, twin], [], nodes)
        p, q = log_law(theirs.logits), log_law(ours.logits)
        divergences += list((np.exp(p) * (p - q)).sum(-1))
    assert len(divergences) > 80
    assert np.mean(divergences) < 0.01


@pytest.mark.model
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_default_model_writes_the_same_with_drafts(temperature: float) -> None:
    """Plain, in chains and in trees, alone or side by side, on 1 or 2 threads: the same tokens."""
    plain = load("smollm2", target="native", threads=1)
    drafted = load("smollm2", target="native", threads=2)
    options = {"raw": True, "max_tokens": 48, "temperature": temperature, "seed": 5}
    expected = [plain.generate(prompt, drafter="none", **options) for prompt in PROMPTS]
    for drafter, width in (("suffix", 1), ("bigram", 3), ("random", 2)):
        found = drafted.generate_batch(
            PROMPTS, drafter=drafter, draft_length=4, draft_width=width, **options
        )
        assert [each.token_ids for each in found] == [each.token_ids for each in expected]
        assert sum(each.stats.drafted for each in found) > 0
        assert {each.target for each in found} == {"native"}


@pytest.mark.model
def test_default_models_rows_do_not_depend_on_their_pass(default_target: NativeTarget) -> None:
    """Logits are bit-equal alone and in any mix, after any history."""
    random = Random(2)
    for _ in range(3):
        check_mix(default_target, random, longest=60, largest=20)
    check_splits(default_target, random, 40)


@pytest.mark.model
def test_default_models_bits_do_not_depend_on_the_machine(
    default_target: NativeTarget, sets: list[str]
) -> None:
    """One pass of several trees is bit-equal on every instruction set."""
    expected = a_mixed_pass(default_target, 0)
    for name in sets:
        native.load().use_instruction_set(name)
        np.testing.assert_array_equal(a_mixed_pass(default_target, 0).logits, expected.logits)


def test_a_pass_ends_at_a_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal's handler may end a long pass in its middle; nothing is pending, all as before."""
    tiny = Tiny(width=256, heads=4, head_dim=64, inner=1024, layers=40, context=2000)
    target = NativeTarget(load_model(tiny.write(tmp_path / "slow.gguf")), threads=2)
    sequence = target.open([1, 2, 3])
    room = np.full(target.vocab_size + 16, np.nan, dtype=np.float32)
    rows = as_rows(sequence, 3, [(5, i - 1) for i in range(1500)])
    monkeypatch.setattr("forerun.targets.native.room_for_logits", lambda floats: room)
    before = signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            target.score(rows, logits=[1499])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    monkeypatch.undo()
    assert np.isnan(room).all(), "the pass went on to its logits"
    with pytest.raises(EngineError):
        target.commit(sequence, [0])
    again = target.score(as_rows(sequence, 3, [(5, -1)])).logits[0]
    np.testing.assert_array_equal(again, alone(target, [1, 2, 3], [5]))


def _interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("case", ["llama", "untied", "Q4_0", "BF16"])
def test_a_vocabulary_gives_its_tokens_logits(tmp_path: Path, case: str) -> None:
    """The logits of some tokens alone, in any order, twice too, are the whole's, bit for bit."""
    target = make(case, tmp_path)
    random = Random(1)
    tokens = [random.randrange(target.vocab_size) for _ in range(37)]
    vocabulary = target.restrict(tokens)
    rows = as_rows(target.open([1, 2, 3]), 3, [(4, -1), (5, 0), (6, 0)])
    some = target.score(rows, logits=[2, 0], vocabulary=vocabulary).logits
    np.testing.assert_array_equal(some, target.score(rows, logits=[2, 0]).logits[:, tokens])
    for wrong in ([], [-1], [target.vocab_size]):
        with pytest.raises(EngineError, match="vocabulary"):
            target.restrict(wrong)
