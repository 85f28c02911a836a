"""Passes that end after the first layers: to the bit those of a model that has no others."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random

import numpy as np
import pytest

from forerun import native
from forerun.api import load
from forerun.errors import EngineError
from forerun.models.model import Model, load_model
from forerun.targets.native import NativeTarget
from forerun.targets.protocol import Row, Scores, Target
from forerun.targets.reference import ReferenceTarget
from models.tiny_gguf import Tiny
from targets.row_cases import CASES, as_rows, mixed, random_tokens, random_tree

SHAPES = {
    "stretched": CASES["stretched"],
    "smollm3": CASES["smollm3"],
    "Q4_1": Tiny(layers=4, width=64, heads=4, head_dim=16, inner=96, quantisation="Q4_1"),
    "own head": Tiny(layers=3, width=64, heads=4, inner=96, quantisation="Q8_0", is_tied=False),
}


@pytest.fixture(params=SHAPES)
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Model:
    """A small model of several layers."""
    return load_model(SHAPES[request.param].write(tmp_path / "tiny.gguf"))


def a_pass(target: Target, until: int | None, layers: list[int]) -> Scores:
    """Trees of three texts, some about as long as a page; the same rows of any target."""
    random = Random(7)
    prompts = [random_tokens(random, target.vocab_size, size) for size in (0, 29, 64)]
    trees = [random_tree(random, target.vocab_size, size) for size in (3, 12, 5)]
    names = [target.open(prompt) for prompt in prompts]
    parts = zip(names, prompts, trees, strict=True)
    rows, _ = mixed(random, [as_rows(n, len(p), t) for n, p, t in parts])
    scores = target.score(rows, logits=range(len(rows))[::-2], layers=layers, until=until)
    for name in names:
        target.free(name)
    return scores


@pytest.mark.parametrize("kv_bits", [16, 32])
def test_they_are_a_cut_models(model: Model, sets: list[str], kv_bits: int) -> None:
    """Logits and hidden states, on every instruction set and number of threads."""
    whole = {
        threads: NativeTarget(model, threads=threads, kv_bits=kv_bits) for threads in (1, 2, 3)
    }
    for until in range(1, model.architecture.num_layers + 1):
        cut = NativeTarget(model.cut(until), threads=1, kv_bits=kv_bits)
        expected = a_pass(cut, None, [0, until])
        for name in sets:
            native.load().use_instruction_set(name)
            for target in whole.values():
                found = a_pass(target, until, [0, until])
                np.testing.assert_array_equal(found.logits, expected.logits)
                for layer in (0, until):
                    np.testing.assert_array_equal(found.hidden[layer], expected.hidden[layer])


def test_the_references_are_a_cut_models_too(model: Model) -> None:
    """The slow twin ends where a cut model does."""
    target = ReferenceTarget(model)
    for until in range(1, model.architecture.num_layers + 1):
        expected = a_pass(ReferenceTarget(model.cut(until)), None, [until])
        found = a_pass(target, until, [until])
        np.testing.assert_array_equal(found.logits, expected.logits)
        np.testing.assert_array_equal(found.hidden[until], expected.hidden[until])


@pytest.mark.parametrize("kind", [NativeTarget, ReferenceTarget])
def test_layers_behind_the_end_have_nothing_to_show(
    model: Model, kind: type[NativeTarget | ReferenceTarget]
) -> None:
    """Their hidden states are refused, in the same words."""
    target = kind(model)
    row = Row(target.open(), 1, 0, -1)
    with pytest.raises(EngineError, match="Hidden states of layer 2 of 1 are asked for"):
        target.score([row], layers=[2], until=1)


def test_some_tokens_alone(model: Model) -> None:
    """A head for some tokens reads what the first layers end with."""
    target = NativeTarget(model)
    sequence = target.open([1, 2, 3])
    rows = as_rows(sequence, 3, [(4, -1), (5, 0)])
    tokens = [7, 1, 7, 40]
    some = target.score(rows, until=2, vocabulary=target.restrict(tokens)).logits
    np.testing.assert_array_equal(some, target.score(rows, until=2).logits[:, tokens])


def test_drafts_and_texts_share_their_keys(model: Model) -> None:
    """Between two drafts of a text, round for round, whole passes have the same bits as without."""
    random = Random(3)
    tokens = random_tokens(random, 200, 80)
    plain, drafting = NativeTarget(model), NativeTarget(model)
    names = plain.open(tokens[:27]), drafting.open(tokens[:27])
    for at in range(27, 80):
        for until in range(1, 3):
            tree = random_tree(random, 200, random.randrange(1, 9))
            drafting.score(as_rows(names[1], at, tree), until=until)
        rows = [[Row(name, tokens[at], at, -1), Row(name, 5, at + 1, 0)] for name in names]
        found = [target.score(r).logits for target, r in zip((plain, drafting), rows, strict=True)]
        np.testing.assert_array_equal(*found)
        plain.commit(names[0], [0])
        drafting.commit(names[1], [0])


@pytest.mark.model
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_default_model_writes_the_same_when_left_early(temperature: float) -> None:
    """In chains and trees, side by side, of fixed and chosen length, the text is plain decoding's.

    And what all layers draft holds.
    """
    options = {"raw": True, "max_tokens": 16, "temperature": temperature, "seed": 5}
    prompts = ("Write a haiku about the sea.", "The capital of France is")
    plain = load("smollm2", target="native")
    expected = [plain.generate(p, drafter="none", **options).token_ids for p in prompts]
    for layers in (8, 30):
        lm = load("smollm2", target="native", draft_layers=layers)
        for width, length in ((1, 3), (3, 2), ("auto", "auto")):
            found = lm.generate_batch(
                prompts, drafter="early_exit", draft_length=length, draft_width=width, **options
            )
            assert [each.token_ids for each in found] == expected
            if length == 3:
                assert sum(each.stats.drafted for each in found) > 0
            if length == 3 and layers == 30:
                for each in found:  # 3 of a round's 4 tokens are drafted
                    assert each.stats.passes == math.ceil(len(each.token_ids) / 4)
