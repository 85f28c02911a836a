"""A GGUF file written from plain Python values and float32 arrays."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from gguf import GGUFValueType, GGUFWriter
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize
from numpy.typing import NDArray

from forerun.errors import ModelFileError

__all__ = ["write_gguf"]


def write_gguf(
    path: Path,
    metadata: Mapping[str, object],
    tensors: Mapping[str, NDArray[np.float32]],
    kind: str,
) -> None:
    """Write a file; it is either the old or the new one, whatever happens.

    Args:
        path: Of the file.
        metadata: As `GGUFFile.metadata` has it, `general.architecture` among it; empty lists, whose
            type is not known, are left out.
        tensors: Row-major.
        kind: GGML's name of the type of matrices, such as `Q8_0`; those whose rows are no whole
            blocks of it are F16. Vectors are F32.

    Raises:
        ModelFileError: A value is not finite as it is stored, or the file can't be written.
    """
    path = Path(os.path.abspath(path))
    try:
        # In a folder of its own: the file gets the permissions that the user's files have.
        with tempfile.TemporaryDirectory(prefix=".gguf-", dir=path.parent) as room:
            beside = Path(room) / path.name
            _write(beside, path, metadata, tensors, GGMLQuantizationType[kind])
            os.replace(beside, path)
    except OSError as error:
        what = f"{path} can't be written: {error.strerror or error}."
        raise ModelFileError(what, "Name another file, or make room for it.") from error


def _write(
    beside: Path,
    path: Path,
    metadata: Mapping[str, object],
    tensors: Mapping[str, NDArray[np.float32]],
    code: GGMLQuantizationType,
) -> None:
    writer = GGUFWriter(beside, str(metadata["general.architecture"]))  # which adds that itself
    for key, value in metadata.items():
        if key != "general.architecture" and value != []:
            writer.add_key_value(key, value, _type_of(value))
    for name, values in tensors.items():
        own = code
        if values.ndim == 1:
            own = GGMLQuantizationType.F32
        elif values.shape[1] % GGML_QUANT_SIZES[code][0]:
            own = GGMLQuantizationType.F16
        with np.errstate(all="ignore"):
            stored = quantize(np.ascontiguousarray(values, dtype=np.float32), own)
            is_finite = bool(np.isfinite(dequantize(stored, own)).all())
        if not is_finite:
            what = f"{path}: the tensor {name!r} is not finite as {own.name}."
            raise ModelFileError(what, "Train it again.")
        writer.add_tensor(name, stored, raw_dtype=own)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with open(beside, "rb") as file:
        os.fsync(file.fileno())


def _type_of(value: object) -> GGUFValueType:
    if isinstance(value, bool):  # which is an int, too
        return GGUFValueType.BOOL
    if isinstance(value, int):
        return GGUFValueType.UINT32 if 0 <= value < 1 << 32 else GGUFValueType.INT64
    if isinstance(value, list):
        return GGUFValueType.ARRAY
    return GGUFValueType.FLOAT32 if isinstance(value, float) else GGUFValueType.STRING
