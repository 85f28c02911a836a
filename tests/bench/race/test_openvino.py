"""OpenVINO's engine against a double of its library."""

from __future__ import annotations

import importlib.metadata
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from forerun.bench.race.openvino import OpenVino
from forerun.bench.race.peers import PeerKit

KIT = PeerKit("x.gguf", 2, 40, (7, 8), "cache")


class Pipeline:
    """Writes 1, then 2 and 3 together, if asked for so many."""

    opened: list[tuple[str, str, dict[str, Any]]]
    configs: list[Any]

    def __init__(self, path: str, device: str, **settings: Any) -> None:
        self.opened.append((path, device, settings))

    def generate(self, prompt: Any, config: Any, streamer: Any) -> None:
        """Tell the streamer."""
        assert prompt == (("tensor", [[4, 5]]), ("tensor", [[1, 1]]))
        self.configs.append(config)
        for told in (1, [2, 3]):
            assert streamer.write(told) == "go on"
        streamer.end()


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> type[Pipeline]:
    """The double, in the library's place."""
    Pipeline.opened, Pipeline.configs = [], []
    genai = SimpleNamespace(
        LLMPipeline=Pipeline,
        GenerationConfig=SimpleNamespace,
        SchedulerConfig=SimpleNamespace,
        TokenizedInputs=lambda ids, mask: (ids, mask),
        StreamerBase=type("StreamerBase", (), {}),
        StreamingStatus=SimpleNamespace(RUNNING="go on"),
    )
    monkeypatch.setitem(sys.modules, "openvino_genai", genai)  # type: ignore[arg-type]
    tensor = SimpleNamespace(Tensor=lambda array: ("tensor", array.tolist()))
    monkeypatch.setitem(sys.modules, "openvino", tensor)  # type: ignore[arg-type]
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1")
    return Pipeline


def test_it_reads_ids_and_writes_without_a_prefix_kept(pipeline: type[Pipeline]) -> None:
    """On the file itself, as many threads, our end tokens; several tokens may come at once."""
    engine = OpenVino(KIT, frozenset())
    answer = engine.write([4, 5], 3, 0.0, 9)
    assert answer["token_ids"] == [1, 2, 3]
    ((path, device, settings),) = pipeline.opened
    assert (path, device, settings["INFERENCE_NUM_THREADS"]) == ("x.gguf", "CPU", 2)
    assert settings["scheduler_config"].enable_prefix_caching is False
    assert "prompt_lookup" not in settings
    (config,) = pipeline.configs
    assert vars(config) == {
        "max_new_tokens": 3, "stop_token_ids": {7, 8}, "apply_chat_template": False
    }  # fmt: skip
    assert engine.describe()["openvino_genai"] == "1"


def test_lookup_and_sampling_are_set(pipeline: type[Pipeline]) -> None:
    """As its own example sets them."""
    engine = OpenVino(KIT, frozenset({"lookup"}))
    engine.write([4, 5], 3, 0.5, 9)
    assert pipeline.opened[0][2]["prompt_lookup"] is True
    (config,) = pipeline.configs
    assert (config.num_assistant_tokens, config.max_ngram_size) == (5, 3)
    assert (config.do_sample, config.temperature, config.rng_seed) == (True, 0.5, 9)
    assert engine.describe()["num_assistant_tokens"] == 5


def test_no_tokens_are_not_asked_for(pipeline: type[Pipeline]) -> None:
    """It would write one."""
    assert OpenVino(KIT, frozenset()).write([4, 5], 0, 0.0, 9)["token_ids"] == []
    assert pipeline.configs == []


def test_where_it_is_missing_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the module's name, which the report shows."""
    monkeypatch.setitem(sys.modules, "openvino_genai", None)
    with pytest.raises(ImportError, match="openvino_genai"):
        OpenVino(KIT, frozenset())
