"""What drafting should have taken: rounds reckoned from v, c and acceptance.

    seconds = Σ_rounds (pass · v(1 + drafted) + rest + c · pass · drafted)

`pass` and `rest` are those of a plain round in the same task, v is the curve that was measured
before each repeat, c what a drafted token took of this side's time in all tasks, over `pass`. How
many rounds there were, and of which size, is what the observed acceptance came to. What differs
from the time they took is what v and c don't know.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from forerun.bench.race.protocol import Written
from forerun.control.cost import MOST_ROWS
from forerun.events import Stats

__all__ = ["drafting_price", "foretold", "together"]


def drafting_price(texts: Sequence[Written]) -> float:
    """Return what a drafted token takes, in seconds: drafting and choosing over what was drafted.

    0 if nothing was drafted.
    """
    total = _total(texts)
    return (total.draft_seconds + total.choice_seconds) / total.drafted if total.drafted else 0.0


def foretold(
    texts: Sequence[Written], plain: Sequence[Written], price: float, v: Sequence[float]
) -> dict[str, float] | None:
    """Return the seconds in rounds that are `foretold` and `measured`, and their `ratio`.

    Args:
        texts: What a side wrote; those whose rounds are not known are left out.
        plain: What was written plainly.
        price: Seconds of a drafted token.
        v: By rows of a pass, its time over that of one of one row.

    Returns:
        None if nothing is known of either.
    """
    known = [text for text in texts if text.stats is not None and text.drafted_in_rounds]
    of_plain, measured = _total(plain), _total(known).seconds
    if not known or not of_plain.passes or measured <= 0:
        return None
    one = of_plain.pass_seconds / of_plain.passes
    rest = of_plain.seconds / of_plain.passes - one
    seconds = 0.0
    for text in known:
        for drafted, rounds in text.drafted_in_rounds.items():
            rows = min(1 + drafted, MOST_ROWS)
            seconds += rounds * (one * v[rows] + rest + price * drafted)
    return _record(seconds, measured)


def together(parts: Iterable[dict[str, float] | None]) -> dict[str, float] | None:
    """Return the sum of several; None if nothing is known of any."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    return _record(*(sum(part[name] for part in known) for name in ("foretold", "measured")))


def _record(seconds: float, measured: float) -> dict[str, float]:
    return {"foretold": seconds, "measured": measured, "ratio": seconds / measured}


def _total(texts: Sequence[Written]) -> Stats:
    total = Stats()
    for text in texts:
        if text.stats is not None:
            total.add(text.stats)
    return total
