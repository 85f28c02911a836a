"""Whichever head is named, and whichever comes along: the text stays, and the right one drafts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import forerun
from forerun.errors import OptionError
from forerun.models.head_file import HeadFile
from forerun.models.head_shapes import EAGLE, EXIT, MEDUSA
from forerun.targets import heads_at_hand
from models.random_head import random_head
from models.tiny_gguf import Tiny

PROMPTS = [[1], [5, 6], list(range(2, 152)), [3, 1, 4, 1, 5] * 5]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A tiny model, and a head of each kind for it."""
    folder = tmp_path_factory.mktemp("heads")
    tiny = Tiny(width=64, inner=96, layers=3, context=160, quantisation="Q4_1")
    path = tiny.write(folder / "tiny.gguf")
    model = forerun.load(path).model
    for kind in (EAGLE, MEDUSA, EXIT):
        random_head(folder / kind, model, size=200, of=kind)
    return {"model": path, **{kind: folder / kind for kind in (EAGLE, MEDUSA, EXIT)}}


@pytest.mark.parametrize("kind", [MEDUSA, EXIT])
@pytest.mark.parametrize("target", ["native", "reference"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_texts_are_plain_decodings(
    files: dict[str, Path], kind: str, target: str, temperature: float
) -> None:
    """Of prompts of one token and such as fill the context, many at once, chosen or not."""
    lm = forerun.load(files["model"], head=files[kind], target=target)
    asked = {"temperature": temperature, "seed": 3, "max_tokens": 20, "stop": ("<7", "9>")}
    plain = lm.generate_batch(PROMPTS, drafter="none", **asked)
    shapes: list[dict[str, Any]] = [{"draft_length": 3, "draft_width": 2}, {"draft_length": "auto"}]
    for shape in shapes:
        for drafter in (kind, "auto"):
            results = lm.generate_batch(PROMPTS, drafter=drafter, **asked, **shape)
            for own, result in zip(plain, results, strict=True):
                assert result.token_ids == own.token_ids
                assert [e.logprob for e in result.tokens] == [e.logprob for e in own.tokens]
            if shape["draft_length"] == 3:
                assert sum(result.stats.drafted for result in results) > 0


def test_a_named_head_and_one_that_comes_along_draft_together(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each by its own drafter; the named one alone is whom `auto` asks, and none is passed over."""
    shipped = HeadFile.open(files[EAGLE])
    monkeypatch.setattr(heads_at_hand, "shipped_head", lambda model: shipped)
    lm = forerun.load(files["model"], head=files[MEDUSA])
    asked: dict[str, Any] = {"max_tokens": 12, "seed": 1, "temperature": 1.0}
    plain = lm.generate([1, 2, 3], drafter="none", **asked)
    both = lm.generate([1, 2, 3], drafter="eagle,medusa", draft_length="auto", **asked)
    assert both.token_ids == plain.token_ids
    mixed: Any = lm._drafter("eagle,medusa")
    assert {each.name for each in mixed._guessers} == {"eagle", "medusa"}
    assert lm._drafter("auto") is not lm._drafter("eagle,medusa")
    with pytest.raises(OptionError, match="'eagle' does not read a head of kind 'medusa'"):
        lm.generate([1, 2], drafter="eagle")
    assert forerun.load(files["model"]).generate([1, 2], drafter="eagle", **asked).token_ids
