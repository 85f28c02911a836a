"""The reference readout: a head without attention in plain numpy, float32, row-exact."""

from __future__ import annotations

import numpy as np

from forerun.models.model import Model
from forerun.targets.readout import FileReadout, Product
from forerun.targets.row_exact import RowExactProduct

__all__ = ["ReferenceReadout"]


class ReferenceReadout(FileReadout):
    """Guesses what a target writes, with a head's dequantised weights; `FileReadout` says more."""

    def product(self, *names: str) -> Product:
        """Return the product with some of the head's matrices, one below the other."""
        return RowExactProduct(np.concatenate([self._file.file.tensor(name) for name in names]))

    def targets_head(self, model: Model) -> Product:
        """Return the product with the target's own rows of the draft vocabulary."""
        name = "token_embd.weight" if model.architecture.is_tied else "output.weight"
        return RowExactProduct(np.ascontiguousarray(model.file.tensor(name)[self.tokens]))
