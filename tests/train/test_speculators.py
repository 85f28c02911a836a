from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from safetensors.numpy import load_file, save_file

from forerun.errors import ModelFileError, OptionError, OtherTargetError
from forerun.models.head_file import HEAD, HeadFile
from forerun.models.model import Model
from forerun.targets.protocol import Row
from forerun.targets.reference_head import ReferenceHead
from forerun.train.head import Network
from forerun.train.network import Batch, Frozen, Line
from forerun.train.speculators import export_speculators, import_speculators
from models.random_head import random_head
from train.made_text import tiny_model

pytestmark = pytest.mark.judge

ROWS = 12


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return tiny_model(tmp_path)


@pytest.fixture
def head(tmp_path: Path, model: Model) -> HeadFile:
    return random_head(tmp_path / "head.gguf", model, layers=(0, 1, 2), kind="F32")


@pytest.fixture
def exported(tmp_path: Path, head: HeadFile, model: Model) -> Path:
    export_speculators(head, model, tmp_path / "out")
    return tmp_path / "out"


def text() -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """Tokens at positions 1 and up, and features of the positions before."""
    random = np.random.default_rng(3)
    tokens = random.integers(300, size=ROWS)
    return tokens, random.standard_normal((ROWS, 3 * 64)).astype(np.float32)


def tensors_of(folder: Path) -> dict[str, torch.Tensor]:
    """The folder's tensors."""
    stored = load_file(folder / "model.safetensors")
    return {name: torch.from_numpy(values) for name, values in stored.items()}


def logits_of(head: HeadFile, model: Model) -> np.ndarray:  # type: ignore[type-arg]
    """What the reference head makes of the text."""
    tokens, features = text()
    reference = ReferenceHead(head, model)
    name = reference.open()
    rows = [Row(name, int(token), i + 1, i - 1) for i, token in enumerate(tokens)]
    return reference.score(rows, features=features).logits


def test_the_folder_computes_the_same_with_halves(
    exported: Path, head: HeadFile, model: Model
) -> None:
    """Its tensors, with heads that turn in halves and its own embedding, give the same logits."""
    tensors = {
        name: torch.from_numpy(v) for name, v in load_file(exported / "model.safetensors").items()
    }
    network = model.architecture
    assert network.rope.interleaved
    halves = replace(network, rope=replace(network.rope, interleaved=False))
    frozen = Frozen(halves, tensors["embed_tokens.weight"], tensors[HEAD])
    tokens, features = text()
    batch = Batch(
        torch.from_numpy(tokens),
        torch.arange(1, ROWS + 1),
        torch.from_numpy(features),
        [Line(slice(0, ROWS), 0)],
    )
    (output,) = Network(tensors, frozen).levels(batch, 1)
    logits = (output @ frozen.head.T).numpy()
    assert np.abs(logits - logits_of(head, model)).max() < 1e-4


def test_the_map_is_one_of_offsets(exported: Path, head: HeadFile) -> None:
    """`d2t` added to a draft id is the target's id; `t2d` marks those."""
    tensors = load_file(exported / "model.safetensors")
    tokens = head.facts.tokens
    assert np.array_equal(tensors["d2t"] + np.arange(len(tokens)), tokens)
    assert np.array_equal(np.flatnonzero(tensors["t2d"]), tokens)
    config = json.loads((exported / "config.json").read_text())
    assert config["draft_vocab_size"] == len(tokens)
    assert config["norm_before_residual"] is False
    assert config["eagle_aux_hidden_state_layer_ids"] == list(head.facts.layers)


def test_a_head_comes_back_as_it_was(
    exported: Path, head: HeadFile, model: Model, tmp_path: Path
) -> None:
    """Import undoes export, but for the 8 bits of the file, and keeps the card."""
    import_speculators(exported, model, tmp_path / "back.gguf")
    back = HeadFile.open(tmp_path / "back.gguf")
    back.check_target(model)
    assert np.array_equal(back.facts.tokens, head.facts.tokens)
    assert back.facts.layers == head.facts.layers
    assert back.facts.card == head.facts.card
    for name in head.file.tensor_names:
        one, other = head.file.tensor(name), back.file.tensor(name)
        assert np.abs(one - other).max() <= 0.01 * np.abs(one).max()


def test_a_map_in_any_order_is_read(
    exported: Path, head: HeadFile, model: Model, tmp_path: Path
) -> None:
    """Ours ascends; the rows of the head go with their tokens."""
    path = exported / "model.safetensors"
    tensors = dict(load_file(path))
    order = np.random.default_rng(0).permutation(len(tensors["d2t"]))
    tokens = (tensors["d2t"] + np.arange(len(order)))[order]
    tensors["d2t"] = tokens - np.arange(len(order))
    tensors[HEAD] = np.ascontiguousarray(tensors[HEAD][order])
    save_file(tensors, path)
    import_speculators(exported, model, tmp_path / "back.gguf")
    back = HeadFile.open(tmp_path / "back.gguf")
    assert np.abs(logits_of(back, model) - logits_of(head, model)).max() < 0.1


def edited(folder: Path, **changes: Any) -> None:
    """Change some of the folder's config."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"speculators_model_type": "dflash"}, "'dflash', not eagle3"),
        ({"norm_before_residual": True}, "norm_before_residual"),
        ({"norm_output": True}, "norm_output"),
        ({"transformer_layer_config": {"num_hidden_layers": 2}}, "one layer"),
    ],
)
def test_a_head_of_another_kind_is_refused(
    exported: Path, model: Model, tmp_path: Path, changes: dict[str, Any], complaint: str
) -> None:
    """By what it has that ours do not compute."""
    edited(exported, **changes)
    with pytest.raises(OptionError, match=complaint):
        import_speculators(exported, model, tmp_path / "back.gguf")


def test_a_damaged_folder_is_refused(exported: Path, model: Model, tmp_path: Path) -> None:
    """A file cut short, a tensor missing or misshapen, a map that points outside."""
    path, back = exported / "model.safetensors", tmp_path / "back.gguf"
    sound = dict(load_file(path))
    for changes, complaint in (
        ({"d2t": sound["d2t"] + 300}, "points outside"),
        ({"d2t": sound["d2t"][1:].copy()}, "no map"),
        ({"fc.weight": sound["fc.weight"][:, 1:].copy()}, "fc.weight is"),
        ({"norm.weight": None}, "norm.weight is missing"),
    ):
        save_file({k: v for k, v in {**sound, **changes}.items() if v is not None}, path)
        with pytest.raises(ModelFileError, match=complaint):
            import_speculators(exported, model, back)
    save_file(sound, path)
    edited(exported, eagle_aux_hidden_state_layer_ids="all")
    with pytest.raises(ModelFileError, match="layer_ids"):
        import_speculators(exported, model, back)
    data = path.read_bytes()
    for part in (data[:-9], data[:20], b""):
        path.write_bytes(part)
        with pytest.raises(ModelFileError, match="damaged"):
            import_speculators(exported, model, back)
    assert not back.exists()


def test_a_head_of_another_target_is_not_exported(head: HeadFile, tmp_path: Path) -> None:
    """A server would take it at its word."""
    (tmp_path / "other").mkdir()
    other = tiny_model(tmp_path / "other", seed=5)
    with pytest.raises(OtherTargetError):
        export_speculators(head, other, tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_speculators_itself_computes_the_same(exported: Path, head: HeadFile, model: Model) -> None:
    """The package that trains such heads loads the folder and gives the same draft logits."""
    pytest.importorskip("speculators")
    from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig

    config = Eagle3SpeculatorConfig.from_pretrained(exported)
    config.speculators_config.verifier.name_or_path = None
    config.transformer_layer_config._attn_implementation = "eager"
    theirs = Eagle3DraftModel(config)
    tensors = tensors_of(exported)
    missing, unexpected = theirs.load_state_dict(tensors, strict=False)
    assert not unexpected
    assert not [name for name in missing if not name.startswith("verifier_")]
    seen: list[torch.Tensor] = []
    theirs.lm_head.register_forward_hook(lambda module, inputs, output: seen.append(output))
    tokens, features = text()
    with torch.no_grad():
        theirs.float().eval()(
            hidden_states=torch.from_numpy(features)[None],
            input_ids=torch.from_numpy(tokens)[None],
            document_ids=torch.zeros(1, ROWS, dtype=torch.long),
            ttt_steps=1,
        )
    assert np.abs(seen[0][0].numpy() - logits_of(head, model)).max() < 1e-3
