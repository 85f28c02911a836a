"""What the tests of the compiled module share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forerun import native


@pytest.fixture
def sets() -> Iterator[list[str]]:
    """The instruction sets of this machine; the one in use is put back at the end."""
    module = native.load()
    before = module.instruction_set()
    try:
        yield module.instruction_sets()
    finally:
        module.use_instruction_set(before)
