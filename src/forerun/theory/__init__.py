"""The formulas of speculative decoding: floats in, floats out.

Each names its source; `docs/explain/theory.md` is the one-page index. Whatever is outside a
formula's domain, NaN included, is an `OptionError`.
"""

from __future__ import annotations

from forerun.theory.acceptance import (
    acceptance,
    kl_divergence,
    lk_divergence,
    mean_acceptance,
    rejection_sampling_acceptance,
)
from forerun.theory.length import (
    optimal_length,
    optimal_length_along,
    optimal_length_measured,
    oracle_speedup,
    oracle_tokens,
)
from forerun.theory.lenience import (
    lenient_acceptance,
    lenient_distance,
    lenient_kl,
    lenient_law,
)
from forerun.theory.roofline import Roofline, bytes_per_token
from forerun.theory.speedup import (
    PassCost,
    measured_speedup,
    minimum_speedup,
    operations_factor,
    speedup,
    speedup_along,
    tokens_along,
    tokens_per_pass,
)
from forerun.theory.tree_size import optimal_size, speedup_of_tree

__all__ = [
    "PassCost",
    "Roofline",
    "acceptance",
    "bytes_per_token",
    "kl_divergence",
    "lenient_acceptance",
    "lenient_distance",
    "lenient_kl",
    "lenient_law",
    "lk_divergence",
    "mean_acceptance",
    "measured_speedup",
    "minimum_speedup",
    "operations_factor",
    "optimal_length",
    "optimal_length_along",
    "optimal_length_measured",
    "optimal_size",
    "oracle_speedup",
    "oracle_tokens",
    "rejection_sampling_acceptance",
    "speedup",
    "speedup_along",
    "speedup_of_tree",
    "tokens_along",
    "tokens_per_pass",
]
