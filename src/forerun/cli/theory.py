"""`forerun theory`: what the formulas say of an acceptance, a draft length and a cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from forerun.cli.consoles import print_json, stdout
from forerun.errors import OptionError

if TYPE_CHECKING:
    from forerun.theory import PassCost

__all__ = ["theory"]


def theory(
    alpha: Annotated[float, typer.Option(help="α: how often a draft token is accepted, 0 to 1.")],
    draft_length: Annotated[int, typer.Option(help="γ: tokens drafted before each pass.")],
    cost: Annotated[
        float, typer.Option(help="c: the drafter's time per token over the target's per pass.")
    ],
    ops_cost: Annotated[
        float | None,
        typer.Option(
            help="ĉ: the drafter's operations per token over the target's; c if left out."
        ),
    ] = None,
    curve: Annotated[
        str | None,
        typer.Option(
            metavar="M:V,...",
            help="Measured v(M), time of a pass of M rows over one row: 1:1,2:1.1,4:1.3,6:1.5.",
        ),
    ] = None,
    longest: Annotated[
        int, typer.Option(min=0, max=256, help="The longest draft to look at.")
    ] = 12,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON.")] = False,
) -> None:
    """Predict tokens per pass, speedup, operations and the best draft length.

    By the formulas of Leviathan, Kalman and Matias (2023), sections 3.1 to 3.5.
    """
    from forerun.theory import operations_factor, optimal_length_measured

    v = _curve(curve)
    asked = _row(alpha, draft_length, cost, v)
    ops = cost if ops_cost is None else ops_cost
    record = {
        "alpha": alpha,
        "cost": cost,
        "operations_cost": ops,
        "pass_cost": v if isinstance(v, dict) else None,
        **asked,
        "operations": operations_factor(alpha, draft_length, ops),
        "optimal_draft_length": optimal_length_measured(alpha, cost, v, longest),
        "oracle": _oracle(alpha, cost),
        "lengths": _table(alpha, cost, v, longest),
    }
    if as_json:
        print_json(record)
    else:
        _print(record, longest)


def _row(alpha: float, length: int, cost: float, v: PassCost) -> dict[str, Any]:
    """What one draft length gives."""
    from forerun.theory import measured_speedup, tokens_per_pass

    return {
        "draft_length": length,
        "tokens_per_pass": tokens_per_pass(alpha, length),
        "speedup": measured_speedup(alpha, length, cost, v),
    }


def _table(alpha: float, cost: float, v: PassCost, longest: int) -> list[dict[str, Any]]:
    """A row for each draft length whose pass has a cost."""
    lengths = [n for n in range(longest + 1) if not isinstance(v, dict) or n + 1 in v]
    return [_row(alpha, length, cost, v) for length in lengths]


def _oracle(alpha: float, cost: float) -> dict[str, float | None]:
    """The bounds over all draft lengths, rows being free; None where there is no bound."""
    from forerun.theory import oracle_speedup, oracle_tokens

    return {
        "tokens_per_pass": oracle_tokens(alpha) if alpha < 1 else None,
        "speedup": oracle_speedup(alpha, cost) if alpha < 1 or cost > 0 else None,
    }


def _curve(text: str | None) -> PassCost:
    """v(M) as it was given; without a measurement rows are free, as the paper assumes."""
    if text is None:
        return lambda rows: 1.0
    v: dict[int, float] = {}
    for item in text.split(","):
        rows, _, cost = item.partition(":")
        try:
            if not item.isascii():
                raise ValueError
            v[int(rows)] = float(cost)
        except ValueError:
            raise OptionError(
                f"--curve has {item!r}.", "Write rows:cost pairs such as 1:1,2:1.1,4:1.3."
            ) from None
    return v


def _print(record: dict[str, Any], longest: int) -> None:
    best, oracle = record["optimal_draft_length"], record["oracle"]
    facts = Table(box=None, show_header=False, pad_edge=False)
    for name, value in (
        ("tokens per pass", _number(record["tokens_per_pass"])),
        ("speedup", _number(record["speedup"])),
        ("operations", _number(record["operations"])),
        ("best draft length", f"{best}" + (" (the longest looked at)" if best == longest else "")),
        ("oracle's tokens per pass", _number(oracle["tokens_per_pass"])),
        ("oracle's speedup", _number(oracle["speedup"])),
    ):
        facts.add_row(name, value)
    table = Table("draft length", "tokens per pass", "speedup", box=None, pad_edge=False)
    for column in table.columns:
        column.justify = "right"
    for row in record["lengths"]:
        length = row["draft_length"]
        cells = (str(length), _number(row["tokens_per_pass"]), _number(row["speedup"]))
        table.add_row(*cells, style="bold green" if length == best else "")
    console = stdout()
    console.print(facts)
    console.print()
    console.print(table)


def _number(value: float | None) -> str:
    return "no bound" if value is None else f"{value:.2f}"
