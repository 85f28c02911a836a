"""Row-exactness cases: what they cover, what passes, and what must be reported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest

from forerun import native
from forerun.audit.row_cases import Difference, Expected, History, read_plainly
from forerun.audit.row_models import SHAPES, RandomShape, random_model
from forerun.audit.row_texts import NOWHERE, random_piece, random_texts
from forerun.audit.rows import RowsReport, Subject, check_rows_of, random_subjects
from forerun.errors import EngineError
from forerun.targets.native import NativeTarget
from forerun.targets.protocol import Row, Scores
from forerun.targets.toy import ToyTarget


@pytest.fixture(scope="module")
def subjects() -> list[Subject]:
    return random_subjects()


def test_random_models_are_rows_of_every_kind() -> None:
    """Groups of 1 to 4, heads of 64 and of odd sizes, biases, norms, free heads and every type."""
    assert {s.heads // s.kv_heads for s in SHAPES} >= {1, 2, 3, 4}
    assert {s.head_dim for s in SHAPES} >= {64, 15}
    assert {s.architecture for s in SHAPES} == {"llama", "qwen2", "qwen3"}
    assert {s.is_tied for s in SHAPES} == {True, False}
    stored = Counter[str]()
    for shape in SHAPES:
        with random_model(shape) as model:
            matrices = [n for n, size in model.architecture.tensor_shapes() if len(size) == 2]
            stored.update(model.file.tensor_type(name) for name in matrices)
            assert model.architecture.rope.dimension % 2 == 0
    kinds = "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K Q5_K Q6_K"
    assert min(stored[kind] for kind in kinds.split()) > 0, stored


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_random_models_have_laws_worth_comparing(shape: RandomShape) -> None:
    """Logits differ by about one, and the row before matters to them."""
    with random_model(shape) as model:
        target = NativeTarget(model)
    rows = [Row(target.open(prompt), 3, len(prompt), -1) for prompt in ([1, 2], [2, 1])]
    logits = target.score(rows).logits
    assert 0.3 < logits.std() < 3
    assert np.abs(logits[0] - logits[1]).max() > 0.01


@pytest.mark.parametrize("index", range(len(SHAPES)))
def test_no_row_depends_on_its_pass(subjects: list[Subject], index: int) -> None:
    """Cases of each shape, on every instruction set: no bit differs."""
    before = native.load().instruction_set()
    shares: list[float] = []
    report = check_rows_of(subjects[index], range(1000, 1025), shares.append)
    assert report.problems == []
    assert report.cases == 25
    assert list(report.instruction_sets) == native.load().instruction_sets()
    assert report.rows > 25 * len(report.instruction_sets)
    assert shares[-1] == 1.0
    assert native.load().instruction_set() == before


class _Watched(ToyTarget):
    """Counts what histories do; its logits are hidden states too."""

    def __init__(self) -> None:
        super().__init__(ToyTarget.random(9, 2, 5)._table)
        self.seen: Counter[str] = Counter()

    def score(
        self,
        rows: Sequence[Row],
        *,
        logits: Sequence[int] | None = None,
        layers: Sequence[int] = (),
        until: int | None = None,
    ) -> Scores:
        self.seen["sequences"] += len({row.sequence for row in rows}) > 1
        self.seen["siblings"] += len({(r.sequence, r.parent) for r in rows}) < len(rows)
        self.seen["twice"] += len({(r.sequence, r.parent, r.token) for r in rows}) < len(rows)
        self.seen["pages"] += len({row.position // 16 for row in rows}) > 1
        self.seen["border"] += any(
            r.position % 16 in (15, 0) and r.parent == -1 for r in rows if r.position
        )
        asked = range(len(rows)) if logits is None else logits
        self.seen["unordered"] += list(asked) != sorted(asked)
        scores = super().score(rows).logits
        return Scores(scores[list(asked)], dict.fromkeys(layers, scores))

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        self.seen["gaps"] += list(path) != list(range(len(path)))
        self.seen["nothing kept"] += not path
        super().commit(sequence, path)

    def rollback(self, sequence: int, length: int) -> None:
        self.seen["rollbacks"] += length < self.length(sequence)
        super().rollback(sequence, length)

    def fork(self, sequence: int) -> int:
        self.seen["forks"] += 1
        return super().fork(sequence)


def _expected(target: ToyTarget, seed: int) -> tuple[History, Expected]:
    random = Random(seed)
    texts = random_texts(random, target.vocab_size, 60)
    expected = read_plainly(target, texts, 1, by_token=seed % 2 == 0)
    return History(random, target, texts, expected), expected


def test_histories_go_everywhere() -> None:
    """Mixes, trees, gaps, page borders, rollbacks and forks happen often; nothing stays open."""
    target = _Watched()
    for seed in range(60):
        _expected(target, seed)[0].run(4)
    names = "sequences siblings twice pages border unordered gaps rollbacks forks"
    assert min(target.seen[name] for name in names.split()) > 20, target.seen
    assert target.seen["nothing kept"] > 3
    with pytest.raises(EngineError, match="not open"):
        target.length(0)


def test_a_history_compares_what_it_scores() -> None:
    """One wrong bit anywhere in what is expected is found, be it a sign of zero."""
    for part in ("logits", "hidden"):
        history, expected = _expected(_Watched(), 3)
        values = getattr(expected, part)
        values[...] = np.nextafter(values, np.float32(9))
        with pytest.raises(Difference, match=r"component 0 is .*, read plainly"):
            history.run(20)
    zeros = np.zeros((2, 3), np.float32)
    other = zeros.copy()
    other[1, 2] = -0.0
    with pytest.raises(Difference, match=r"row 1 of 2: component 2 is -0\.0, read plainly 0\.0"):
        Expected(zeros, zeros[None]).check(Scores(other), [0, 1], [0, 1])


class _Leaky(NativeTarget):
    """Rows differ by how many there are, but only in long passes."""

    def score(
        self,
        rows: Sequence[Row],
        *,
        logits: Sequence[int] | None = None,
        layers: Sequence[int] = (),
        until: int | None = None,
    ) -> Scores:
        scores = super().score(rows, logits=logits, layers=layers, until=until)
        return Scores(scores.logits + np.float32(len(rows) > 40), scores.hidden)


def test_the_first_mismatch_can_be_replayed() -> None:
    """It names model, seed, instruction set and threads; the same seed gives it again."""
    with random_model(SHAPES[1]) as model:
        targets = {threads: _Leaky(model, threads=threads, kv_bits=32) for threads in (1, 2, 3)}
    subject = Subject("leaky", 2, {32: targets})
    report = check_rows_of(subject, range(40))
    assert 0 < len(report.mismatches) < 40
    first = report.mismatches[0]
    assert check_rows_of(subject, [first.seed]).mismatches == [first]
    record = report.as_json()
    assert record["mismatches"] == len(report.problems)
    assert record["first_mismatch"] == first.as_json()
    assert (first.as_json()["seed"], first.kv_bits) == (first.seed, 32)
    assert f"seed {first.seed}" in report.problems[0]


def test_both_kinds_of_keys_are_tested() -> None:
    """A mistake in one of them is found and named, and the other one passes."""
    with random_model(SHAPES[1]) as model:
        right = {threads: NativeTarget(model, threads=threads, kv_bits=16) for threads in (1, 2, 3)}
        wrong = {threads: _Leaky(model, threads=threads, kv_bits=32) for threads in (1, 2, 3)}
    report = check_rows_of(Subject("half leaky", 2, {16: right, 32: wrong}), range(60))
    assert {mismatch.kv_bits for mismatch in report.mismatches} == {32}
    assert "32-bit keys" in report.problems[0]


def test_reports_add_up() -> None:
    """Cases, rows and mismatches of several subjects are one report's."""
    report = RowsReport()
    for name in ("a", "b"):
        report.add(RowsReport(3, ("avx2",), [name], 4, 5))
    assert report == RowsReport(6, ("avx2",), ["a", "b"], 8, 10)
    assert report.as_json()["first_mismatch"] is None


def test_pieces_are_parts_of_texts() -> None:
    """Rows follow their parents along the texts' own edges, below the sequence's end."""
    for seed in range(200):
        random = Random(seed)
        texts = random_texts(random, 50, 40)
        assert max(len(texts.path(leaf)) for leaf in texts.leaves()) <= 40
        end = random.choice([NOWHERE, *range(len(texts.tokens))])
        if not texts.children[end]:
            continue
        piece = random_piece(random, texts, end)
        assert piece.nodes
        for row, (node, parent) in enumerate(zip(piece.nodes, piece.parents, strict=True)):
            assert parent < row
            assert texts.parents[node] == (end if parent < 0 else piece.nodes[parent])
            assert [piece.nodes[i] for i in piece.path(row)] == texts.path(node)[
                len(texts.path(end)) :
            ]
