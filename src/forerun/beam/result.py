"""What a search found, as those see it who asked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from forerun.beam.ask import BeamAsk
from forerun.beam.plain import Found
from forerun.core.beams import Finished
from forerun.core.stop import Decoder
from forerun.events import Beam, BeamResult, BeamStats
from forerun.targets.protocol import Target

__all__ = ["beam_result"]


def beam_result(
    target: Target,
    found: Sequence[Finished[Found]],
    ask: BeamAsk,
    stats: BeamStats,
    decoder: Callable[[], Decoder],
) -> BeamResult:
    """Return the beams with their texts.

    Args:
        target: What computed the passes.
        found: The texts, best first.
        ask: What was asked for.
        stats: What it cost.
        decoder: Makes one for a text.
    """
    return BeamResult(
        beams=tuple(_beam(each, ask.rule.ends, decoder(), ask.limited_by) for each in found),
        guarantee=target.capabilities.exactness,
        stats=stats,
        target=target.capabilities.name,
    )


def _beam(found: Finished[Found], ends: Collection[int], decoder: Decoder, limited_by: str) -> Beam:
    tokens = found.text.tokens
    is_ended = tokens[-1] in ends
    text = "".join(decoder.push(token) for token in tokens[: len(tokens) - is_ended])
    return Beam(
        text=text + decoder.flush(),
        token_ids=tokens,
        score=found.score,
        logprobs=found.text.log_p,
        finish_reason="stop" if is_ended else "length",
        finish_detail="end of text" if is_ended else limited_by,
    )
