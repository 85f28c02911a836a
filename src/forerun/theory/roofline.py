"""Why rows can be nearly free: a pass waits for memory or for arithmetic, whichever is slower.

Source: the argument of Leviathan, Kalman and Matias 2023, section 3.4 (memory accesses shrink by
the tokens per pass), and the roofline model of Williams, Waterman and Patterson 2009. A pass of M
rows reads the weights once and multiplies them M times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from forerun.theory import domain

__all__ = ["Roofline", "bytes_per_token"]


@dataclass(frozen=True)
class Roofline:
    """A model on a machine; `v` is a pass cost for `measured_speedup`.

    Attributes:
        bytes_per_pass: Bytes of weights and KV memory read in one pass, above 0.
        operations_per_row: Arithmetic operations per row, above 0.
        bandwidth: Bytes per second the machine reads, above 0.
        operations_per_second: Operations per second the machine does, above 0.

    Raises:
        OptionError: A value that is not finite and above 0.
    """

    bytes_per_pass: float
    operations_per_row: float
    bandwidth: float
    operations_per_second: float

    def __post_init__(self) -> None:
        for name in ("bytes_per_pass", "operations_per_row", "bandwidth", "operations_per_second"):
            domain.divisor(name, getattr(self, name))

    def pass_time(self, rows: int) -> float:
        """Seconds of a pass of M rows: max(bytes / bandwidth, M · operations / speed).

        Args:
            rows: M, a whole number from 1 on.

        Raises:
            OptionError: `rows` outside its domain.
        """
        domain.divisor("rows", domain.draft_length("rows", rows))
        memory = self.bytes_per_pass / self.bandwidth
        return max(memory, rows * self.operations_per_row / self.operations_per_second)

    def v(self, rows: int) -> float:
        """The time of a pass of M rows over that of one row, from 1 to M.

        Raises:
            OptionError: `rows` outside its domain.
        """
        return self.pass_time(rows) / self.pass_time(1)

    @property
    def free_rows(self) -> int:
        """The most rows that cost no more than the memory traffic of one; 0 if even one does."""
        memory = self.bytes_per_pass / self.bandwidth
        return math.floor(memory * self.operations_per_second / self.operations_per_row)


def bytes_per_token(
    target_bytes: float, tokens: float, drafter_bytes: float = 0.0, draft_length: int = 0
) -> float:
    """Bytes read per emitted token: (target + γ · drafter) / tokens per pass (section 3.4).

    Args:
        target_bytes: Bytes that one pass of the target reads, ≥ 0.
        tokens: Emitted tokens per pass, above 0; `tokens_per_pass` predicts it.
        drafter_bytes: Bytes that the drafter reads per draft token, ≥ 0.
        draft_length: γ, draft tokens per pass.

    Returns:
        Bytes per token.

    Raises:
        OptionError: An argument outside its domain.
    """
    drafted = domain.draft_length("draft_length", draft_length)
    drafting = drafted * domain.non_negative("drafter_bytes", drafter_bytes)
    target = domain.non_negative("target_bytes", target_bytes)
    return (target + drafting) / domain.divisor("tokens", tokens)
