"""The whole of `bench pass` on a toy-sized native model, beside fake peers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.fake_side import CALLS
from forerun.api import LanguageModel, load
from forerun.bench import machine
from forerun.bench.end import End
from forerun.bench.measure import Task
from forerun.bench.options import Timing
from forerun.bench.pass_bench import bench_pass, check_context
from forerun.bench.peers import PEERS
from forerun.bench.sides import ForerunSide, Side
from forerun.errors import OptionError, StartError
from models.tiny_gguf import Tiny

SMALL: dict[str, Any] = {
    "rows": (1, 2, 4), "context": 5, "prefill": 9, "decode": 3, "repeats": 2
}  # fmt: skip


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    """A toy on the native target."""
    path = tmp_path_factory.mktemp("bench") / "tiny.gguf"
    tiny = Tiny(width=64, head_dim=16, inner=128, context=64, quantisation="Q4_0", is_tied=False)
    return load(tiny.write(path), target="native", threads=2)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little of the machine is read, and fakes are peers."""
    monkeypatch.setattr(machine, "_READ", 1 << 20)
    monkeypatch.setattr(machine, "_BATCHES", 1)
    monkeypatch.setitem(PEERS, "fake", "bench.fake_side:FakePeer")
    monkeypatch.setitem(PEERS, "failing", "bench.fake_side:FailingPeer")
    CALLS.clear()


def test_all_is_measured(lm: LanguageModel) -> None:
    """Both sides have positive times of each size, prompt and text."""
    record = bench_pass(lm, Timing(**SMALL, peers=("fake",))).as_json()
    assert record["rows"] == [1, 2, 4]
    assert record["sides"]["fake"]["ms"] == pytest.approx([2, 4, 8])
    assert all(ms > 0 for ms in record["sides"]["forerun"]["ms"])
    assert all(ratio > 0 for ratio in record["ratios"]["fake"])
    assert record["v"][0] == 1
    assert record["decode"]["tokens"] == 3
    assert record["decode"]["tokens_per_second"]["forerun"] > 0
    assert record["prefill"]["tokens_per_second"]["fake"] == pytest.approx(500)
    assert record["machine"]["threads"] == 2
    assert record["sides"]["forerun"]["target"] == "native"


def test_bytes_per_pass_are_what_is_read(lm: LanguageModel) -> None:
    """Weights in 4.5 bits with the head once, one line of the embedding, and KV of the context."""
    files = lm.model.file
    embedding = files.nbytes("token_embd.weight")
    # 300 outputs of the head are packed as 304: panels hold 16.
    packed_head = files.nbytes("output.weight") // 300 * 304
    others = [n for n in files.tensor_names if n not in ("token_embd.weight", "output.weight")]
    weights = sum(files.nbytes(name) for name in others) + packed_head
    line = embedding // 300 * 304 // 300
    bytes_ = bench_pass(lm, Timing(**SMALL)).bytes_per_pass
    further = bench_pass(lm, Timing(**{**SMALL, "context": 15})).bytes_per_pass
    kv, rest = divmod(further - bytes_, 10)
    assert rest == 0
    # 2 layers of 2 heads: key and value of 16 components in 16 bits, each with a float32 scale.
    assert kv == 2 * 2 * 2 * (16 * 2 + 4)
    assert bytes_ == weights + line + 5 * kv


def test_a_failing_peer_is_reported(lm: LanguageModel) -> None:
    """What it measured before stays, and the report says why there is no more."""
    report = bench_pass(lm, Timing(**SMALL, peers=("failing", "fake")))
    assert report.samples["fake"].error == "RuntimeError: out of ideas"


def test_an_end_keeps_what_there_is(lm: LanguageModel) -> None:
    """Ended at once, the report is empty and whole."""
    record = bench_pass(lm, Timing(**SMALL), end=End(lambda: True)).as_json()
    assert record["sides"]["forerun"]["ms"] == [None, None, None]
    assert record["v"] == [None, None, None]


def test_our_side_leaves_the_context_as_it_was(lm: LanguageModel) -> None:
    """Passes, prompts and texts are rolled back, and nothing stays open."""
    before = set(lm.target._sequences)  # type: ignore[attr-defined]
    side = ForerunSide(lm, [1, 2, 3])
    assert isinstance(side, Side)
    (sequence,) = set(lm.target._sequences) - before  # type: ignore[attr-defined]
    for _ in range(2):
        assert side.time_pass([4, 5, 6, 7]) > 0
        assert side.time_prefill([1, 2, 3, 4, 5]) > 0
        assert side.time_prefill([1]) > 0
        assert side.time_decode(2) > 0
        assert lm.target.length(sequence) == 3
    side.close()
    assert set(lm.target._sequences) == before  # type: ignore[attr-defined]


def test_each_row_s_logits_are_asked(lm: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass is a chain behind the context, and returns a row of logits for each."""
    shapes: list[tuple[int, ...]] = []
    target, score = lm.target, lm.target.score

    def watched(rows: Any, **asked: Any) -> Any:
        scores = score(rows, **asked)
        shapes.append(scores.logits.shape)
        assert [row.position for row in rows] == [3, 4, 5]
        assert [row.parent for row in rows] == [-1, 0, 1]
        return scores

    side = ForerunSide(lm, [1, 2, 3])
    monkeypatch.setattr(target, "score", watched, raising=False)
    side.time_pass([4, 5, 6])
    monkeypatch.undo()
    side.close()
    assert shapes == [(3, target.vocab_size)]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"context": 61}, "Choose a context up to 59."),
        ({"rows": (1, 64)}, "Choose fewer rows"),
        ({"decode": 59}, "Choose a context up to 4."),
        ({"prefill": 65}, "Choose up to 64, or 0."),
    ],
)
def test_more_than_the_model_reads(changes: dict[str, Any], said: str) -> None:
    """Refused before anything is opened, with the most that fits."""
    with pytest.raises(OptionError) as error:
        check_context(Timing(**{**SMALL, **changes}), 64)
    assert said in error.value.way_out
    assert "the model reads 64" in error.value.what


def test_all_that_fits_is_measured(lm: LanguageModel) -> None:
    """The longest context, and the longest prompt, that the error above names."""
    options = Timing(**{**SMALL, "context": 59, "prefill": 64, "repeats": 1})
    samples = bench_pass(lm, options).samples["forerun"]
    assert samples.median_ms(Task("pass", 4)) is not None


def test_an_unknown_peer(lm: LanguageModel) -> None:
    """The error lists the peers."""
    with pytest.raises(OptionError, match=r"'exllama'.*llama\.cpp"):
        bench_pass(lm, Timing(**SMALL, peers=("exllama",)))


def test_a_peer_that_is_not_installed(lm: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says how to install it."""
    monkeypatch.setitem(__import__("sys").modules, "llama_cpp.llama_cpp", None)
    with pytest.raises(StartError, match=r"forerun\[peers\]"):
        bench_pass(lm, Timing(**SMALL, peers=("llama.cpp",)))


def test_another_target_is_refused(tmp_path: Path) -> None:
    """Its passes are not what is to be measured."""
    slow = load(Tiny().write(tmp_path / "tiny.gguf"), target="reference")
    with pytest.raises(OptionError, match="native"):
        bench_pass(slow, Timing(**SMALL))
