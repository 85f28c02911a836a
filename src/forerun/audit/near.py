"""Near-ties: where a target keeps the law and not the bits, how nearly a token was another.

Two passes of different shape may give logits that differ in their last bits. Then plain and
speculative decoding may part, where two tokens are that near. A difference counts as a near-tie if
the token that was written comes out of plain decoding's own logits, once its logit is raised and
the other's lowered a little; the least that takes is the gap.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from forerun.engine.request import Request
from forerun.events import Result
from forerun.targets.protocol import Row, Target

__all__ = ["gap_between", "near_difference", "tolerance_of"]

_FINEST = 2.0**-24
_ALLOWED = {"float32": 1e-3, "float64": 1e-3}
_OTHERS = 0.5  # bfloat16 and float16: rounding moves logits by some hundredths, at times by more


def tolerance_of(target: Target) -> float:
    """Return the widest gap that rounding explains: 0 where bits are promised."""
    if target.capabilities.exactness == "bitwise":
        return 0.0
    dtype = str(getattr(getattr(target, "model", None), "dtype", "float32"))
    return _ALLOWED.get(dtype.removeprefix("torch."), _OTHERS)


def near_difference(
    target: Target, request: Request, plain: Result, tolerance: float
) -> tuple[str, float | None]:
    """Compare a text with plain decoding's, up to a near-tie; behind one they are different texts.

    Args:
        target: Which wrote both.
        request: Of the speculative text, finished.
        plain: What plain decoding wrote.
        tolerance: The widest gap of a near-tie.

    Returns:
        The first difference that rounding does not explain, or nothing; and the near-tie's gap,
        if there was one.
    """
    result = request.result()
    for position, (own, other) in enumerate(itertools.zip_longest(plain.tokens, result.tokens)):
        if own is None or other is None:
            longer = "longer" if own is None else "shorter"
            return f"position {position}: the text is {longer} than plain decoding's", None
        if own.token != other.token:
            gap = gap_between(target, request, position, own.token, other.token)
            if gap <= tolerance:
                return "", gap
            what = f"token {other.token}, plain decoding writes {own.token}"
            return f"position {position}: {what}, and {gap:.2g} lie between them", None
        if not math.isclose(own.logprob, other.logprob, rel_tol=1e-3, abs_tol=4 * tolerance):
            what = f"log-probability {other.logprob!r}, not {own.logprob!r}"
            return f"position {position}: {what}", None
    ends = [(r.text, r.finish_reason, r.finish_detail) for r in (plain, result)]
    return "" if ends[0] == ends[1] else f"the text ends as {ends[1]}, not {ends[0]}", None


def gap_between(target: Target, request: Request, position: int, plain: int, written: int) -> float:
    """Return by how much two tokens' logits must move, one up and one down, to draw either.

    Args:
        target: Which wrote them.
        request: The text's, finished.
        position: Of the token, in the output.
        plain: What plain decoding draws there.
        written: What was drawn.
    """
    text = request.tokens[: len(request.prompt) + position]
    sequence = target.open(text[:-1], request.source)
    try:
        logits = target.score([Row(sequence, text[-1], len(text) - 1, -1)]).logits[0]
    finally:
        target.free(sequence)
    state = request.warp.start(request.prompt)
    for token in text[len(request.prompt) :]:
        state = state.advance(token)

    def needed(up: int, down: int) -> float:
        moved = 0.0
        while moved < 64:
            shifted = logits.copy()
            shifted[up] += np.float32(moved / 2)
            shifted[down] -= np.float32(moved / 2)
            if request.warp.token(shifted, state, request.noise, len(text)) == up:
                return moved
            moved = max(_FINEST, 2 * moved)
        return math.inf

    return max(needed(written, plain), needed(plain, written))
