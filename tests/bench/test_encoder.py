"""The script that lets a small T5 draft for a larger one: its language, its tables, its report."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from drafters.loop import Text
from forerun.targets.toy import ToyTarget
from project.script import loaded

pytestmark = pytest.mark.judge


@pytest.fixture(scope="module")
def script() -> Any:
    """The script, as a module."""
    return loaded("benchmarks/encoder.py")


def test_sentences_are_copied_and_translated(script: Any) -> None:
    """Names stay in their order, each word becomes one of its two translations."""
    rng = np.random.default_rng(0)
    for source, answer in (script.sentence(rng) for _ in range(50)):
        assert len(source) == len(answer)
        assert source[-1] == answer[-1] == script._END
        names = [[t for t in text if t >= script._NAME] for text in (source, answer)]
        assert names[0] == names[1]
        assert len(set(names[0])) == len(names[0])
        words = [t - script._WORD for t in source[:-1] if t < script._NAME]
        told = [(t - script._TRANSLATED) % script._WORDS for t in answer[:-1] if t < script._NAME]
        assert sorted(words) == sorted(told)


def test_alone_is_without_the_source_and_nothing_else(script: Any) -> None:
    """The drafter is asked for the same text, size and warp."""
    seen: list[Any] = []

    class Spy:
        open = fork = rollback = free = observe = None

        def draft(self, requests: list[Any]) -> list[Any]:
            seen.extend(requests)
            return []

    request = replace(Text(1, (1, 2), ToyTarget.random(5, 0, 1)).request(), source=(3, 4))
    script.Alone(Spy()).draft([request])
    assert seen == [replace(request, source=())]


def test_the_tables(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Learning lowers the loss; what is predicted of equal models is all; copies are counted."""
    monkeypatch.setattr(script, "_costs", lambda *_: (0.5, {1: 1.0, 4: 1.5}))
    monkeypatch.setattr(script, "_LENGTHS", (3,))
    ticks = itertools.count()
    monkeypatch.setattr(script.time, "process_time", lambda: float(next(ticks)))
    network = script.network(script.Sizes(16, 1), 0)
    told: list[str] = []
    learned = script.learn(network, 21.0, 1, lambda text, _: told.append(text))
    assert learned["steps"] == len(told) == 20
    assert learned["nats"] < float(told[0].split()[2])
    target = script.TransformersTarget(network)
    sources = [script.sentence(np.random.default_rng(0)).source]
    for line in script.table(target, target, sources):
        assert line["alpha"] == pytest.approx(1.0)
        assert line["predicted_tokens_per_pass"] == pytest.approx(line["draft_length"] + 1)
        assert 1 <= line["tokens_per_pass"] <= line["draft_length"] + 1
    found = script.copying(target, sources)
    assert set(found) == {"lookup", "suffix", "lookup, text alone", "suffix, text alone"}
    assert min(each["tokens_per_pass"] for each in found.values()) >= 1
