"""Damaged models are refused or run: they never end, hang or fill the process.

A seeded part of what `make fuzz` tries.
"""

from __future__ import annotations

import pytest

from fuzz import worker
from fuzz.gguf_image import Image
from fuzz.run import fuzz
from fuzz.subjects import SUBJECTS

COUNTS = {"training": (40, {"TrainingError"})}


@pytest.mark.parametrize("subject", SUBJECTS)
def test_damaged_models_are_refused_or_run(subject: str) -> None:
    """Each mutation ends in a sound model or an error of Forerun's, in little memory."""
    count, refusals = COUNTS.get(subject, (600, {"ModelFileError", "UnsupportedModelError"}))
    outcomes = fuzz(subject, seed=7, count=count, jobs=1)
    assert [outcome.number for outcome in outcomes] == list(range(count))
    assert [outcome for outcome in outcomes if not outcome.is_good] == []
    assert {"sound", *refusals} <= {outcome.came for outcome in outcomes}


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_mutation_has_a_number(subject: str) -> None:
    """The same number is the same damage, whatever is tried beside it; others differ."""
    (_, what, files), *others = worker.mutants(subject, 7, 5, 8)
    assert next(worker.mutants(subject, 7, 5, 6)) == (5, what, files)
    assert all(other[2] != files for other in others)


def test_an_image_is_its_file() -> None:
    """A file that is taken apart and put together is the same, byte for byte."""
    for files in SUBJECTS["gguf"].examples():
        data = files["model.gguf"]
        assert Image.read(data).write() == data.ljust(-(-len(data) // 32) * 32, b"\0")[: len(data)]


def test_the_harness_sees_what_it_is_for() -> None:
    """A process that ends, one that hangs, a foreign error, and a greed for memory are told."""
    outcomes = fuzz("disasters", 21, 5, jobs=2, patience=5.0)
    lost = [each.came for each in outcomes if not each.what]
    found = {each.what: each for each in outcomes}
    assert found["sound"].is_good
    assert [found[what].came for what in ("raises", "swallows")] == ["BUG", "BUG"]
    assert not any(found[what].is_good for what in ("raises", "swallows"))
    assert sorted(lost) == ["died with -6", "hangs"]
