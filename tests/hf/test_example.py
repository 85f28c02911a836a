"""The example of a pipeline in the documentation, on a small model of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from models.tiny_folder import byte_tokenizer, write_json
from targets.tiny_networks import tiny_network

pytestmark = pytest.mark.judge

PAGE = Path(__file__).parents[2] / "docs" / "explain" / "transformers.md"


def test_the_example_of_a_pipeline_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it stands: it asserts the pipeline's own text. Its folder drafts for the same network."""
    import torch

    from forerun import hf

    folder = tmp_path / "model"
    network = tiny_network("llama", vocab_size=300, max_position_embeddings=128)
    network.save_pretrained(folder)
    write_json(folder / "tokenizer.json", byte_tokenizer(300))
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})
    [example] = re.findall(r"^```py\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert "custom_generate=forerun.hf.generate" in example
    monkeypatch.chdir(tmp_path)
    exec(example, {})
    assert capsys.readouterr().out.startswith("one two three")
    ids = torch.tensor([[5, 6, 7, 5, 6]])
    how = {"max_new_tokens": 9, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    text = network.generate(
        ids, custom_generate=hf.generate, drafter="model", draft_model=folder, **how
    )
    assert text.tolist() == network.generate(ids, **how).tolist()
    hf.forget()
