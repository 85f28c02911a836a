"""The native readout: a head without attention, whose products are the compiled pass's.

`targets.reference_readout` is its slow twin. Weights stay as the file stores them, activations are
rounded to 8 bits as in a pass; what is done to a row between two products is too little to compile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from forerun.errors import NotEnoughMemoryError
from forerun.models.head_file import HeadFile
from forerun.models.model import Model
from forerun.native import load
from forerun.targets.native_weights import Part, check_kinds, stored_part, vocabulary_part
from forerun.targets.readout import FileReadout, Product

if TYPE_CHECKING:
    from forerun import _native

__all__ = ["NativeReadout"]

Array = NDArray[np.float32]


class NativeReadout(FileReadout):
    """Guesses what a target writes, with a head's packed weights; `FileReadout` says more.

    Raises:
        NotEnoughMemoryError: The weights need more memory than there is.
        NativeModuleError: There is no compiled module.
    """

    def __init__(self, head: HeadFile, model: Model, *, force: bool = False) -> None:
        check_kinds(head.file, head.file.tensor_names)
        try:
            super().__init__(head, model, force=force)
        except MemoryError:
            what = f"{head.file.path} needs more memory than the system gives."
            raise NotEnoughMemoryError(what, "End other programs.") from None

    def product(self, *names: str) -> Product:
        """Return the product with some of the head's matrices, one below the other."""
        return _product([stored_part(self._file.file, name) for name in names])

    def targets_head(self, model: Model) -> Product:
        """Return the product with the target's own rows of the draft vocabulary."""
        return _product([vocabulary_part(model.file, model.architecture, self.tokens)])


def _product(parts: Sequence[Part]) -> Product:
    native = load()
    kinds = {(kind, inputs) for kind, _, _, inputs in parts}
    if len(kinds) == 1:  # one product instead of several
        (kind, inputs) = kinds.pop()
        stored = np.concatenate([each for _, each, _, _ in parts])
        parts = [(kind, stored, sum(outputs for _, _, outputs, _ in parts), inputs)]
    matrices: list[_native.Matrix] = [native.Matrix(*part) for part in parts]

    def times(rows: Array) -> Array:
        given = np.ascontiguousarray(rows)
        made: list[Array] = [native.multiply(matrix, given) for matrix in matrices]
        return made[0] if len(made) == 1 else np.concatenate(made, axis=1)

    return times
